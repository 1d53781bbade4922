//! The log with one fault.

use async_trait::async_trait;
use sawmill::engine::model::{Headers, Topic, TopicName};
use sawmill::engine::runtime::Env;
use sawmill::engine::storage::{
    Backlog, Block, Capabilities, FoundMessage, Log, Notifications, Position, Promoted, ReadRequest, Record,
    Span,
};
use sawmill::{ErrorKind, Message, MessageId, Result, Timestamp, TopicSpec};

use super::{Broken, Fault};

const END_OF_TIME: Timestamp = Timestamp::from_millis(u64::MAX);

impl Broken {
    /// Corrupts a message before it is appended.
    fn spoil(&self, mut message: Message) -> Message {
        match self.fault {
            Fault::TakesAnEmptyKeyForNone => message.key = message.key.filter(|key| !key.is_empty()),
            Fault::CutsPayloads => message.payload.truncate(65_535),
            Fault::KeepsOneHeaderOfAName => {
                let mut kept: Vec<(String, bytes::Bytes)> = Vec::new();
                for (name, value) in message.headers.iter() {
                    if kept.iter().all(|(other, _)| other != name) {
                        kept.push((name.to_owned(), value.clone()));
                    }
                }
                message.headers = kept.into_iter().collect::<Headers>();
            }
            Fault::AddsAgain => {
                let mut notes = self.notes.lock().expect("nobody panics while holding it");
                let id = message.id.as_u128();
                if notes.seen.contains(&id) {
                    message.id = MessageId::from_u128(notes.seen.len() as u128);
                }
                notes.seen.push(id);
            }
            _ => {}
        }
        message
    }
}

#[async_trait]
impl Log for Broken {
    fn capabilities(&self) -> Capabilities {
        self.inner.capabilities()
    }

    async fn create_topic(&self, spec: &TopicSpec) -> Result<Topic> {
        let made = self.inner.create_topic(spec).await;
        match (self.fault, self.inner.topic(&spec.name).await?) {
            (Fault::FindsWithOtherShards, Some(topic)) => Ok(topic),
            _ => made,
        }
    }

    async fn topic(&self, name: &TopicName) -> Result<Option<Topic>> {
        self.inner.topic(name).await
    }

    async fn topics(&self) -> Result<Vec<Topic>> {
        self.inner.topics().await
    }

    async fn delete_topic(&self, topic: &Topic) -> Result<bool> {
        match (self.fault, self.inner.topic(&topic.name).await?) {
            (Fault::DeletesByName, Some(named)) => self.inner.delete_topic(&named).await,
            _ => self.inner.delete_topic(topic).await,
        }
    }

    async fn append(&self, topic: &Topic, now: Timestamp, mut records: Vec<Record>) -> Result<()> {
        for record in &mut records {
            record.message = self.spoil(record.message.clone());
        }
        match self.fault {
            Fault::TurnsBatchesRound => records.reverse(),
            Fault::ReadsWhatIsNotDue => return self.inner.append(topic, END_OF_TIME, records).await,
            Fault::GoesByItsOwnClock => return self.inner.append(topic, Env::system().wall(), records).await,
            Fault::PromotesInOrderOfPushing => {
                let aside = |record: &Record| record.message.due.is_some_and(|due| due > now);
                let (aside, ready) = records.into_iter().partition(aside);
                self.notes.lock().expect("nobody panics while holding it").aside.extend::<Vec<Record>>(aside);
                return self.inner.append(topic, now, ready).await;
            }
            Fault::AppendsInPart => {
                for record in records {
                    self.inner.append(topic, now, vec![record]).await?;
                }
                return Ok(());
            }
            Fault::AcceptsAnyTopic => {
                return match self.inner.append(topic, now, records).await {
                    Err(error) if error.kind() == ErrorKind::NotFound => Ok(()),
                    answer => answer,
                };
            }
            _ => {}
        }
        self.inner.append(topic, now, records).await
    }

    async fn read(&self, topic: &Topic, wants: &[ReadRequest]) -> Result<Vec<Block>> {
        let mut wants = wants.to_vec();
        if self.fault == Fault::AnswersByShard {
            wants.sort_by_key(|want| want.shard);
        }
        let mut blocks = self.inner.read(topic, &wants).await?;
        for block in &mut blocks {
            match self.fault {
                Fault::NeverSaysMore => block.more = false,
                Fault::AlwaysSaysMore => block.more = true,
                Fault::SkipsALateMessage => {
                    let mut notes = self.notes.lock().expect("nobody panics while holding it");
                    notes.read += block.messages.len();
                    if notes.read > 100 && !notes.skipped && block.messages.len() > 1 {
                        notes.skipped = true;
                        block.messages.remove(0);
                    }
                }
                _ => {}
            }
        }
        Ok(blocks)
    }

