//! Dead letters: messages that a group has given up, until a person resends or drops them.
//!
//! The dead-letter lane is a topic like any other. What became of its letters is kept as for any group: the people who look
//! after them are its one reader, and a claim of theirs holds the letters that are still to be decided on.

use std::collections::BTreeSet;

use crate::claim::{Progress, WorkerId};
use crate::error::{Error, ErrorKind, Result};
use crate::ledger::{Commit, EntryKey, Write};
use crate::log::{Record, Want};
use crate::message::{Message, MessageId};
use crate::mill::Sawmill;
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
        let (_, state) = self.state().await?;
        let mut letters = Vec::new();
        for claim in &state.claims {
            if letters.len() >= limit {
                break;
            }
            for (index, message) in (0..).zip(self.mill.log().reread(&self.dead, 0, &claim.span).await?) {
                if !claim.done.contains(index) {
                    letters.push(DeadLetter { message });
                }
            }
        }
        let mut after = state.cursor;
        while letters.len() < limit {
            let block = self.read(after).await?;
            letters.extend(block.messages.into_iter().map(|message| DeadLetter { message }));
            after = block.end;
            if !block.more {
                break;
            }
        }
        let mut seen = BTreeSet::new();
        letters.retain(|letter| seen.insert(letter.id()));
        letters.truncate(limit);
        Ok(letters)
    }

    /// The letter of the message with this id.
    pub async fn show(&self, id: MessageId) -> Result<DeadLetter> {
        let letters = self.list(usize::MAX).await?;
        letters.into_iter().find(|letter| letter.id() == id).ok_or_else(|| self.no_such_letter(id))
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
        let wanted = |message: &Message| match &which {
            Which::All => true,
            Which::Ids(ids) => ids.contains(&message.origin()),
        };
        if let Which::Ids(ids) = &which {
            let there: BTreeSet<MessageId> =
                self.list(usize::MAX).await?.iter().map(DeadLetter::id).collect();
            if let Some(id) = ids.iter().find(|id| !there.contains(id)) {
                return Err(self.no_such_letter(*id));
            }
        }
        self.take_all().await?;
        let mut decided = 0;
        loop {
            let (version, mut state) = self.state().await?;
            let mut settled = Vec::new();
            for claim in &state.claims {
                let messages = self.mill.log().reread(&self.dead, 0, &claim.span).await?;
                let open = (0..).zip(messages).filter(|(index, _)| !claim.done.contains(*index));
                let chosen: Vec<(u32, Message)> = open.filter(|(_, message)| wanted(message)).collect();
                if decision == Decision::Resend && !chosen.is_empty() {
                    self.resend_copies(chosen.iter().map(|(_, message)| message)).await?;
                }
                let indexes: Progress = chosen.iter().map(|(index, _)| *index).collect();
                settled.push((claim.token, indexes));
            }
            let count: u64 = settled.iter().map(|(_, indexes)| indexes.len()).sum();
            if count == 0 {
                return Ok(decided);
            }
            let fate = if decision == Decision::Resend { Fate::Retried } else { Fate::Dropped };
            for (token, indexes) in settled.into_iter().filter(|(_, indexes)| !indexes.is_empty()) {
                let report = Report { token, fates: [(fate, indexes)].into(), ..Report::default() };
                // The claim is in the state that was just read, and is ours: settling it cannot be refused.
                let _ = state.settle(&keeper(), &report);
            }
            if self.commit(version, &state).await? {
                decided += count as usize;
            }
        }
    }

    /// Claims all letters that are in no claim yet, in the name of those who look after them.
    async fn take_all(&self) -> Result<()> {
        loop {
            let (version, mut state) = self.state().await?;
            let block = self.read(state.cursor.clone()).await?;
            if block.messages.is_empty() {
                return Ok(());
            }
            let grab = Grab { span: block.span, end: block.end, count: block.messages.len() as u32 };
            // An unordered grab is never refused.
            let _ = state.grab(&keeper(), Rules::default(), &grab);
            self.commit(version, &state).await?;
        }
    }

    /// Puts copies on the group's own lane, so that no other group sees them.
    async fn resend_copies(&self, letters: impl Iterator<Item = &Message>) -> Result<()> {
        let records =
            letters.map(|letter| Record::repeatable_in(self.mill.log(), &self.retry, letter.resent_copy()));
        self.mill.log().append(&self.retry, self.mill.env().wall(), records.collect()).await
    }

    async fn read(&self, after: crate::log::Position) -> Result<crate::log::Block> {
        let blocks = self.mill.log().read(&self.dead, &[Want { shard: 0, after, limit: BLOCK }]).await?;
        let block = blocks.into_iter().next();
        block.ok_or_else(|| Error::new(ErrorKind::Corrupt, "the log did not answer what it was asked"))
    }

    async fn state(&self) -> Result<(Option<crate::ledger::Version>, ShardState)> {
        let key = EntryKey::shard(&self.dead, &readers()?, 0);
        match self.mill.ledger().get(&key).await? {
            Some(entry) => Ok((Some(entry.version), ShardState::decode(&key, &entry.value)?)),
            None => Ok((None, ShardState::default())),
        }
    }

    /// True if the state was written. If not, or if nobody knows, the caller looks again.
    async fn commit(&self, expect: Option<crate::ledger::Version>, state: &ShardState) -> Result<bool> {
        let key = EntryKey::shard(&self.dead, &readers()?, 0);
        let write = Write { key, expect, value: Some(state.encode()) };
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
