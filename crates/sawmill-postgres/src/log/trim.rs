//! Removes messages that nobody needs any more: whole tables, not single messages.
//!
//! A topic's messages are written to a few tables in turn. A table is truncated when nothing in it is needed.
//! This costs the same whatever the table held, and leaves nothing for vacuum. Messages in a table that is
//! partly needed stay until nothing in it is needed.

use std::time::Duration;

use sawmill_engine::Result;
use sawmill_engine::model::Topic;
use sawmill_engine::runtime::Timestamp;
use sawmill_engine::storage::Position;
use tokio_postgres::types::Type;
use tokio_postgres::{Client, Transaction};

use crate::connection::pool::Param;
use crate::error::{Effect, Failure, corrupt};
use crate::log::place::Place;
use crate::log::row::{from_shard, from_time};
use crate::log::snapshot::{Range, Snapshot, ranges};
use crate::log::topics::{TABLES, known_table, message_tables, topic_id};
use crate::schema;
use crate::store::{Postgres, topic_error};

/// A table of this size is not written to any more once another one is empty.
const FULL_BYTES: i64 = 8 << 20;

/// The time limit for checking all messages of a table.
const LIMIT: Duration = Duration::from_secs(300);

/// On average, one trim out of this many also deletes old records of finished messages.
const FORGET_FINISHED_EVERY: u64 = 10;

/// The needed parts of a topic, as statement parameters.
#[derive(Default)]
struct Columns {
    shards: Vec<i16>,
    xids: Vec<i64>,
    numbers: Vec<i64>,
    ends: Vec<i64>,
    dated: Vec<i16>,
    since: Vec<i64>,
}

impl Columns {
    /// Everything in a shard without positions is needed. In other shards, messages after the positions are
    /// needed, and messages created at `since` or later.
    fn new(topic: &Topic, upto: &[Vec<Position>], since: Timestamp) -> Result<Self> {
        let mut columns = Self::default();
        for number in 0..topic.shards {
            let shard = from_shard(number);
            let mut needed = Vec::new();
            match upto.get(usize::from(number)).filter(|upto| !upto.is_empty()) {
                None => needed.push(Range { after: (-1, -1), end: i64::MAX }),
                Some(upto) => {
                    for position in upto {
                        needed.extend(Place::of(position)?.rest());
                    }
                    columns.dated.push(shard);
                    columns.since.push(from_time(since));
                }
            }
            for range in needed {
                columns.shards.push(shard);
                columns.xids.push(range.after.0);
                columns.numbers.push(range.after.1);
                columns.ends.push(range.end);
            }
        }
        Ok(columns)
    }

    fn params(&self) -> [Param<'_>; 6] {
        [
            (&self.shards, Type::INT2_ARRAY),
            (&self.xids, Type::INT8_ARRAY),
            (&self.numbers, Type::INT8_ARRAY),
            (&self.ends, Type::INT8_ARRAY),
            (&self.dated, Type::INT2_ARRAY),
            (&self.since, Type::INT8_ARRAY),
        ]
    }
}

/// A query that returns true if a table is not empty and nothing in it is needed. With `quickly`, it checks
/// the age of the newest message of each shard only, instead of all messages.
fn can_empty(table: &str, quickly: bool) -> String {
    let newest = if quickly { "ORDER BY xid DESC, n DESC LIMIT 1" } else { "" };
    format!(
        "SELECT EXISTS (SELECT 1 FROM {table})
         AND NOT EXISTS (
             SELECT 1 FROM unnest($1::int2[], $2::int8[], $3::int8[], $4::int8[]) AS r(shard, xid, n, ends)
             CROSS JOIN LATERAL (
                 SELECT 1 FROM {table} AS m WHERE m.shard = r.shard AND (m.xid, m.n) > (r.xid, r.n) AND m.xid < r.ends
                 LIMIT 1) AS needed)
         AND NOT EXISTS (
             SELECT 1 FROM unnest($5::int2[], $6::int8[]) AS d(shard, since)
             CROSS JOIN LATERAL (SELECT created_ms FROM {table} AS m WHERE m.shard = d.shard {newest}) AS m
             WHERE m.created_ms >= d.since)"
    )
}

impl Postgres {
    /// See [`sawmill_engine::storage::Log::trim`].
    pub(crate) async fn trim_topic(
        &self,
        topic: &Topic,
        upto: &[Vec<Position>],
        before: Timestamp,
    ) -> Result<Vec<u64>> {
        let id = topic_id(topic)?;
        // This also checks that the topic exists.
        self.current_tables().forget(id);
        let current = self.current_table(topic).await?;
        if upto.len() > usize::from(topic.shards) {
            return Err(topic.no_shard(topic.shards));
        }
        let mut dropped = vec![0; upto.len()];
        let columns = Columns::new(topic, upto, before)?;
        if columns.dated.is_empty() {
            return Ok(dropped);
        }
        if self.env().rng().below(FORGET_FINISHED_EVERY) == 0 {
            self.forget_finished().await?;
        }
        for (number, table) in message_tables(self.schema(), id).iter().enumerate() {
            let rows =
                self.query_topic(topic, Effect::Reads, &can_empty(table, true), &columns.params()).await?;
            if rows.first().is_some_and(|row| row.try_get(0).unwrap_or(false)) {
                // One at a time, because it keeps the server's disks busy.
                let Ok(_alone) = self.truncating().try_lock() else { continue };
                let emptied = self
                    .pool()
                    .with_own_connection(LIMIT, async |client| {
                        empty(client, self.schema(), topic, table, &columns).await
                    })
                    .await;
                match emptied {
                    Ok(counts) => {
                        for (shard, count) in counts {
                            if let Some(dropped) = dropped.get_mut(shard) {
                                *dropped += count;
                            }
                        }
                    }
                    // The table is in use; a later trim tries again.
                    Err(failure) if failure.is_locked() => {}
                    Err(failure) => return Err(topic_error(topic, failure, Effect::Writes)),
                }
            } else if number == current {
                self.rotate_tables(topic, current).await?;
            }
        }
        Ok(dropped)
    }