    async fn reread(&self, topic: &Topic, shard: u16, span: &Span) -> Result<Vec<Message>> {
        let (after, upto, _) = span.range()?;
        let (after, limit) = match self.fault {
            Fault::RereadsWhatIsThereNow => (after, 1000),
            Fault::RereadsWhatIsLeft => (after, (upto - after) as usize),
            _ => return self.inner.reread(topic, shard, span).await,
        };
        let want = ReadRequest { shard, after: Position::from_number(after), limit };
        let blocks = self.inner.read(topic, &[want]).await?;
        Ok(blocks.into_iter().flat_map(|block| block.messages).collect())
    }

    async fn promote(&self, topic: &Topic, now: Timestamp, limit: usize) -> Result<Promoted> {
        match self.fault {
            Fault::PromotesWithoutLimit => return self.inner.promote(topic, now, usize::MAX).await,
            Fault::HidesTheNextDueTime => {
                let promoted = self.inner.promote(topic, now, limit).await?;
                return Ok(Promoted { next_due: None, ..promoted });
            }
            Fault::PromotesInOrderOfPushing => {
                let mut due = Vec::new();
                let next_due = {
                    let mut notes = self.notes.lock().expect("nobody panics while holding it");
                    while due.len() < limit {
                        let is_due = |record: &Record| record.message.due.is_some_and(|due| due <= now);
                        let Some(first) = notes.aside.iter().position(is_due) else { break };
                        due.push(notes.aside.remove(first));
                    }
                    notes.aside.iter().filter_map(|record| record.message.due).min()
                };
                let moved = due.len();
                self.inner.append(topic, now, due).await?;
                return Ok(Promoted { moved, next_due });
            }
            _ => {}
        }
        self.inner.promote(topic, now, limit).await
    }

    async fn find(&self, topic: &Topic, id: MessageId) -> Result<Option<FoundMessage>> {
        let found = self.inner.find(topic, id).await?;
        let aside = |found: &FoundMessage| found.before.is_none();
        Ok(found.filter(|found| !(aside(found) && self.fault == Fault::FindsOnlyWhatIsReadable)))
    }

    async fn positions(&self, topic: &Topic, since: Timestamp) -> Result<Vec<Position>> {
        match self.fault {
            Fault::SeeksToTheEnd => self.inner.positions(topic, END_OF_TIME).await,
            _ => self.inner.positions(topic, since).await,
        }
    }

    async fn backlog(&self, topic: &Topic, after: &[(u16, Position)]) -> Result<Backlog> {
        let mut backlog = self.inner.backlog(topic, after).await?;
        if self.fault == Fault::CountsInAnotherOrder {
            backlog.ready.reverse();
        }
        Ok(backlog)
    }

    async fn trim(&self, topic: &Topic, upto: &[Vec<Position>], before: Timestamp) -> Result<Vec<u64>> {
        let mut spoiled = Vec::new();
        for (shard, upto) in upto.iter().enumerate() {
            let last = || upto.iter().max_by_key(|position| position.number().unwrap_or(0)).cloned();
            spoiled.push(match self.fault {
                Fault::TrimsBeyondThePosition if !upto.is_empty() => {
                    vec![Position::from_number(Position::least_number(upto)? + 1)]
                }
                Fault::TrimsUpToTheLast => last().into_iter().collect(),
                Fault::TrimsByWhatItWasTold => {
                    let mut notes = self.notes.lock().expect("nobody panics while holding it");
                    let told = notes.trimmed.entry(shard).or_default();
                    *told = (*told).max(Position::least_number(upto)?);
                    vec![Position::from_number(*told)]
                }
                _ => upto.clone(),
            });
        }
        let before = if self.fault == Fault::TrimsTheYoung { END_OF_TIME } else { before };
        if self.fault != Fault::TrimsByWhatItWasTold {
            return self.inner.trim(topic, &spoiled, before).await;
        }
        // Like an engine that drops a whole topic once it believes that nothing is needed.
        let ends = self.inner.positions(topic, END_OF_TIME).await?;
        let passed = ends.iter().zip(0..).all(|(end, shard)| {
            let notes = self.notes.lock().expect("nobody panics while holding it");
            notes.trimmed.get(&shard).copied().unwrap_or(0) >= end.number().unwrap_or(0)
        });
        if !passed {
            return Ok(vec![0; upto.len()]);
        }
        let ends: Vec<Vec<Position>> = ends.into_iter().map(|end| vec![end]).collect();
        let mut dropped = self.inner.trim(topic, &ends, before).await?;
        dropped.truncate(upto.len());
        Ok(dropped)
    }

    fn message_notifications(&self, topic: &Topic) -> Notifications {
        if self.fault == Fault::GivesNoHints {
            Notifications::never()
        } else {
            self.inner.message_notifications(topic)
        }
    }
}
