//! Dead letters: messages that a group has given up, until a person resends or drops them.
//!
//! The dead-letter lane is a topic like any other. What became of its letters is kept as for any group: the people who look
//! after them are its one reader, and a claim of theirs holds the letters that are still to be decided on.

use std::collections::BTreeSet;
use std::ops::ControlFlow;

use crate::claim::{Progress, WorkerId};
use crate::error::{Error, ErrorKind, Result};
use crate::ledger::{Commit, EntryKey, Write};
use crate::log::{Record, Want};
use crate::message::{Message, MessageId};
use crate::mill::Sawmill;
use crate::planted::{self, Bug};
use crate::shard::{Fate, Grab, Report, Rules, ShardState};
use crate::topic::{GroupName, Topic};

/// The group under which dead letters are looked after.
pub(crate) fn readers() -> Result<GroupName> {
    "people".parse()
}

/// How many letters are read at a time.
const BLOCK: usize = 500;

/// The dead letters of a group; see [`Sawmill::dead_letters`].
pub struct DeadLetters {
    mill: Sawmill,
    dead: Topic,
    retry: Topic,
}

/// A message that a group has given up.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DeadLetter {
    /// The message as it was pushed, but for what [`Message::failures`] and [`Message::dead_reason`] say of it.
    pub message: Message,
}

impl DeadLetter {
    /// The id that the push returned.
    pub fn id(&self) -> MessageId {
        self.message.origin()
    }

    /// Why it was given up.
    pub fn reason(&self) -> &str {
        self.message.dead_reason().unwrap_or_default()
    }
}

/// Which dead letters are meant.
#[derive(Debug, Clone)]
pub enum Which {
    /// All that are there now.
    All,
    /// Those of messages with these ids.
    Ids(Vec<MessageId>),
}

impl DeadLetters {
    pub(crate) fn new(mill: Sawmill, dead: Topic, retry: Topic) -> Self {
        Self { mill, dead, retry }
    }

    /// The letters, oldest first, at most this many. An id is listed once.
    pub async fn list(&self, limit: usize) -> Result<Vec<DeadLetter>> {
        let mut letters = Vec::new();
        if limit > 0 {
            self.each(|letter| {
                letters.push(letter);
                if letters.len() < limit { ControlFlow::Continue(()) } else { ControlFlow::Break(()) }
            })
            .await?;
        }
        Ok(letters)
    }

    /// Shows the letters one by one, oldest first, until `see` has seen enough. An id is shown once. However many there are, a
    /// few hundred of them at most are held in memory.
    pub async fn each(&self, mut see: impl FnMut(DeadLetter) -> ControlFlow<()>) -> Result<()> {
        let (_, state) = self.state().await?;
        let mut seen = BTreeSet::new();
        let mut see = |message: Message| {
            let letter = DeadLetter { message };
            if seen.insert(letter.id()) { see(letter) } else { ControlFlow::Continue(()) }
        };
        for claim in &state.claims {
            for (index, message) in (0..).zip(self.mill.log().reread(&self.dead, 0, &claim.span).await?) {
                if !claim.done.contains(index) && see(message).is_break() {
                    return Ok(());
                }
            }
        }
        let mut after = state.cursor;
        loop {
            let block = self.read(after).await?;
            if block.messages.into_iter().any(|message| see(message).is_break()) || !block.more {
                return Ok(());
            }
            after = block.end;
        }
    }

    /// The letter of the message with this id.
    pub async fn show(&self, id: MessageId) -> Result<DeadLetter> {
        let mut found = None;
        self.each(|letter| {
            if letter.id() != id {
                return ControlFlow::Continue(());
            }
            found = Some(letter);
            ControlFlow::Break(())
        })
        .await?;
        found.ok_or_else(|| self.no_such_letter(id))
    }

    /// Queues letters again, for this group alone, with all attempts before them. Returns how many.
    pub async fn resend(&self, which: Which) -> Result<usize> {
        self.decide(which, Decision::Resend).await
    }

