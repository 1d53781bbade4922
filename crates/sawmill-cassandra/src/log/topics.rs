//! Creates, finds and deletes topics. A topic keeps the settings with which it was created.

use std::sync::Arc;
use std::time::Duration;

use futures_util::future::join;
use sawmill_engine::model::{Topic, TopicName, TopicSpec};
use sawmill_engine::{Error, ErrorKind, Result};

use crate::error::{corrupt, of_read, unknown};
use crate::log::row::Kind;
use crate::store::{Cassandra, read};

/// The latest possible expiry, in seconds (2037): the server counts in 31 bits.
const LAST_EXPIRY: i64 = 2_145_000_000;

/// The settings with which a topic was created.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Shape {
    pub(crate) uid: String,
    pub(crate) shards: u16,
    bucket_ms: i64,
    settle_ms: i64,
    keep_s: i64,
}

impl Shape {
    /// The bucket of a time.
    pub(crate) fn bucket(&self, at: i64) -> i64 {
        at.div_euclid(self.bucket_ms)
    }

    /// How late rows may still arrive, in milliseconds.
    pub(crate) fn settle(&self) -> i64 {
        self.settle_ms
    }

    /// How long a push may take, and how far two clocks may be apart, in milliseconds.
    pub(crate) fn slack(&self) -> i64 {
        self.settle_ms * 2 / 5
    }

    /// The time to live of a row with this time, in seconds; 0 if it never expires.
    pub(crate) fn ttl(&self, at: i64, wall: i64) -> i32 {
        let ttl = self.keep_s.saturating_add(at.saturating_sub(wall).max(0) / 1000).max(1);
        if wall / 1000 + ttl.min(LAST_EXPIRY) > LAST_EXPIRY { 0 } else { i32::try_from(ttl).unwrap_or(0) }
    }
}

type Row = (String, i32, i64, bool, i64, i64, i64);

fn topic_of(
    name: &TopicName,
    uid: String,
    shards: i32,
    retention_ms: i64,
    drops_unread: bool,
) -> Result<Topic> {
    Ok(Topic {
        name: name.clone(),
        uid,
        shards: u16::try_from(shards).map_err(|_| corrupt(format!("topic {name} with {shards} shards")))?,
        retention: Duration::from_millis(u64::try_from(retention_ms).unwrap_or_default()),
        drops_unread,
    })
}

fn millis(duration: Duration) -> i64 {
    i64::try_from(duration.as_millis()).unwrap_or(i64::MAX)
}

impl Cassandra {
    pub(crate) async fn make_topic(&self, spec: &TopicSpec) -> Result<Topic> {
        spec.check()?;
        if let Some(topic) = self.get_topic(&spec.name).await? {
            return check_shards(spec, topic);
        }
        let topic_defaults = self.topic_defaults();
        let keep = if spec.drops_unread { spec.retention } else { spec.retention.max(topic_defaults.keep) };
        let rng = self.env().rng();
        let uid = format!("{:016x}{:016x}", rng.next_u64(), rng.next_u64());
        let (name, retention) = (spec.name.to_string(), millis(spec.retention));
        let (shards, keep) =
            (i32::from(spec.shards), (millis(keep.max(topic_defaults.settle)) / 1000).max(1));
        let values = (
            (self.namespace(), &name, &uid, shards, retention),
            (spec.drops_unread, millis(topic_defaults.bucket), millis(topic_defaults.settle), keep),
        );
        let ((a, b, c, d, e), (f, g, h, i)) = values;
        match self.link().transact(&self.link().statements.topic_make, (a, b, c, d, e, f, g, h, i)).await {
            Ok(true) => topic_of(&spec.name, uid, shards, retention, spec.drops_unread),
            // Another process has created it, or this one in an earlier attempt: a serial read tells.
            Ok(false) => self.decided(spec, None).await,
            Err(failure) if failure.is_unknown() => self.decided(spec, Some(failure.into())).await,
            Err(failure) => Err(failure.into()),
        }
    }

