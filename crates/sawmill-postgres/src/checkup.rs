//! Finds problems with a server that works nevertheless.

use std::time::Duration;

use sawmill_engine::Result;
use sawmill_engine::runtime::Timestamp;
use sawmill_engine::storage::Finding;
use tokio_postgres::Row;
use tokio_postgres::types::Type;

use crate::connection::pool::Param;
use crate::error::Effect;
use crate::log::topics::wrong_row;
use crate::store::Postgres;

/// Settings that should not be off, and the consequence if they are.
const SETTINGS: [(&str, &str); 4] = [
    ("fsync", "a crash of the server's machine may destroy the database"),
    ("full_page_writes", "a crash of the server's machine may destroy the database"),
    ("synchronous_commit", "a crash of the server loses messages that it has acknowledged"),
    ("autovacuum", "tables grow without end, and reading them slows down"),
];

/// A session of another user.
#[derive(PartialEq, Eq)]
struct HiddenSession {
    pid: i32,
    user: String,
    transaction: String,
}

impl Postgres {
    pub(crate) async fn findings(&self, patience: Duration) -> Result<Vec<Finding>> {
        let mut findings = self.missing_rights().await?;
        findings.extend(self.unsafe_settings().await?);
        findings.extend(self.held_transactions(patience).await?);
        findings.extend(self.hidden_transactions(patience).await?);
        findings.extend(self.wrong_clock().await?);
        if !self.notifier().receives(self.env()).await {
            findings.push(Finding::new(
                "no-hints",
                format!("notifications do not arrive from {}: workers poll five times a second", self.redacted_url()),
                "if a pooler in transaction mode is between, that is all right, or give workers a way past it",
            ));
        }
        Ok(findings)
    }

    async fn missing_rights(&self) -> Result<Vec<Finding>> {
        let sql = r#"
            SELECT 'schema ' || nspname, "right"
            FROM pg_namespace CROSS JOIN unnest(ARRAY['USAGE', 'CREATE']) AS "right"
            WHERE oid = $1::regnamespace AND NOT has_schema_privilege(oid, "right")
            UNION ALL
            SELECT 'table ' || relname, "right"
            FROM pg_class CROSS JOIN unnest(ARRAY['SELECT', 'INSERT', 'UPDATE', 'DELETE', 'TRUNCATE']) AS "right"
            WHERE relnamespace = $1::regnamespace AND relkind = 'r' AND NOT has_table_privilege(oid, "right")
            UNION ALL
            SELECT 'function ' || proname, 'EXECUTE'
            FROM pg_proc
            WHERE pronamespace = $1::regnamespace AND NOT has_function_privilege(oid, 'EXECUTE')
            ORDER BY 1"#;
        let found = |row: &Row| {
            let (what, right) = (row.try_get::<_, String>(0)?, row.try_get::<_, String>(1)?);
            Ok(Finding::new(
                "rights",
                format!(
                    "the user of {} lacks the right {right} on the {what} of {}",
                    self.redacted_url(),
                    self.schema()
                ),
                "let it own the schema and all in it (REASSIGN OWNED), or grant it what it lacks (GRANT)",
            ))
        };
        self.each(sql, &[(&self.schema(), Type::TEXT)], found).await
    }

    async fn unsafe_settings(&self) -> Result<Vec<Finding>> {
        let names = SETTINGS.map(|(name, _)| name).to_vec();
        let sql = "SELECT name, source FROM pg_settings WHERE name = ANY ($1) AND setting = 'off'";
        let found = |row: &Row| {
            let (name, source) = (row.try_get::<_, String>(0)?, row.try_get::<_, String>(1)?);
            let danger =
                SETTINGS.iter().find(|(setting, _)| *setting == name).map_or("", |(_, danger)| danger);
            Ok(Finding::new(
                "durability",
                format!("{name} is off at {} (set by: {source}): {danger}", self.redacted_url()),
                format!("set {name} = on, for the server, the database or the user that it was set for"),
            ))
        };
        self.each(sql, &[(&names, Type::TEXT_ARRAY)], found).await
    }