    /// Switches to the next table if that one is empty and the current one is large.
    async fn rotate_tables(&self, topic: &Topic, current: usize) -> Result<()> {
        let (schema, id) = (self.schema(), topic_id(topic)?);
        let tables = message_tables(schema, id);
        let next = (current + 1) % TABLES;
        let sql = format!(
            "UPDATE {schema}.topic SET current = $2 WHERE id = $1 AND current = $3
             AND pg_total_relation_size('{}') >= $4 AND NOT EXISTS (SELECT 1 FROM {})",
            tables[current], tables[next]
        );
        let (next, current) = (i32::try_from(next).unwrap_or(0), i32::try_from(current).unwrap_or(0));
        let params: [Param<'_>; 4] =
            [(&id, Type::INT8), (&next, Type::INT4), (&current, Type::INT4), (&FULL_BYTES, Type::INT8)];
        self.query_topic(topic, Effect::Writes, &sql, &params).await?;
        self.current_tables().forget(id);
        Ok(())
    }
}

/// The contents of a table when the transactions of this snapshot had ended, or a little later.
struct Contents {
    snapshot: Snapshot,
    /// The number of messages per shard.
    counts: Vec<(usize, u64)>,
    newest: i64,
}

impl Contents {
    async fn of(transaction: &Transaction<'_>, schema: &str, table: &str) -> Result<Self, Failure> {
        let sql = format!("SELECT pg_current_snapshot()::text, shift FROM {schema}.meta");
        let row = transaction.query_typed_one(&sql, &[]).await?;
        let snapshot = Snapshot::parse(row.try_get(0)?, row.try_get(1)?)
            .ok_or_else(|| corrupt("a snapshot that cannot be read".to_owned()))?;
        let sql = format!("SELECT shard::int8, sum(many)::int8, max(xid) FROM {table} GROUP BY shard");
        let (mut counts, mut newest) = (Vec::new(), 0);
        for row in transaction.query_typed(&sql, &[]).await? {
            let (shard, count, last): (i64, i64, i64) = (row.try_get(0)?, row.try_get(1)?, row.try_get(2)?);
            counts.push((usize::try_from(shard).unwrap_or(usize::MAX), count.unsigned_abs()));
            newest = newest.max(last);
        }
        Ok(Self { snapshot, counts, newest })
    }

    /// Returns true if nothing was written to the table since, by transactions that had ended or by others.
    async fn is_unchanged(
        &self,
        transaction: &Transaction<'_>,
        topic: &Topic,
        table: &str,
    ) -> Result<bool, Failure> {
        let new = ranges(&self.snapshot, None, None);
        let (from, ends): (Vec<i64>, Vec<i64>) = new.iter().map(|range| (range.after.0, range.end)).unzip();
        let shards = i32::from(topic.shards);
        let sql = format!(
            "SELECT NOT EXISTS (
                 SELECT 1 FROM generate_series(0, $1 - 1) AS s
                 CROSS JOIN unnest($2::int8[], $3::int8[]) AS r(xid, ends)
                 CROSS JOIN LATERAL (
                     SELECT 1 FROM {table} AS m WHERE m.shard = s::int2 AND m.xid >= r.xid AND m.xid < r.ends
                     LIMIT 1) AS new)"
        );
        let params: [Param<'_>; 3] =
            [(&shards, Type::INT4), (&from, Type::INT8_ARRAY), (&ends, Type::INT8_ARRAY)];
        Ok(transaction.query_typed_one(&sql, &params).await?.try_get(0)?)
    }
}

/// Truncates a table in which nothing is needed. Returns the number of messages per shard that it held.
///
/// All work that takes time per message happens while others read and write. The table is locked only to
/// check that nothing was added meanwhile, and to truncate it.
async fn empty(
    client: &mut Client,
    schema: &str,
    topic: &Topic,
    table: &str,
    needs: &Columns,
) -> Result<Vec<(usize, u64)>, Failure> {
    let id = topic_id(topic)?;
    let transaction = schema::begin(client).await?;
    transaction.batch_execute(&format!("SET LOCAL statement_timeout = {}", LIMIT.as_millis())).await?;
    let contents = Contents::of(&transaction, schema, table).await?;
    let row = transaction.query_typed_one(&can_empty(table, false), &needs.params()).await?;
    if !row.try_get::<_, bool>(0)? {
        return Ok(Vec::new());
    }
    // The ids of these messages need not be remembered any more.
    let known = known_table(schema, id);
    let forget = format!("DELETE FROM {known} AS k USING {table} AS m WHERE m.again AND k.id = m.id");
    transaction.batch_execute(&forget).await?;
    // With this lock nobody else writes to the table, and uncommitted writes would have prevented it. A
    // statement that waits for a lock blocks all others on the table, so it gives up soon.
    let lock = format!(
        "SET LOCAL lock_timeout = '200ms'; SET LOCAL statement_timeout = '5s';
         LOCK TABLE {table} IN ACCESS EXCLUSIVE MODE"
    );
    transaction.batch_execute(&lock).await?;
    if !contents.is_unchanged(&transaction, topic, table).await? {
        return Ok(Vec::new());
    }
    // Positions still refer to these transaction ids.
    schema::remember_newest(&transaction, schema, contents.newest).await?;
    transaction.batch_execute(&format!("TRUNCATE {table}")).await?;
    transaction.commit().await?;
    Ok(contents.counts)
}