    async fn decided(&self, spec: &TopicSpec, otherwise: Option<Error>) -> Result<Topic> {
        let statement = &self.link().statements.topic_get_serial;
        let rows = self.link().execute(statement, (self.namespace(), spec.name.to_string())).await;
        let row = read(rows.and_then(crate::connection::link::Answer::rows::<Row>))?.into_iter().next();
        match row {
            Some((uid, shards, retention, drops, ..)) => {
                check_shards(spec, topic_of(&spec.name, uid, shards, retention, drops)?)
            }
            None => Err(otherwise.unwrap_or_else(|| {
                unknown(format!("topic {} was made and deleted at the same time", spec.name))
            })),
        }
    }

    pub(crate) async fn get_topic(&self, name: &TopicName) -> Result<Option<Topic>> {
        match self.topic_row(&name.to_string()).await? {
            Some((uid, shards, retention, drops, ..)) => {
                Ok(Some(topic_of(name, uid, shards, retention, drops)?))
            }
            None => Ok(None),
        }
    }

    async fn topic_row(&self, name: &str) -> Result<Option<Row>> {
        let rows = self.link().execute(&self.link().statements.topic_get, (self.namespace(), name)).await;
        Ok(read(rows.and_then(crate::connection::link::Answer::rows::<Row>))?.into_iter().next())
    }

    pub(crate) async fn list_topics(&self) -> Result<Vec<Topic>> {
        let rows = self.link().all(&self.link().statements.topic_list, (self.namespace(),)).await;
        let rows: Vec<(String, String, i32, i64, bool)> = read(rows)?;
        let mut topics = Vec::new();
        for (name, uid, shards, retention, drops) in rows {
            let name = name.parse().map_err(|_| corrupt(format!("a topic named {name:?}")))?;
            topics.push(topic_of(&name, uid, shards, retention, drops)?);
        }
        topics.sort_by(|a, b| a.name.cmp(&b.name));
        Ok(topics)
    }

    pub(crate) async fn drop_topic(&self, topic: &Topic) -> Result<bool> {
        let shape = match self.check(topic).await {
            Ok(shape) => shape,
            Err(error) if error.kind() == ErrorKind::NotFound => return Ok(false),
            Err(error) => return Err(error),
        };
        let values = (self.namespace(), topic.name.to_string(), &topic.uid);
        let dropped = self.link().transact(&self.link().statements.topic_drop, values).await?;
        self.forget(&topic.uid);
        if dropped {
            let _ =
                self.link().execute(&self.link().statements.pulse_drop, (self.namespace(), &topic.uid)).await;
            // Rows that cannot be deleted now expire.
            if let Err(error) = self.drop_rows(&shape).await {
                tracing::debug!(%error, topic = %topic.name, "rows of a deleted topic could not be deleted and expire later");
            }
        }
        Ok(dropped)
    }

    async fn drop_rows(&self, shape: &Shape) -> Result<()> {
        for kind in Kind::BOTH {
            let listed = (&shape.uid, kind.number(), i64::MIN, i64::MAX);
            let buckets: Vec<(i64, i32)> =
                self.link().all(&self.link().statements.bucket_list, listed).await.map_err(of_read)?;
            for (bucket, shard) in buckets {
                let values = (&shape.uid, bucket, shard, kind.number());
                self.link().execute(&self.link().statements.rows_drop, values).await?;
            }
        }
        Ok(())
    }

    /// Reads the settings of a topic, and fails if the topic is gone.
    pub(crate) async fn check(&self, topic: &Topic) -> Result<Arc<Shape>> {
        let row = self.topic_row(&topic.name.to_string()).await?;
        let Some((uid, shards, _, _, bucket_ms, settle_ms, keep_s)) = row.filter(|row| row.0 == topic.uid)
        else {
            self.forget(&topic.uid);
            return Err(topic.missing());
        };
        let odd = || corrupt(format!("topic {} with invalid settings", topic.name));
        let shards = u16::try_from(shards).map_err(|_| odd())?;
        if bucket_ms < 1 || settle_ms < 1 || keep_s < 1 {
            return Err(odd());
        }
        let shape = Arc::new(Shape { uid, shards, bucket_ms, settle_ms, keep_s });
        self.shapes().insert(topic.uid.clone(), shape.clone());
        Ok(shape)
    }