    /// Vacuum cannot clean up rows that these transactions might still see.
    async fn held_transactions(&self, patience: Duration) -> Result<Vec<Finding>> {
        let sql = "
            SELECT format('session %s of %s (%s), %s', pid, usename,
                          coalesce(nullif(application_name, ''), 'without a name'), state),
                   to_char(xact_start, 'YYYY-MM-DD HH24:MI:SS TZ'), format('pg_terminate_backend(%s)', pid)
            FROM pg_stat_activity
            WHERE datname = current_database() AND pid <> pg_backend_pid() AND backend_type = 'client backend'
                AND xact_start < statement_timestamp() - $1 * interval '1 second'
            UNION ALL
            SELECT format('prepared transaction %L of %s', gid, owner),
                   to_char(prepared, 'YYYY-MM-DD HH24:MI:SS TZ'), format('ROLLBACK PREPARED %L', gid)
            FROM pg_prepared_xacts
            WHERE database = current_database() AND prepared < statement_timestamp() - $1 * interval '1 second'
            ORDER BY 2";
        let found = |row: &Row| {
            let text = |column| row.try_get::<_, String>(column);
            Ok(Finding::new(
                "held-transaction",
                format!("{} at {} is in one transaction since {}", text(0)?, self.redacted_url(), text(1)?),
                format!(
                    "find out who forgot to end it, or end it by {}: what is dead is kept meanwhile",
                    text(2)?
                ),
            ))
        };
        self.each(sql, &[(&patience.as_secs_f64(), Type::FLOAT8)], found).await
    }

    /// Without the right to read all statistics, the server hides the start of other users' transactions. It
    /// shows everybody the transaction id of each session: a session that still has the same one after this
    /// time holds it open.
    async fn hidden_transactions(&self, patience: Duration) -> Result<Vec<Finding>> {
        let before = self.transactions_of_others().await?;
        if before.is_empty() {
            return Ok(Vec::new());
        }
        self.env().sleep(patience).await;
        let mut held = self.transactions_of_others().await?;
        held.retain(|session| before.contains(session));
        let found = |HiddenSession { pid, user, .. }: HiddenSession| {
            Finding::new(
                "held-transaction",
                format!(
                    "session {pid} of {user} at {} is in one transaction for {} s or longer",
                    self.redacted_url(),
                    patience.as_secs_f64()
                ),
                format!(
                    "find out who forgot to end it, or end it by pg_terminate_backend({pid}): what is dead is kept meanwhile; \
                     with GRANT pg_read_all_stats it is told since when, and by which program"
                ),
            )
        };
        Ok(held.into_iter().map(found).collect())
    }

    async fn transactions_of_others(&self) -> Result<Vec<HiddenSession>> {
        let sql = "
            SELECT activity.pid, activity.usename::text, lock.virtualtransaction
            FROM pg_locks AS lock JOIN pg_stat_activity AS activity ON activity.pid = lock.pid
            WHERE lock.locktype = 'virtualxid' AND lock.mode = 'ExclusiveLock' AND lock.granted
                AND activity.datname = current_database() AND activity.usename IS NOT NULL
                AND NOT pg_has_role(activity.usesysid, 'USAGE') AND NOT pg_has_role('pg_read_all_stats', 'USAGE')
            ORDER BY 1";
        let read = |row: &Row| {
            Ok(HiddenSession { pid: row.try_get(0)?, user: row.try_get(1)?, transaction: row.try_get(2)? })
        };
        self.each(sql, &[], read).await
    }

    async fn wrong_clock(&self) -> Result<Option<Finding>> {
        let before = self.env().wall();
        let sql = "SELECT (extract(epoch FROM clock_timestamp()) * 1000)::int8";
        let said = self.each(sql, &[], |row| row.try_get::<_, i64>(0)).await?;
        let clock = said.first().copied().and_then(|millis| u64::try_from(millis).ok());
        let between = (before, self.env().wall());
        Ok(clock.and_then(|millis| {
            Finding::of_clock(self.redacted_url(), Timestamp::from_millis(millis), between)
        }))
    }

    async fn each<T>(
        &self,
        sql: &str,
        params: &[Param<'_>],
        read: impl Fn(&Row) -> Result<T, tokio_postgres::Error>,
    ) -> Result<Vec<T>> {
        let rows = self.query(Effect::Reads, sql, params).await?;
        rows.iter().map(|row| read(row).map_err(wrong_row)).collect()
    }
}
