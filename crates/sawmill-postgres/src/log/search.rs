//! Searches of the log: find a message, positions by time, and the size of the backlog.

use sawmill_engine::Result;
use sawmill_engine::model::{MessageId, Topic};
use sawmill_engine::runtime::Timestamp;
use sawmill_engine::storage::{Backlog, FoundMessage, Position};
use tokio_postgres::types::Type;

use crate::error::{Effect, corrupt};
use crate::log::place::{Place, Window};
use crate::log::read::snapshot;
use crate::log::row::{COLUMNS, Id, from_shard, from_time, message, messages, numbers, to_time};
use crate::log::snapshot::{Snapshot, Spot};
use crate::log::topics::{aside_table, message_tables, topic_id, wrong_row};
use crate::store::Postgres;

/// A query for the given columns of all ready messages of a topic.
fn all(tables: &[String], columns: &str, condition: &str) -> String {
    let parts: Vec<String> =
        tables.iter().map(|table| format!("SELECT {columns} FROM {table} WHERE {condition}")).collect();
    parts.join(" UNION ALL ")
}

/// Returns the position just before a spot: inside the window from the beginning to the transaction of the
/// spot.
fn before(now: &Snapshot, (xid, number): Spot) -> Position {
    let old = Snapshot::default();
    let window = Window { new: now.known(&old, xid), old };
    Place::Inside(window, (xid, number.saturating_sub(1))).position()
}

