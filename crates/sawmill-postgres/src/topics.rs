//! Topics: creating, finding and deleting them, each with tables of its own.

use std::collections::HashMap;
use std::sync::Mutex;
use std::time::Duration;

use sawmill::Result;
use sawmill::topic::{MAX_SHARDS, Topic, TopicName, TopicSpec};
use tokio_postgres::types::Type;
use tokio_postgres::{Client, Row};

use crate::error::{Effect, Failure, corrupt};
use crate::store::Postgres;
use crate::{append, read, schema};

/// How many tables a topic's messages take turns in: one is written, others are read until nobody needs them, and are
/// then emptied whole.
pub(crate) const TABLES: usize = 3;

/// The id that the topic's uid was made from. A uid that this engine did not make is a topic that is not there.
pub(crate) fn topic_id(topic: &Topic) -> Result<i64> {
    let id = topic.uid.strip_prefix('t').and_then(|digits| digits.parse().ok());
    // Only the usual way to write it, so that no two uids mean the same topic.
    id.filter(|id| uid(*id) == topic.uid).ok_or_else(|| topic.missing())
}

fn uid(id: i64) -> String {
    format!("t{id}")
}

/// The tables that a topic's messages take turns in.
pub(crate) fn message_tables(schema: &str, id: i64) -> [String; TABLES] {
    std::array::from_fn(|turn| format!("{schema}.message_{id}_{turn}"))
}

/// The table of a topic's messages that are not due.
pub(crate) fn aside_table(schema: &str, id: i64) -> String {
    format!("{schema}.aside_{id}")
}

/// The table of the ids of a topic's messages that may be appended again.
pub(crate) fn known_table(schema: &str, id: i64) -> String {
    format!("{schema}.known_{id}")
}

/// Which table of each topic is written to, as far as this process knows. To be wrong does no harm: messages are read from
/// all tables, and none is emptied while somebody writes to it.
#[derive(Default)]
pub(crate) struct Turns(Mutex<HashMap<i64, Turn>>);

struct Turn {
    table: usize,
    uses_left: u32,
}

/// After so many appends the database is asked again.
const USES: u32 = 200;

impl Turns {
    fn take(&self, id: i64) -> Option<usize> {
        let mut turns = self.0.lock().unwrap_or_else(|poisoned| poisoned.into_inner());
        let turn = turns.get_mut(&id)?;
        turn.uses_left = turn.uses_left.checked_sub(1)?;
        Some(turn.table)
    }

    fn set(&self, id: i64, table: usize) {
        let mut turns = self.0.lock().unwrap_or_else(|poisoned| poisoned.into_inner());
        turns.insert(id, Turn { table, uses_left: USES });
    }

    /// The next append asks the database.
    pub(crate) fn forget(&self, id: i64) {
        self.0.lock().unwrap_or_else(|poisoned| poisoned.into_inner()).remove(&id);
    }
}

impl Postgres {
    /// Which of its tables a topic is written to.
    pub(crate) async fn turn(&self, topic: &Topic) -> Result<usize> {
        let id = topic_id(topic)?;
        if let Some(table) = self.turns().take(id) {
            return Ok(table);
        }
        let sql = format!("SELECT current FROM {}.topic WHERE id = $1", self.schema());
        let rows = self.query(Effect::Reads, &sql, &[(&id, Type::INT8)]).await?;
        let row = rows.first().ok_or_else(|| topic.missing())?;
        let current: i32 = row.try_get(0).map_err(wrong_row)?;
        let table = usize::try_from(current).ok().filter(|table| *table < TABLES);
        let table = table.ok_or_else(|| corrupt(format!("topic {} with table {current}", topic.uid)))?;
        self.turns().set(id, table);
        Ok(table)
    }

    pub(crate) async fn find_topics(&self, name: Option<&TopicName>) -> Result<Vec<Topic>> {
        let sql = format!(
            "SELECT id, name, shards, retention_ms, drops_unread FROM {}.topic WHERE $1 IS NULL OR name = $1 ORDER BY name",
            self.schema()
        );
        let name = name.map(TopicName::to_string);
        let rows = self.query(Effect::Reads, &sql, &[(&name, Type::TEXT)]).await?;
        let mut topics = rows.iter().map(topic).collect::<Result<Vec<Topic>>>()?;
        topics.sort_by(|one, other| one.name.cmp(&other.name));
        Ok(topics)
    }

    pub(crate) async fn make_topic(&self, spec: &TopicSpec) -> Result<Topic> {
        let made = self.transact(async |client| make(client, self, spec).await).await?;
        match made {
            Some(topic) => Ok(topic),
            None => match self.find_topics(Some(&spec.name)).await?.pop() {
                Some(topic) if topic.shards == spec.shards => Ok(topic),
                Some(topic) => Err(spec.exists_with(topic.shards)),
                None => Err(corrupt(format!("topic {}, which comes and goes", spec.name))),
            },
        }
    }

    pub(crate) async fn remove_topic(&self, topic: &Topic) -> Result<bool> {
        let Ok(id) = topic_id(topic) else { return Ok(false) };
        self.turns().forget(id);
        self.transact(async |client| remove(client, self.schema(), id).await).await
    }
}

