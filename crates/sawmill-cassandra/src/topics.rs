//! Topics: made once however often and by however many, with the settings that they keep.

use std::sync::Arc;
use std::time::Duration;

use futures_util::future::join;
use sawmill::{Error, ErrorKind, Result, Topic, TopicName, TopicSpec};

use crate::error::{corrupt, of_read, unknown};
use crate::row::Kind;
use crate::store::{Cassandra, read};

/// A time after which no row can expire, because the server counts in 31 bits: 2037, in seconds.
const LAST_EXPIRY: i64 = 2_145_000_000;

/// What a topic was made with.
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

    /// How far behind now rows may still arrive.
    pub(crate) fn settle(&self) -> i64 {
        self.settle_ms
    }

    /// How long a push may take, and how far two clocks may be apart.
    pub(crate) fn slack(&self) -> i64 {
        self.settle_ms * 2 / 5
    }

    /// In how many seconds a row of this time expires; 0 if it never does.
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
            return as_wished(spec, topic);
        }
        let making = self.making();
        let keep = if spec.drops_unread { spec.retention } else { spec.retention.max(making.keep) };
        let dice = self.env().dice();
        let uid = format!("{:016x}{:016x}", dice.roll(), dice.roll());
        let (name, retention) = (spec.name.to_string(), millis(spec.retention));
        let (shards, keep) = (i32::from(spec.shards), (millis(keep.max(making.settle)) / 1000).max(1));
        let values = (
            (self.namespace(), &name, &uid, shards, retention),
            (spec.drops_unread, millis(making.bucket), millis(making.settle), keep),
        );
        let ((a, b, c, d, e), (f, g, h, i)) = values;
        match self.link().decide(&self.link().say.topic_make, (a, b, c, d, e, f, g, h, i)).await {
            Ok(true) => topic_of(&spec.name, uid, shards, retention, spec.drops_unread),
            // Another was faster, or this one: a read that leaves nothing undecided tells.
            Ok(false) => self.decided(spec, None).await,
            Err(trouble) if trouble.is_unknown() => self.decided(spec, Some(trouble.into())).await,
            Err(trouble) => Err(trouble.into()),
        }
    }

    async fn decided(&self, spec: &TopicSpec, otherwise: Option<Error>) -> Result<Topic> {
        let say = &self.link().say.topic_get_sure;
        let rows = self.link().ask(say, (self.namespace(), spec.name.to_string())).await;
        let row = read(rows.and_then(crate::link::Answer::rows::<Row>))?.into_iter().next();
        match row {
            Some((uid, shards, retention, drops, ..)) => {
                as_wished(spec, topic_of(&spec.name, uid, shards, retention, drops)?)
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
        let rows = self.link().ask(&self.link().say.topic_get, (self.namespace(), name)).await;
        Ok(read(rows.and_then(crate::link::Answer::rows::<Row>))?.into_iter().next())
    }

    pub(crate) async fn list_topics(&self) -> Result<Vec<Topic>> {
        let rows = self.link().all(&self.link().say.topic_list, (self.namespace(),)).await;
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
        let dropped = self.link().decide(&self.link().say.topic_drop, values).await?;
        self.forget(&topic.uid);
        if dropped {
            let _ = self.link().ask(&self.link().say.pulse_drop, (self.namespace(), &topic.uid)).await;
            // What cannot be removed now expires.
            if let Err(error) = self.drop_rows(&shape).await {
                tracing::debug!(%error, topic = %topic.name, "what a deleted topic has left expires later");
            }
        }
        Ok(dropped)
    }

    async fn drop_rows(&self, shape: &Shape) -> Result<()> {
        for kind in Kind::BOTH {
            let listed = (&shape.uid, kind.number(), i64::MIN, i64::MAX);
            let buckets: Vec<(i64, i32)> =
                self.link().all(&self.link().say.bucket_list, listed).await.map_err(of_read)?;
            for (bucket, shard) in buckets {
                let values = (&shape.uid, bucket, shard, kind.number());
                self.link().ask(&self.link().say.rows_drop, values).await?;
            }
        }
        Ok(())
    }

    /// What the topic was made with, if it is still there.
    pub(crate) async fn check(&self, topic: &Topic) -> Result<Arc<Shape>> {
        let row = self.topic_row(&topic.name.to_string()).await?;
        let Some((uid, shards, _, _, bucket_ms, settle_ms, keep_s)) = row.filter(|row| row.0 == topic.uid)
        else {
            self.forget(&topic.uid);
            return Err(topic.missing());
        };
        let odd = || corrupt(format!("topic {} with settings that cannot be", topic.name));
        let shards = u16::try_from(shards).map_err(|_| odd())?;
        if bucket_ms < 1 || settle_ms < 1 || keep_s < 1 {
            return Err(odd());
        }
        let shape = Arc::new(Shape { uid, shards, bucket_ms, settle_ms, keep_s });
        self.shapes().insert(topic.uid.clone(), shape.clone());
        Ok(shape)
    }

    /// Reads something of a topic of which it is looked up meanwhile whether it is still there.
    pub(crate) async fn meanwhile_check<T>(
        &self,
        topic: &Topic,
        work: impl AsyncFnOnce(&Shape) -> Result<T>,
    ) -> Result<T> {
        let (there, done) = self.both(topic, work).await?;
        there?;
        done
    }

    /// The same, with what changes something.
    pub(crate) async fn change_meanwhile_check<T>(
        &self,
        topic: &Topic,
        work: impl AsyncFnOnce(&Shape) -> Result<T>,
    ) -> Result<T> {
        let (there, done) = self.both(topic, work).await?;
        changed(there, done)
    }

    async fn both<T>(
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

    /// What the topic was made with, without asking again.
    pub(crate) async fn shape(&self, topic: &Topic) -> Result<(Arc<Shape>, bool)> {
        let known = self.shapes().get(&topic.uid).cloned();
        match known {
            Some(shape) => Ok((shape, true)),
            None => Ok((self.check(topic).await?, false)),
        }
    }
}

/// How a change ended, by whether the topic is still there and by how the change itself did.
fn changed<T>(there: Result<()>, done: Result<T>) -> Result<T> {
    match (there, done) {
        (Err(missing), _) if missing.kind() == ErrorKind::NotFound => Err(missing),
        // It is done, in a topic that may be gone.
        (Err(error), Ok(_)) => Err(unknown(error)),
        (_, done) => done,
    }
}

fn as_wished(spec: &TopicSpec, topic: Topic) -> Result<Topic> {
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
        assert_eq!(kind(Err(error(missing)), Ok(())), Err(missing), "what is in no topic is not there");
        assert_eq!(kind(Err(error(busy)), Ok(())), Err(ErrorKind::Unknown));
        assert_eq!(kind(Err(error(busy)), Err(error(ErrorKind::Unknown))), Err(ErrorKind::Unknown));
        assert_eq!(kind(Err(error(busy)), Err(error(ErrorKind::TooLarge))), Err(ErrorKind::TooLarge));
    }
}
