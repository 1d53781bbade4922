//! Dropping what nobody needs any more: not message by message, but a table at a time.
//!
//! A topic's messages take turns in a few tables. When nobody needs anything of one, it is emptied whole, which costs the
//! same whatever it held and leaves nothing to be cleaned up. Messages in a table that is needed in part stay until it is
//! not.

use std::collections::HashMap;
use std::sync::Mutex;

use sawmill::Result;
use sawmill::clock::Timestamp;
use sawmill::log::Position;
use sawmill::topic::Topic;
use tokio_postgres::Client;
use tokio_postgres::types::Type;

use crate::error::{Effect, Failure};
use crate::place::Place;
use crate::pool::Param;
use crate::row::from_time;
use crate::schema;
use crate::store::{Postgres, about};
use crate::topics::{TABLES, known_table, message_tables, topic_id};

/// A table that has grown to so many bytes is written no more, as soon as another one is empty.
const FULL_BYTES: i64 = 8 << 20;

/// What this process was told of each shard: how far all are past it, and how old what is dropped must be.
#[derive(Default)]
pub(crate) struct Passed(Mutex<HashMap<i64, Limits>>);

#[derive(Debug, Clone, Default)]
struct Limits {
    /// For each shard: transactions before this one may go, if they were created before that time.
    shards: HashMap<u16, (i64, i64)>,
}

impl Passed {
    fn note(&self, id: i64, shard: u16, below: i64, before: i64) -> Limits {
        let mut passed = self.0.lock().unwrap_or_else(|poisoned| poisoned.into_inner());
        let limits = passed.entry(id).or_default();
        limits.shards.insert(shard, (below, before));
        limits.clone()
    }
}

impl Postgres {
    /// See [`sawmill::log::Log::trim`].
    pub(crate) async fn trim_shard(
        &self,
        topic: &Topic,
        shard: u16,
        upto: &[Position],
        before: Timestamp,
    ) -> Result<u64> {
        let id = topic_id(topic)?;
        // Also says whether the topic is there.
        self.turns().forget(id);
        let turn = self.turn(topic).await?;
        if shard >= topic.shards {
            return Err(topic.no_shard(shard));
        }
        let places = upto.iter().map(Place::of).collect::<Result<Vec<Place>>>()?;
        let Some(below) = places.iter().map(Place::first_after).min() else { return Ok(0) };
        let limits = self.passed().note(id, shard, below, from_time(before));
        let mut dropped = 0;
        for (number, table) in message_tables(self.schema(), id).iter().enumerate() {
            if self.is_passed(topic, table, &limits).await? {
                let lease = self.lease().await?;
                let known = known_table(self.schema(), id);
                let emptied = lease.bounded(async |client| empty(client, table, &known, &limits).await).await;
                match emptied {
                    Ok(count) => dropped += count,
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

    /// True if a table holds something, and of each shard the newest that it holds may go: a quick look, before all of it is
    /// looked at.
    async fn is_passed(&self, topic: &Topic, table: &str, limits: &Limits) -> Result<bool> {
        let (shards, below, before) = limits.columns();
        let sql = format!(
            "SELECT count(*) > 0 AND coalesce(bool_and(f.xid < l.below AND f.created_ms < l.before), false)
             FROM generate_series(0, $4 - 1) AS s
             CROSS JOIN LATERAL (
                 SELECT xid, created_ms FROM {table} WHERE shard = s ORDER BY xid DESC, n DESC LIMIT 1) AS f
             LEFT JOIN unnest($1::int2[], $2::int8[], $3::int8[]) AS l(shard, below, before) ON l.shard = s"
        );
        let params: [Param<'_>; 4] = [
            (&shards, Type::INT2_ARRAY),
            (&below, Type::INT8_ARRAY),
            (&before, Type::INT8_ARRAY),
            (&i32::from(topic.shards), Type::INT4),
        ];
        let rows = self.query_topic(topic, Effect::Reads, &sql, &params).await?;
        // A shard of which nothing was said makes the answer unknown, which is no.
        Ok(rows.first().is_some_and(|row| row.try_get(0).unwrap_or(false)))
    }

    /// Lets the next table have its turn, if it is empty and this one is large.
    async fn turn_over(&self, topic: &Topic, turn: usize) -> Result<()> {
        let (schema, id) = (self.schema(), topic_id(topic)?);
        let tables = message_tables(schema, id);
        let next = (turn + 1) % TABLES;
        let sql = format!(
            "UPDATE {schema}.topic SET current = $2 WHERE id = $1 AND current = $3
             AND pg_relation_size('{}') >= $4 AND NOT EXISTS (SELECT 1 FROM {})",
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

impl Limits {
    fn columns(&self) -> (Vec<i16>, Vec<i64>, Vec<i64>) {
        let mut columns = (Vec::new(), Vec::new(), Vec::new());
        for (shard, (below, before)) in &self.shards {
            columns.0.push(crate::row::from_shard(*shard));
            columns.1.push(*below);
            columns.2.push(*before);
        }
        columns
    }
}

/// Empties a table of which nothing is needed, and says how many messages it held.
async fn empty(client: &mut Client, table: &str, known: &str, limits: &Limits) -> Result<u64, Failure> {
    let transaction = schema::begin(client).await?;
    // Nobody writes to it from here on, and what was written and not committed would have kept us from getting here. Who
    // waits for a lock lets nobody else in: better to give up soon.
    transaction.batch_execute("SET LOCAL lock_timeout = '200ms'").await?;
    transaction.batch_execute(&format!("LOCK TABLE {table} IN ACCESS EXCLUSIVE MODE")).await?;
    let (shards, below, before) = limits.columns();
    let sql = format!(
        "SELECT count(*), count(*) FILTER (WHERE l.shard IS NOT NULL AND xid < below AND created_ms < before)
         FROM {table} AS m LEFT JOIN unnest($1::int2[], $2::int8[], $3::int8[]) AS l(shard, below, before) USING (shard)"
    );
    let params: [Param<'_>; 3] =
        [(&shards, Type::INT2_ARRAY), (&below, Type::INT8_ARRAY), (&before, Type::INT8_ARRAY)];
    let row = transaction.query_typed_one(&sql, &params).await?;
    let (all, passed): (i64, i64) = (row.try_get(0)?, row.try_get(1)?);
    if all != passed {
        return Ok(0);
    }
    // Their ids need not be known any more.
    let forget = format!(
        "DELETE FROM {known} AS k USING {table} AS m WHERE m.again AND k.id = m.id; TRUNCATE {table}"
    );
    transaction.batch_execute(&forget).await?;
    transaction.commit().await?;
    Ok(all.unsigned_abs())
}