    /// Drops letters for good. Returns how many.
    pub async fn drop(&self, which: Which) -> Result<usize> {
        self.decide(which, Decision::Drop).await
    }

    async fn decide(&self, which: Which, decision: Decision) -> Result<usize> {
        let ids: Option<BTreeSet<MessageId>> = match which {
            Which::All => None,
            Which::Ids(ids) => Some(ids.into_iter().collect()),
        };
        if let Some(ids) = &ids {
            self.check_there(ids.clone()).await?;
        }
        let ids = ids.filter(|_| !planted::is(Bug::ResendsAll));
        let wanted = |message: &Message| ids.as_ref().is_none_or(|ids| ids.contains(&message.origin()));
        self.take_all().await?;
        let mut decided = 0;
        loop {
            let (version, mut state) = self.state().await?;
            let mut settled = Vec::new();
            for claim in &state.claims {
                let messages = self.mill.log().reread(&self.dead, 0, &claim.span).await?;
                let open = (0..).zip(messages).filter(|(index, _)| !claim.done.contains(*index));
                let chosen: Vec<(u32, Message)> = open.filter(|(_, message)| wanted(message)).collect();
                let resends = decision == Decision::Resend && !planted::is(Bug::ResendDrops);
                if resends && !chosen.is_empty() {
                    self.resend_copies(chosen.iter().map(|(_, message)| message)).await?;
                }
                let indexes: Progress = chosen.iter().map(|(index, _)| *index).collect();
                settled.push((claim.token, indexes));
            }
            let count: u64 = settled.iter().map(|(_, indexes)| indexes.len()).sum();
            if count == 0 || (decision == Decision::Resend && planted::is(Bug::ResendUnnoted)) {
                return Ok(decided);
            }
            let resends = decision == Decision::Resend && !planted::is(Bug::ResendDrops);
            let fate = if resends { Fate::Retried } else { Fate::Dropped };
            for (token, indexes) in settled.into_iter().filter(|(_, indexes)| !indexes.is_empty()) {
                let report = Report { token, fates: [(fate, indexes)].into(), ..Report::default() };
                // The claim is in the state that was just read, and is ours: settling it cannot be refused.
                let _ = state.settle(&keeper(), &report);
            }
            if self.commit(version, state).await? {
                decided += count as usize;
            }
        }
    }