    /// Runs a read of a topic while checking that the topic still exists.
    pub(crate) async fn read_with_check<T>(
        &self,
        topic: &Topic,
        work: impl AsyncFnOnce(&Shape) -> Result<T>,
    ) -> Result<T> {
        let (there, done) = self.with_check(topic, work).await?;
        there?;
        done
    }

    /// Runs a change of a topic while checking that the topic still exists.
    pub(crate) async fn change_with_check<T>(
        &self,
        topic: &Topic,
        work: impl AsyncFnOnce(&Shape) -> Result<T>,
    ) -> Result<T> {
        let (there, done) = self.with_check(topic, work).await?;
        changed(there, done)
    }

    async fn with_check<T>(
        &self,
        topic: &Topic,
        work: impl AsyncFnOnce(&Shape) -> Result<T>,
    ) -> Result<(Result<()>, Result<T>)> {
        let (shape, known) = self.shape(topic).await?;
        let still_there = async {
            match known {
                true => self.check(topic).await.map(drop),
                false => Ok(()),
            }
        };
        Ok(join(still_there, work(&shape)).await)
    }

    /// The settings of a topic, from the cache if they are known. Also returns whether they were.
    pub(crate) async fn shape(&self, topic: &Topic) -> Result<(Arc<Shape>, bool)> {
        let known = self.shapes().get(&topic.uid).cloned();
        match known {
            Some(shape) => Ok((shape, true)),
            None => Ok((self.check(topic).await?, false)),
        }
    }
}

/// The result of a change, given the result of the topic check and of the change itself.
fn changed<T>(there: Result<()>, done: Result<T>) -> Result<T> {
    match (there, done) {
        (Err(missing), _) if missing.kind() == ErrorKind::NotFound => Err(missing),
        // The change was made, in a topic that may be gone.
        (Err(error), Ok(_)) => Err(unknown(error)),
        (_, done) => done,
    }
}

fn check_shards(spec: &TopicSpec, topic: Topic) -> Result<Topic> {
    if topic.shards == spec.shards { Ok(topic) } else { Err(spec.exists_with(topic.shards)) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rows_expire_after_they_were_due_and_never_before() {
        let shape =
            Shape { uid: String::new(), shards: 1, bucket_ms: 60_000, settle_ms: 10_000, keep_s: 100 };
        let now = 1_794_000_000_000;
        assert_eq!(shape.ttl(now, now), 100);
        assert_eq!(shape.ttl(now - 5000, now), 100);
        assert_eq!(shape.ttl(now + 3_600_000, now), 3700);
        assert_eq!(shape.ttl(now + 100 * 365 * 86_400_000, now), 0);
        assert_eq!(shape.ttl(i64::MAX, now), 0);
        assert_eq!((shape.bucket(59_999), shape.bucket(60_000), shape.bucket(-1)), (0, 1, -1));
        assert_eq!(shape.slack(), 4000);
    }

    #[test]
    fn a_change_that_is_done_is_not_said_to_be_undone_because_the_topic_could_not_be_looked_up() {
        let error = |kind| Error::new(kind, "no");
        let kind = |there: Result<()>, done: Result<()>| changed(there, done).map_err(|error| error.kind());
        let (missing, busy) = (ErrorKind::NotFound, ErrorKind::Unavailable);
        assert_eq!(kind(Ok(()), Ok(())), Ok(()));
        assert_eq!(
            kind(Err(error(missing)), Ok(())),
            Err(missing),
            "a change in a missing topic has no effect"
        );
        assert_eq!(kind(Err(error(busy)), Ok(())), Err(ErrorKind::Unknown));
        assert_eq!(kind(Err(error(busy)), Err(error(ErrorKind::Unknown))), Err(ErrorKind::Unknown));
        assert_eq!(kind(Err(error(busy)), Err(error(ErrorKind::TooLarge))), Err(ErrorKind::TooLarge));
    }
}
