//! Dropping what nobody needs any more: not message by message, but a table at a time.
//!
//! A topic's messages take turns in a few tables. When nobody needs anything of one, it is emptied whole, which costs the
//! same whatever it held and leaves nothing to be cleaned up. Messages in a table that is needed in part stay until it is
//! not.

use std::time::Duration;

use sawmill::Result;
use sawmill::clock::Timestamp;
use sawmill::log::Position;
use sawmill::topic::Topic;
use tokio_postgres::types::Type;
use tokio_postgres::{Client, Transaction};

use crate::error::{Effect, Failure, corrupt};
use crate::place::Place;
use crate::pool::Param;
use crate::row::{from_shard, from_time};
use crate::schema;
use crate::snapshot::{Range, Snapshot, ranges};
use crate::store::{Postgres, about};
use crate::topics::{TABLES, known_table, message_tables, topic_id};

/// A table that has grown to so many bytes is written no more, as soon as another one is empty.
const FULL_BYTES: i64 = 8 << 20;

/// How long it may take to look at all messages of a table.
const LIMIT: Duration = Duration::from_secs(300);

/// Among so many trims there is one that also looks for what was finished long ago.
const FORGETTING: u64 = 10;

/// What is needed of a topic, as columns.
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
    /// Of a shard without positions everything is needed; of the others what lies after them, and what was created at this
    /// time or later.
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

/// Whether a table holds something and nothing of it is needed. How old its messages are is looked at one by one, or quickly:
/// at the newest of each shard only.
fn may_go(table: &str, quickly: bool) -> String {
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
    /// See [`sawmill::log::Log::trim`].
    pub(crate) async fn trim_topic(
        &self,
        topic: &Topic,
        upto: &[Vec<Position>],
        before: Timestamp,
    ) -> Result<Vec<u64>> {
        let id = topic_id(topic)?;
        // Also says whether the topic is there.
        self.turns().forget(id);
        let turn = self.turn(topic).await?;
        if upto.len() > usize::from(topic.shards) {
            return Err(topic.no_shard(topic.shards));
        }
        let mut dropped = vec![0; upto.len()];
        let columns = Columns::new(topic, upto, before)?;
        if columns.dated.is_empty() {
            return Ok(dropped);
        }
        if self.env().dice().below(FORGETTING) == 0 {
            self.forget_finished().await?;
        }
        for (number, table) in message_tables(self.schema(), id).iter().enumerate() {
            let rows =
                self.query_topic(topic, Effect::Reads, &may_go(table, true), &columns.params()).await?;
            if rows.first().is_some_and(|row| row.try_get(0).unwrap_or(false)) {
                // One at a time: it keeps the server's disks busy.
                let Ok(_alone) = self.emptying().try_lock() else { continue };
                let emptied = self
                    .pool()
                    .apart(LIMIT, async |client| empty(client, self.schema(), topic, table, &columns).await)
                    .await;
                match emptied {
                    Ok(counts) => {
                        for (shard, count) in counts {
                            if let Some(dropped) = dropped.get_mut(shard) {
                                *dropped += count;
                            }
                        }
                    }
                    // Somebody uses it. There will be another time.
                    Err(failure) if failure.is_locked() => {}
                    Err(failure) => return Err(about(topic, failure, Effect::Writes)),
                }
            } else if number == turn {
                self.turn_over(topic, turn).await?;
            }
        }
        Ok(dropped)
    }

    /// Lets the next table have its turn, if it is empty and this one is large.
    async fn turn_over(&self, topic: &Topic, turn: usize) -> Result<()> {
        let (schema, id) = (self.schema(), topic_id(topic)?);
        let tables = message_tables(schema, id);
        let next = (turn + 1) % TABLES;
        let sql = format!(
            "UPDATE {schema}.topic SET current = $2 WHERE id = $1 AND current = $3
             AND pg_total_relation_size('{}') >= $4 AND NOT EXISTS (SELECT 1 FROM {})",
            tables[turn], tables[next]
        );
        let (next, turn) = (i32::try_from(next).unwrap_or(0), i32::try_from(turn).unwrap_or(0));
        let params: [Param<'_>; 4] =
            [(&id, Type::INT8), (&next, Type::INT4), (&turn, Type::INT4), (&FULL_BYTES, Type::INT8)];
        self.query_topic(topic, Effect::Writes, &sql, &params).await?;
        self.turns().forget(id);
        Ok(())
    }
}

/// What a table holds, as it was when transactions of this snapshot were over, or a little later.
struct Contents {
    snapshot: Snapshot,
    /// How many messages of which shard.
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

    /// True if nothing was written to the table since, by those who were over then or by others.
    async fn are_all(
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

/// Empties a table of which nothing is needed, and says how many messages of which shards it held.
///
/// All that takes time for each message is done while others read and write. Only then is the table locked, for as long as it takes to see
/// that nothing was added meanwhile, and to throw it away.
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
    let row = transaction.query_typed_one(&may_go(table, false), &needs.params()).await?;
    if !row.try_get::<_, bool>(0)? {
        return Ok(Vec::new());
    }
    // Their ids need not be known any more.
    let known = known_table(schema, id);
    let forget = format!("DELETE FROM {known} AS k USING {table} AS m WHERE m.again AND k.id = m.id");
    transaction.batch_execute(&forget).await?;
    // Nobody writes to it from here on, and what was written and not committed would have kept us from getting here. Who
    // waits for a lock lets nobody else in: better to give up soon.
    let lock = format!(
        "SET LOCAL lock_timeout = '200ms'; SET LOCAL statement_timeout = '5s';
         LOCK TABLE {table} IN ACCESS EXCLUSIVE MODE"
    );
    transaction.batch_execute(&lock).await?;
    if !contents.are_all(&transaction, topic, table).await? {
        return Ok(Vec::new());
    }
    // Positions go on to speak of their numbers.
    schema::remember_newest(&transaction, schema, contents.newest).await?;
    transaction.batch_execute(&format!("TRUNCATE {table}")).await?;
    transaction.commit().await?;
    Ok(contents.counts)
}
