//! Creates, finds and deletes topics.

use std::time::Duration;

use mysql_async::Row;
use sawmill_engine::model::{MAX_SHARDS, Topic, TopicName, TopicSpec};

use crate::connection::connections::Connection;
use crate::connection::sql::Sql;
use crate::error::{Failure, code, corrupt};
use crate::log::row::{field, only, topic_id, uid};
use crate::schema::Tables;

const COLUMNS: &str = "id, name, shards, retention_ms, drops_unread";

/// See [`sawmill_engine::storage::Log::create_topic`].
pub(crate) async fn create(
    connection: &mut Connection,
    tables: &Tables,
    spec: &TopicSpec,
) -> Result<Topic, Failure> {
    if let Some(topic) = find(connection, tables, &spec.name).await? {
        return same(spec, topic);
    }
    match insert(connection, tables, spec).await {
        Ok(()) => {}
        // Another client has created it meanwhile.
        Err(failure) if failure.code() == Some(code::DUPLICATE) => connection.roll_back().await,
        Err(failure) => return Err(failure),
    }
    match find(connection, tables, &spec.name).await? {
        Some(topic) => same(spec, topic),
        None => Err(Failure::Lost("the topic was deleted while it was created".into())),
    }
}

fn same(spec: &TopicSpec, topic: Topic) -> Result<Topic, Failure> {
    if topic.shards == spec.shards { Ok(topic) } else { Err(spec.exists_with(topic.shards).into()) }
}

async fn insert(connection: &mut Connection, tables: &Tables, spec: &TopicSpec) -> Result<(), Failure> {
    let mut sql = Sql::new("START TRANSACTION");
    sql.then(format_args!(
        "INSERT INTO {} (name, shards, retention_ms, drops_unread) VALUES (",
        tables.topic
    ));
    sql.bytes(spec.name.to_string().as_bytes());
    let retention = u64::try_from(spec.retention.as_millis()).unwrap_or(FOR_EVER);
    sql.add(format_args!(",{},{retention},{})", spec.shards, u8::from(spec.drops_unread)));
    connection.begin(&mut sql).await?;
    let mut shards =
        Sql::new(format_args!("INSERT INTO {} (topic, number, last, kept, largest) VALUES ", tables.shard));
    shards.list(0..spec.shards, |sql, shard| sql.add(format_args!("(LAST_INSERT_ID(),{shard},0,0,0)")));
    connection.commit(shards).await.map(|_| ())
}

/// See [`sawmill_engine::storage::Log::topic`].
pub(crate) async fn find(
    connection: &mut Connection,
    tables: &Tables,
    name: &TopicName,
) -> Result<Option<Topic>, Failure> {
    let mut sql = Sql::new(format_args!("SELECT {COLUMNS} FROM {} WHERE name = ", tables.topic));
    sql.bytes(name.to_string().as_bytes());
    connection.ask(&sql).await?.pop().and_then(|answer| only(answer.rows)).map(topic).transpose()
}

/// See [`sawmill_engine::storage::Log::topics`].
pub(crate) async fn all(connection: &mut Connection, tables: &Tables) -> Result<Vec<Topic>, Failure> {
    let sql = Sql::new(format_args!("SELECT {COLUMNS} FROM {}", tables.topic));
    let topics = connection.ask(&sql).await?.pop().unwrap_or_default().rows.into_iter().map(topic);
    let mut topics = topics.collect::<Result<Vec<Topic>, Failure>>()?;
    topics.sort_by(|one, other| one.name.cmp(&other.name));
    Ok(topics)
}

/// The stored retention of a topic that keeps its messages for ever.
const FOR_EVER: u64 = u64::MAX;

fn topic(mut row: Row) -> Result<Topic, Failure> {
    let (id, name): (u64, Vec<u8>) = (field(&mut row, 0)?, field(&mut row, 1)?);
    let (shards, retention): (u16, u64) = (field(&mut row, 2)?, field(&mut row, 3)?);
    let name = String::from_utf8_lossy(&name);
    if !(1..=MAX_SHARDS).contains(&shards) {
        return Err(corrupt(format!("topic t{id} with {shards} shards")));
    }
    Ok(Topic {
        name: name.parse().map_err(|_| corrupt(format!("topic t{id} named {name:?}")))?,
        uid: uid(id),
        shards,
        retention: if retention == FOR_EVER { Duration::MAX } else { Duration::from_millis(retention) },
        drops_unread: field(&mut row, 4)?,
    })
}

/// Deletes the topic. Its messages become unreachable at once; [`sweep`](crate::log::trim::sweep) removes them
/// step by step.
///
/// The shards' counters are deleted with it: this waits for current holders, and later appends find none.
pub(crate) async fn delete(
    connection: &mut Connection,
    tables: &Tables,
    topic: &Topic,
) -> Result<bool, Failure> {
    let Ok(id) = topic_id(topic) else { return Ok(false) };
    let mut sql = Sql::new("START TRANSACTION");
    sql.then(format_args!("DELETE FROM {} WHERE id = {id}", tables.topic));
    let deleted = connection.begin(&mut sql).await?.pop().unwrap_or_default().changed > 0;
    let mut rest = Sql::new(format_args!("DELETE FROM {} WHERE topic = {id}", tables.shard));
    if deleted {
        rest.then(format_args!("INSERT INTO {} (topic) VALUES ({id})", tables.leftover));
    }
    connection.commit(rest).await?;
    Ok(deleted)
}