impl Postgres {
    /// See [`sawmill_engine::storage::Log::find`].
    pub(crate) async fn find_message(&self, topic: &Topic, id: MessageId) -> Result<Option<FoundMessage>> {
        let (schema, topic_id) = (self.schema(), topic_id(topic)?);
        let id = Id(id.as_u128());
        // Delayed messages are searched before ready ones, so a message that is promoted in between is found.
        let sql = format!("SELECT shard, {COLUMNS} FROM {} WHERE id = $1", aside_table(schema, topic_id));
        let rows = self.query_topic(topic, Effect::Reads, &sql, &[(&id, Type::UUID)]).await?;
        if let Some(row) = rows.first() {
            return Ok(Some(FoundMessage { shard: shard(row)?, message: message(row, 1)?, before: None }));
        }
        let columns = format!("shard, {COLUMNS}, xid, n, many");
        let condition = "id = $1 OR (many > 1 AND position($2::bytea in payload) > 0)";
        let rows = all(&message_tables(schema, topic_id), &columns, condition);
        let sql = format!(
            "SELECT u.*, pg_current_snapshot()::text, shift FROM ({rows}) AS u, {schema}.meta ORDER BY xid, n"
        );
        let bytes = &id.0.to_be_bytes()[..];
        let params: [crate::connection::pool::Param<'_>; 2] = [(&id, Type::UUID), (&bytes, Type::BYTEA)];
        let rows = self.query_topic(topic, Effect::Reads, &sql, &params).await?;
        // The bytes of the id may also occur elsewhere in a pack.
        for row in &rows {
            let (xid, last, many): (i64, i64, i32) = (
                row.try_get(7).map_err(wrong_row)?,
                row.try_get(8).map_err(wrong_row)?,
                row.try_get(9).map_err(wrong_row)?,
            );
            let mut numbered = numbers(last, many).zip(messages(row, 1, many)?);
            if let Some((number, message)) = numbered.find(|(_, message)| message.id.as_u128() == id.0) {
                let before = Some(before(&snapshot(row, 10)?, (xid, number)));
                return Ok(Some(FoundMessage { shard: shard(row)?, message, before }));
            }
        }
        Ok(None)
    }

    /// See [`sawmill_engine::storage::Log::positions`].
    pub(crate) async fn find_positions(&self, topic: &Topic, since: Timestamp) -> Result<Vec<Position>> {
        let (schema, id) = (self.schema(), topic_id(topic)?);
        // No message is created at the end of time: all positions are ends, and no search is needed.
        let condition = if since == Timestamp::LATEST { "false" } else { "shard = s AND created_ms >= $1" };
        let first = all(&message_tables(schema, id), "xid, n - many + 1 AS n", condition);
        let last: Vec<String> = message_tables(schema, id)
            .iter()
            .map(|table| {
                format!("(SELECT xid FROM {table} WHERE shard = s ORDER BY xid DESC, n DESC LIMIT 1)")
            })
            .collect();
        let sql = format!(
            "SELECT f.xid, f.n, pg_current_snapshot()::text, shift, greatest({})
             FROM {schema}.meta CROSS JOIN generate_series(0, $2 - 1) AS s
             LEFT JOIN LATERAL (SELECT * FROM ({first}) AS u ORDER BY xid, n LIMIT 1) AS f ON true ORDER BY s",
            last.join(", ")
        );
        let params: [crate::connection::pool::Param<'_>; 2] =
            [(&from_time(since), Type::INT8), (&i32::from(topic.shards), Type::INT4)];
        let rows = self.query_topic(topic, Effect::Reads, &sql, &params).await?;
        rows.iter()
            .map(|row| {
                let now = snapshot(row, 2)?;
                let spot: (Option<i64>, Option<i64>) =
                    (row.try_get(0).map_err(wrong_row)?, row.try_get(1).map_err(wrong_row)?);
                Ok(match spot {
                    (Some(xid), Some(number)) => before(&now, (xid, number)),
                    _ => {
                        let last: Option<i64> = row.try_get(4).map_err(wrong_row)?;
                        Place::After(now.known(&Snapshot::default(), last.unwrap_or(-1))).position()
                    }
                })
            })
            .collect()
    }

    /// See [`sawmill_engine::storage::Log::backlog`].
    pub(crate) async fn count_backlog(&self, topic: &Topic, after: &[(u16, Position)]) -> Result<Backlog> {
        let (schema, id) = (self.schema(), topic_id(topic)?);
        let (mut owners, mut shards, mut xids, mut numbers, mut ends) =
            (Vec::new(), Vec::new(), Vec::new(), Vec::new(), Vec::new());
        for (owner, (shard, position)) in after.iter().enumerate() {
            if *shard >= topic.shards {
                return Err(topic.no_shard(*shard));
            }
            for range in Place::of(position)?.rest() {
                owners.push(owner);
                shards.push(from_shard(*shard));
                xids.push(range.after.0);
                numbers.push(range.after.1);
                ends.push(range.end);
            }
        }
        let condition = "shard = r.shard AND (xid, n) > (r.xid, r.n) AND xid < r.ends";
        let tables = message_tables(schema, id);
        // If the position lies inside a row, only the messages after it count.
        let left = "CASE WHEN xid = r.xid THEN least(many, n - r.n) ELSE many END AS rest";
        let (counted, dated) = (all(&tables, left, condition), all(&tables, "created_ms, xid, n", condition));
        let sql = format!(
            "SELECT (SELECT count(*) FROM {aside}), NULL::int8 UNION ALL (
             SELECT c.count, f.created_ms
             FROM unnest($1::int2[], $2::int8[], $3::int8[], $4::int8[]) WITH ORDINALITY AS r(shard, xid, n, ends, at)
             CROSS JOIN LATERAL (SELECT coalesce(sum(u.rest), 0)::int8 AS count FROM ({counted}) AS u) AS c
             LEFT JOIN LATERAL (SELECT created_ms FROM ({dated}) AS u ORDER BY xid, n LIMIT 1) AS f ON true ORDER BY r.at)",
            aside = aside_table(schema, id)
        );
        let params: [crate::connection::pool::Param<'_>; 4] = [
            (&shards, Type::INT2_ARRAY),
            (&xids, Type::INT8_ARRAY),
            (&numbers, Type::INT8_ARRAY),
            (&ends, Type::INT8_ARRAY),
        ];
        let rows = self.query_topic(topic, Effect::Reads, &sql, &params).await?;
        let mut backlog = Backlog { ready: vec![0; after.len()], ..Backlog::default() };
        let count = |at: usize| -> Result<u64> {
            let count: i64 =
                rows.get(at).ok_or_else(|| corrupt("no counts"))?.try_get(0).map_err(wrong_row)?;
            Ok(count.unsigned_abs())
        };
        backlog.aside = count(0)?;
        for (at, owner) in owners.iter().enumerate() {
            let first: Option<i64> = rows.get(at + 1).and_then(|row| row.try_get(1).ok()).flatten();
            // A shard counts with its first message, which need not be its oldest.
            if backlog.ready[*owner] == 0 {
                backlog.oldest = [backlog.oldest, first.and_then(to_time)].into_iter().flatten().min();
            }
            backlog.ready[*owner] += count(at + 1)?;
        }
        Ok(backlog)
    }
}

fn shard(row: &tokio_postgres::Row) -> Result<u16> {
    let shard: i16 = row.try_get(0).map_err(wrong_row)?;
    u16::try_from(shard).map_err(|_| corrupt(format!("a message in shard {shard}")))
}
