//! Creates, finds and deletes topics. Each topic has its own tables.

use std::collections::HashMap;
use std::sync::Mutex;
use std::time::Duration;

use sawmill_engine::Result;
use sawmill_engine::model::{MAX_SHARDS, Topic, TopicName, TopicSpec};
use tokio_postgres::types::Type;
use tokio_postgres::{Client, Row};

use crate::error::{Effect, Failure, corrupt};
use crate::log::{append, read};
use crate::schema;
use crate::store::Postgres;

/// The number of message tables per topic. One is written; the others are read until nobody needs them, and
/// are then truncated.
pub(crate) const TABLES: usize = 3;

/// Extracts the id from the topic's uid. A uid that this engine did not create means a missing topic.
pub(crate) fn topic_id(topic: &Topic) -> Result<i64> {
    let id = topic.uid.strip_prefix('t').and_then(|digits| digits.parse().ok());
    // Accept only the canonical form, so no two uids mean the same topic.
    id.filter(|id| uid(*id) == topic.uid).ok_or_else(|| topic.missing())
}

fn uid(id: i64) -> String {
    format!("t{id}")
}

/// The message tables of a topic, which are written in turn.
pub(crate) fn message_tables(schema: &str, id: i64) -> [String; TABLES] {
    std::array::from_fn(|number| format!("{schema}.message_{id}_{number}"))
}

/// The table of a topic's messages that are not yet due.
pub(crate) fn aside_table(schema: &str, id: i64) -> String {
    format!("{schema}.aside_{id}")
}

/// The table of the ids of a topic's repeatable messages.
pub(crate) fn known_table(schema: &str, id: i64) -> String {
    format!("{schema}.known_{id}")
}

/// The table that each topic is written to, as far as this process knows. A stale value does no harm:
/// messages are read from all tables, and a table is never emptied while somebody writes to it.
#[derive(Default)]
pub(crate) struct CurrentTables(Mutex<HashMap<i64, CurrentTable>>);

struct CurrentTable {
    table: usize,
    uses_left: u32,
}

/// The number of appends after which the database is asked again.
const USES: u32 = 200;

impl CurrentTables {
    fn take(&self, id: i64) -> Option<usize> {
        let mut tables = self.0.lock().unwrap_or_else(|poisoned| poisoned.into_inner());
        let current = tables.get_mut(&id)?;
        current.uses_left = current.uses_left.checked_sub(1)?;
        Some(current.table)
    }

    fn set(&self, id: i64, table: usize) {
        let mut tables = self.0.lock().unwrap_or_else(|poisoned| poisoned.into_inner());
        tables.insert(id, CurrentTable { table, uses_left: USES });
    }

    /// Makes the next append ask the database.
    pub(crate) fn forget(&self, id: i64) {
        self.0.lock().unwrap_or_else(|poisoned| poisoned.into_inner()).remove(&id);
    }
}

impl Postgres {
    /// Returns the number of the table that a topic is written to.
    pub(crate) async fn current_table(&self, topic: &Topic) -> Result<usize> {
        let id = topic_id(topic)?;
        if let Some(table) = self.current_tables().take(id) {
            return Ok(table);
        }
        let sql = format!("SELECT current FROM {}.topic WHERE id = $1", self.schema());
        let rows = self.query(Effect::Reads, &sql, &[(&id, Type::INT8)]).await?;
        let row = rows.first().ok_or_else(|| topic.missing())?;
        let current: i32 = row.try_get(0).map_err(wrong_row)?;
        let table = usize::try_from(current).ok().filter(|table| *table < TABLES);
        let table = table.ok_or_else(|| corrupt(format!("topic {} with table {current}", topic.uid)))?;
        self.current_tables().set(id, table);
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
        self.current_tables().forget(id);
        self.transact(async |client| remove(client, self.schema(), id).await).await
    }
}

/// Creates a topic and its tables. Returns `None` if the name is taken.
async fn make(client: &mut Client, store: &Postgres, spec: &TopicSpec) -> Result<Option<Topic>, Failure> {
    let schema = store.schema();
    let transaction = schema::begin(client).await?;
    schema::lock(&transaction, schema).await?;
    let retention_ms = i64::try_from(spec.retention.as_millis()).unwrap_or(i64::MAX);
    let sql = format!(
        "INSERT INTO {schema}.topic (name, shards, retention_ms, drops_unread, current) VALUES ($1, $2, $3, $4, 0)
         ON CONFLICT (name) DO NOTHING RETURNING id, name, shards, retention_ms, drops_unread"
    );
    let params: [crate::connection::pool::Param<'_>; 4] = [
        (&spec.name.to_string(), Type::TEXT),
        (&i32::from(spec.shards), Type::INT4),
        (&retention_ms, Type::INT8),
        (&spec.drops_unread, Type::BOOL),
    ];
    let Some(row) = transaction.query_typed_opt(&sql, &params).await? else {
        return Ok(None);
    };
    let topic = topic(&row)?;
    // A process that opened a newer version would miss something in these tables.
    schema::check(&transaction, schema, store.version()).await?;
    transaction.batch_execute(&tables(schema, row.try_get(0)?)).await?;
    transaction.commit().await?;
    Ok(Some(topic))
}

/// The statements that create a topic's tables and functions.
///
/// Messages are found only by shard and order: every further index would add a cost per message. A row holds
/// one message, or `many` of them in a [pack](crate::log::pack), and carries the number of its last message.
/// Payloads are not compressed: for small ones compression costs more than it saves.
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
    // A statement that waits for a lock blocks all others on that table, so it gives up soon.
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

/// The error for a row with unexpected columns.
pub(crate) fn wrong_row(error: tokio_postgres::Error) -> sawmill_engine::Error {
    corrupt(format!("a row that cannot be read ({error})"))
}