/// Makes a topic and its tables; `None` if there is one of its name.
async fn make(client: &mut Client, store: &Postgres, spec: &TopicSpec) -> Result<Option<Topic>, Failure> {
    let schema = store.schema();
    let transaction = schema::begin(client).await?;
    schema::lock(&transaction, schema).await?;
    let retention_ms = i64::try_from(spec.retention.as_millis()).unwrap_or(i64::MAX);
    let sql = format!(
        "INSERT INTO {schema}.topic (name, shards, retention_ms, drops_unread, current) VALUES ($1, $2, $3, $4, 0)
         ON CONFLICT (name) DO NOTHING RETURNING id, name, shards, retention_ms, drops_unread"
    );
    let params: [crate::pool::Param<'_>; 4] = [
        (&spec.name.to_string(), Type::TEXT),
        (&i32::from(spec.shards), Type::INT4),
        (&retention_ms, Type::INT8),
        (&spec.drops_unread, Type::BOOL),
    ];
    let Some(row) = transaction.query_typed_opt(&sql, &params).await? else {
        return Ok(None);
    };
    let topic = topic(&row)?;
    // Those who opened a newer version would not find in these tables what they look for.
    schema::check(&transaction, schema, store.version()).await?;
    transaction.batch_execute(&tables(schema, row.try_get(0)?)).await?;
    transaction.commit().await?;
    Ok(Some(topic))
}

/// Messages are found by shard and in order, and by nothing else: every further index would cost each of them. A row holds one, or
/// `many` in a [pack](crate::pack); it has the number of its last.
/// Payloads are not compressed, which would cost more than it saves on small ones.
fn tables(schema: &str, id: i64) -> String {
    const COLUMNS: &str = "shard int2 NOT NULL, id uuid NOT NULL, created_ms int8 NOT NULL, due_ms int8,
        again bool NOT NULL, key bytea, headers bytea, payload bytea NOT NULL";
    let plain = |table: &str| format!("ALTER TABLE {table} ALTER payload SET STORAGE EXTERNAL;");
    let mut sql = String::new();
    for table in message_tables(schema, id) {
        sql += &format!(
            "CREATE TABLE {table} (xid int8 NOT NULL, n int8 NOT NULL, {COLUMNS}, many int4 NOT NULL DEFAULT 1);"
        );
        sql += &format!("CREATE INDEX ON {table} (shard, xid, n); {}", plain(&table));
    }
    let (aside, known) = (aside_table(schema, id), known_table(schema, id));
    sql += &format!("CREATE TABLE {aside} (seq int8 GENERATED ALWAYS AS IDENTITY PRIMARY KEY, {COLUMNS});");
    sql += &format!("CREATE INDEX ON {aside} (due_ms, seq); {}", plain(&aside));
    sql += &format!("CREATE TABLE {known} (id uuid PRIMARY KEY);");
    sql + &read::make_function(schema, id) + &append::make_function(schema, id)
}

async fn remove(client: &mut Client, schema: &str, id: i64) -> Result<bool, Failure> {
    let transaction = schema::begin(client).await?;
    schema::lock(&transaction, schema).await?;
    let sql = format!("DELETE FROM {schema}.topic WHERE id = $1");
    if transaction.execute_typed(&sql, &[(&id, Type::INT8)]).await? == 0 {
        return Ok(false);
    }
    // Who waits for a lock on a table lets nobody else use it: better to give up soon.
    let mut sql = "SET LOCAL lock_timeout = '5s';".to_owned();
    for function in [read::function(schema, id), append::function(schema, id)] {
        sql += &format!("DROP FUNCTION {function};");
    }
    for table in message_tables(schema, id) {
        sql += &format!("DROP TABLE {table};");
    }
    sql += &format!("DROP TABLE {}; DROP TABLE {};", aside_table(schema, id), known_table(schema, id));
    transaction.batch_execute(&sql).await?;
    transaction.commit().await?;
    Ok(true)
}

fn topic(row: &Row) -> Result<Topic> {
    let read = || -> Result<(i64, String, i32, i64, bool), tokio_postgres::Error> {
        Ok((row.try_get(0)?, row.try_get(1)?, row.try_get(2)?, row.try_get(3)?, row.try_get(4)?))
    };
    let (id, name, shards, retention_ms, drops_unread) = read().map_err(wrong_row)?;
    let wrong =
        || corrupt(format!("topic t{id} named {name:?} with {shards} shards and retention {retention_ms}"));
    let retention = match u64::try_from(retention_ms) {
        Ok(ms) if retention_ms < i64::MAX => Duration::from_millis(ms),
        Ok(_) => Duration::MAX,
        Err(_) => return Err(wrong()),
    };
    Ok(Topic {
        name: name.parse().map_err(|_| wrong())?,
        uid: uid(id),
        shards: u16::try_from(shards)
            .ok()
            .filter(|shards| (1..=MAX_SHARDS).contains(shards))
            .ok_or_else(wrong)?,
        retention,
        drops_unread,
    })
}

/// The error of a row whose columns are not what they should be.
pub(crate) fn wrong_row(error: tokio_postgres::Error) -> sawmill::Error {
    corrupt(format!("a row that cannot be read ({error})"))
}