    /// An error if one of these letters is not there.
    async fn check_there(&self, mut missing: BTreeSet<MessageId>) -> Result<()> {
        self.each(|letter| {
            missing.remove(&letter.id());
            if missing.is_empty() { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
        })
        .await?;
        missing.first().map_or(Ok(()), |id| Err(self.no_such_letter(*id)))
    }

    /// Claims all letters that are in no claim yet, in the name of those who look after them.
    async fn take_all(&self) -> Result<()> {
        loop {
            let (version, mut state) = self.state().await?;
            let Some(block) = self.read_some(state.cursor.clone()).await? else { return Ok(()) };
            let grab = Grab { span: block.span, end: block.end, count: block.messages.len() as u32 };
            // An unordered grab is never refused.
            let _ = state.grab(&keeper(), Rules::default(), &grab);
            self.commit(version, state).await?;
        }
    }

    /// Puts copies on the group's own lane, so that no other group sees them.
    async fn resend_copies(&self, letters: impl Iterator<Item = &Message>) -> Result<()> {
        let records =
            letters.map(|letter| Record::repeatable_in(self.mill.log(), &self.retry, letter.resent_copy()));
        self.mill.log().append(&self.retry, self.mill.env().wall(), records.collect()).await
    }

    /// The next letters after this position; none if there are no more. The log may answer that it has not looked yet.
    async fn read_some(&self, mut after: crate::log::Position) -> Result<Option<crate::log::Block>> {
        loop {
            let block = self.read(after).await?;
            if !block.messages.is_empty() {
                return Ok(Some(block));
            }
            if !block.more || planted::is(Bug::EmptyBlockEndsResend) {
                return Ok(None);
            }
            after = block.end;
            self.mill.pause_briefly().await;
        }
    }

    async fn read(&self, after: crate::log::Position) -> Result<crate::log::Block> {
        let blocks = self.mill.log().read(&self.dead, &[Want { shard: 0, after, limit: BLOCK }]).await?;
        let block = blocks.into_iter().next();
        block.ok_or_else(|| Error::new(ErrorKind::Corrupt, "the log did not answer what it was asked"))
    }

    async fn state(&self) -> Result<(Option<crate::ledger::Version>, ShardState)> {
        let key = EntryKey::shard(&self.dead, &readers()?, 0);
        match self.mill.ledger().get(&key).await? {
            Some(entry) => Ok((Some(entry.version), self.mill.decode_shard(&entry)?)),
            None => Ok((None, ShardState::default())),
        }
    }

    /// True if the state was written. If not, or if nobody knows, the caller looks again.
    async fn commit(&self, expect: Option<crate::ledger::Version>, mut state: ShardState) -> Result<bool> {
        let key = EntryKey::shard(&self.dead, &readers()?, 0);
        let value = self.mill.encode_shard(&mut state);
        let write = Write { key, expect, value: Some(value) };
        Ok(matches!(self.mill.ledger().commit(write).await?, Commit::Done(_)))
    }

    fn no_such_letter(&self, id: MessageId) -> Error {
        let group = self.dead.name.as_lane().map_or_else(String::new, |(group, _)| group.to_string());
        let what =
            format!("group {group} of topic {} has no dead letter {id} (any more)", self.dead.name.base());
        Error::new(ErrorKind::NotFound, what)
    }
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Decision {
    Resend,
    Drop,
}

/// In whose name letters are claimed. It is no member of anything: nobody else reads this lane in this group.
fn keeper() -> WorkerId {
    WorkerId::new("people")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::handler::Context;
    use crate::outcome::Outcome;

    #[tokio::test]
    async fn no_more_letters_are_looked_at_than_it_takes() {
        let mill = Sawmill::open("memory:").await.unwrap();
        mill.create_topic("orders").await.unwrap();
        let count = 2 * BLOCK + 10;
        mill.push_many("orders", (0..count).map(|n| n.to_string())).await.unwrap();
        let worker = mill.worker("orders").start(|_: Context| async { Outcome::dead("no") }).await.unwrap();
        worker.drained().await;
        worker.stop().await;
        let letters = mill.dead_letters("orders", "default").await.unwrap();
        let all = letters.list(usize::MAX).await.unwrap();
        assert_eq!((all.len(), letters.list(0).await.unwrap().len()), (count, 0));
        let looked_at = async |enough: usize| {
            let mut seen = Vec::new();
            let see = |letter: DeadLetter| {
                seen.push(letter.id());
                if seen.len() < enough { ControlFlow::Continue(()) } else { ControlFlow::Break(()) }
            };
            letters.each(see).await.unwrap();
            seen
        };
        let ids: Vec<MessageId> = all.iter().map(DeadLetter::id).collect();
        assert_eq!(looked_at(BLOCK + 1).await, ids[..=BLOCK]);
        // Some are in claims from now on, and some of those are gone.
        assert_eq!(letters.drop(Which::Ids(vec![ids[0], ids[count - 1]])).await.unwrap(), 2);
        assert_eq!(looked_at(3).await, ids[1..4]);
        assert_eq!(looked_at(usize::MAX).await, ids[1..count - 1]);
        assert_eq!(letters.show(ids[count - 2]).await.unwrap(), all[count - 2]);
        assert_eq!(letters.show(ids[0]).await.unwrap_err().kind(), ErrorKind::NotFound);
        let some_are_gone = Which::Ids(vec![ids[1], ids[0]]);
        assert_eq!(letters.resend(some_are_gone).await.unwrap_err().kind(), ErrorKind::NotFound);
        assert_eq!(looked_at(1).await, ids[1..2]);
    }
}
