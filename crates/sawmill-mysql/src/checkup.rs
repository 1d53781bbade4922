//! Finds problems with a server that works nevertheless.

use std::time::Duration;

use sawmill_engine::Result;
use sawmill_engine::runtime::Timestamp;
use sawmill_engine::storage::Finding;

use crate::Mysql;
use crate::connection::connections::Connection;
use crate::connection::sql::Sql;
use crate::error::{Failure, code};
use crate::log::row::{field, only};

impl Mysql {
    pub(crate) async fn findings(&self, patience: Duration) -> Result<Vec<Finding>> {
        let mut findings =
            self.work(|| async { self.missing_rights(&mut self.connection().await?).await }).await?;
        findings.extend(self.server().finding());
        findings
            .extend(self.work(|| async { self.unsafe_settings(&mut self.connection().await?).await }).await?);
        findings.extend(
            self.work(|| async { held_transactions(&mut self.connection().await?, patience).await }).await?,
        );
        Ok(findings)
    }

    /// Tests rights with statements that change nothing.
    async fn missing_rights(&self, connection: &mut Connection) -> Result<Vec<Finding>, Failure> {
        let tables = self.tables();
        let mut findings = Vec::new();
        // Tables, and a column to update for those whose rows are updated.
        for (table, changed) in [
            (&tables.topic, None),
            (&tables.shard, Some("last")),
            (&tables.message, None),
            (&tables.aside, None),
            (&tables.once, Some("token")),
            (&tables.entry, Some("version")),
        ] {
            let mut tries = vec![
                ("INSERT", format!("INSERT INTO {table} SELECT * FROM {table} WHERE FALSE")),
                ("DELETE", format!("DELETE FROM {table} WHERE FALSE")),
            ];
            tries.extend(
                changed
                    .map(|column| ("UPDATE", format!("UPDATE {table} SET {column} = {column} WHERE FALSE"))),
            );
            for (right, sql) in tries {
                match connection.ask(&Sql::new(sql)).await {
                    Err(failure) if failure.code() == Some(code::NO_RIGHTS_TO_TABLE) => {
                        findings.push(Finding::new(
                            "rights",
                            format!("the user of the store lacks the right {right} on the table {table}"),
                            "grant CREATE, ALTER, DROP, INDEX, SELECT, INSERT, UPDATE and DELETE on the database",
                        ));
                    }
                    done => drop(done?),
                }
            }
        }
        Ok(findings)
    }

    async fn unsafe_settings(&self, connection: &mut Connection) -> Result<Vec<Finding>, Failure> {
        let before = self.env().wall();
        let sql = Sql::new(
            "SELECT @@innodb_flush_log_at_trx_commit, @@log_bin, @@sync_binlog,
             CAST(TIMESTAMPDIFF(MICROSECOND, '1970-01-01', UTC_TIMESTAMP(6)) DIV 1000 AS UNSIGNED)",
        );
        let answer = connection.ask(&sql).await?.pop().unwrap_or_default();
        let Some(mut row) = only(answer.rows) else { return Ok(Vec::new()) };
        let between = (before, self.env().wall());
        let (flush, log): (u64, u64) = (field(&mut row, 0)?, field(&mut row, 1)?);
        let (sync, clock): (u64, u64) = (field(&mut row, 2)?, field(&mut row, 3)?);
        let mut findings = Vec::new();
        let mut found = |setting: &str, value: u64, danger: &str| {
            let what = format!("{setting} is {value} at the server: {danger}");
            findings.push(Finding::new("durability", what, format!("set {setting} = 1")));
        };
        if flush != 1 {
            let danger = "a crash of the server's machine loses messages that it has acknowledged";
            found("innodb_flush_log_at_trx_commit", flush, danger);
        }
        if log != 0 && sync != 1 {
            let danger =
                "after a crash of the server's machine its replicas may lack messages, or have too many";
            found("sync_binlog", sync, danger);
        }
        findings.extend(Finding::of_clock("the server", Timestamp::from_millis(clock), between));
        Ok(findings)
    }
}

/// InnoDB cannot clean up rows that these transactions might still see. Their start is given in the server
/// machine's time zone, whatever the session's zone is. It may be off by an hour when the clocks are set
/// back.
async fn held_transactions(connection: &mut Connection, patience: Duration) -> Result<Vec<Finding>, Failure> {
    let sql = Sql::new(format_args!(
        "SELECT id, CONCAT(CAST(since AS CHAR), ' UTC')
         FROM (SELECT trx_mysql_thread_id AS id, CONVERT_TZ(trx_started, 'SYSTEM', '+00:00') AS since
               FROM information_schema.innodb_trx) AS open_transactions
         WHERE since < UTC_TIMESTAMP() - INTERVAL {} SECOND AND id NOT IN (0, CONNECTION_ID())",
        patience.as_secs().max(1)
    ));
    let answer = match connection.ask(&sql).await {
        Err(failure) if failure.code() == Some(code::NO_RIGHTS_TO_SERVER) => return unseen(connection).await,
        answer => answer?.pop().unwrap_or_default(),
    };
    let found = |mut row| {
        let (id, since): (u64, String) = (field(&mut row, 0)?, field(&mut row, 1)?);
        Ok(Finding::new(
            "held-transaction",
            format!("connection {id} of the server is in one transaction since {since}"),
            format!(
                "find out who forgot to end it, or end it by KILL {id}: old versions of rows are kept meanwhile"
            ),
        ))
    };
    answer.rows.into_iter().map(found).collect()
}

/// Used without the right to see transactions: reports if other users are connected, whose sessions are
/// hidden from this user.
async fn unseen(connection: &mut Connection) -> Result<Vec<Finding>, Failure> {
    let sql = Sql::new("SHOW GLOBAL STATUS LIKE 'Threads_connected'");
    let Some(mut row) = only(connection.ask(&sql).await?.pop().unwrap_or_default().rows) else {
        return Ok(Vec::new());
    };
    let all = field::<String>(&mut row, 1)?.parse::<u64>().unwrap_or(0);
    let sql = Sql::new("SELECT COUNT(*) FROM information_schema.processlist");
    let Some(mut row) = only(connection.ask(&sql).await?.pop().unwrap_or_default().rows) else {
        return Ok(Vec::new());
    };
    let seen: u64 = field(&mut row, 0)?;
    Ok(Vec::from_iter((all > seen).then(|| {
        Finding::not_checked(
            "whether others at the server hold transactions open: the user of the store may not see them",
            "GRANT PROCESS ON *.* to the user, or look into information_schema.innodb_trx as one who may",
        )
    })))
}
