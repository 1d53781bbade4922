//! Dead letters: messages that a group has given up, kept until an operator retries or drops them.
//!
//! The dead-letter lane is a topic with one reader: the group of the operators. Its shard state says what
//! became of the letters, as for any group. The operators' claims hold the letters that are not decided yet.

use std::collections::BTreeSet;
use std::ops::ControlFlow;
use std::sync::Arc;
use std::time::Duration;

use sawmill_engine::fault;
use sawmill_engine::model::{
    Fate, GroupName, Lane, Message, MessageId, NewClaim, Progress, Report, Rules, ShardState, Token, Topic,
    WorkerId,
};
use sawmill_engine::storage::{Block, Commit, EntryKey, Position, ReadRequest, Record, Version};
use sawmill_engine::{Error, ErrorKind, Result};

use super::Admin;
use crate::store::{Cell, Store, dead_letter_readers};

/// How many letters are read at a time.
const BLOCK: usize = 500;
/// The pause before reading again from a log that has more, but returned an empty block.
const READ_PAUSE: Duration = Duration::from_millis(10);

/// The dead letters of a group: list, retry or drop them. Returned by [`Admin::dead_letters`].
pub struct DeadLetters {
    store: Arc<Store>,
    dead: Arc<Topic>,
    retry: Arc<Topic>,
}

/// A message that a group has given up.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DeadLetter {
    /// The message as it was pushed, plus its [failures](Message::failures) and the
    /// [reason](Message::dead_reason) why it was given up.
    pub message: Message,
}

impl DeadLetter {
    /// The id that the push returned.
    pub fn id(&self) -> MessageId {
        self.message.origin()
    }

    /// Why the message was given up.
    pub fn reason(&self) -> &str {
        self.message.dead_reason().unwrap_or_default()
    }
}

/// Selects the dead letters to [retry](DeadLetters::retry) or [drop](DeadLetters::drop).
#[derive(Debug, Clone)]
pub enum DeadLetterSelection {
    /// All dead letters of the group.
    All,
    /// The dead letters of the messages with these ids.
    Ids(Vec<MessageId>),
}

impl Admin<'_> {
    /// Returns access to the dead letters of a group. Fails with [`NotFound`](ErrorKind::NotFound) if the
    /// topic does not exist, or if the group has not had a worker.
    pub async fn dead_letters(self, topic: &str, group: &str) -> Result<DeadLetters> {
        let store = self.store;
        let topic = store.find_topic(topic).await?;
        let group: GroupName = group.parse()?;
        let lane = |lane| topic.name.lane(&group, lane);
        let missing = |error: Error| match error.kind() {
            ErrorKind::NotFound => Error::new(
                ErrorKind::NotFound,
                format!("topic {} has no group {group}: a group begins with its first worker", topic.name),
            ),
            _ => error,
        };
        let dead = store.find(&lane(Lane::Dead)).await.map_err(missing)?;
        let retry = store.find(&lane(Lane::Retry)).await.map_err(missing)?;
        Ok(DeadLetters { store: store.clone(), dead, retry })
    }
}

impl DeadLetters {
    /// Lists at most `limit` dead letters, oldest first. Each id is listed once.
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

    /// Calls `see` with one dead letter after another, oldest first, until it breaks. Each id is shown once.
    /// At most a few hundred of them are held in memory.
    pub async fn each(&self, mut see: impl FnMut(DeadLetter) -> ControlFlow<()>) -> Result<()> {
        let (_, state) = self.state().await?;
        let mut seen = BTreeSet::new();
        let mut see = |message: Message| {
            let letter = DeadLetter { message };
            if seen.insert(letter.id()) { see(letter) } else { ControlFlow::Continue(()) }
        };
        for claim in &state.claims {
            for (index, message) in (0..).zip(self.store.log().reread(&self.dead, 0, &claim.span).await?) {
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

    /// Returns the dead letter of the message with this id. Fails with [`NotFound`](ErrorKind::NotFound) if
    /// there is none.
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

    /// Queues dead letters again, for this group alone and with all their attempts again, and returns how
    /// many. Fails with [`NotFound`](ErrorKind::NotFound), and retries none, if a selected id has no dead
    /// letter.
    pub async fn retry(&self, which: DeadLetterSelection) -> Result<usize> {
        self.decide(which, Decision::Resend).await
    }

    /// Drops dead letters for good, and returns how many. Fails with [`NotFound`](ErrorKind::NotFound), and
    /// drops none, if a selected id has no dead letter.
    pub async fn drop(&self, which: DeadLetterSelection) -> Result<usize> {
        self.decide(which, Decision::Drop).await
    }

    async fn decide(&self, which: DeadLetterSelection, decision: Decision) -> Result<usize> {
        let ids: Option<BTreeSet<MessageId>> = match which {
            DeadLetterSelection::All => None,
            DeadLetterSelection::Ids(ids) => Some(ids.into_iter().collect()),
        };
        if let Some(ids) = &ids {
            self.check_present(ids.clone()).await?;
        }
        let ids = ids.filter(|_| !fault!(ResendsAll));
        let wanted = |message: &Message| ids.as_ref().is_none_or(|ids| ids.contains(&message.origin()));
        self.claim_all().await?;
        let mut decided = 0;
        let mut in_doubt: Option<InDoubt> = None;
        loop {
            let (version, mut state) = self.state().await?;
            if let Some(tried) = in_doubt.take_if(|tried| tried.expected != version)
                && is_decided(&state, tried.letter)
            {
                decided += tried.count;
            }
            let mut settled: Vec<(Token, Progress)> = Vec::new();
            for claim in &state.claims {
                let messages = self.store.log().reread(&self.dead, 0, &claim.span).await?;
                let open = (0..).zip(messages).filter(|(index, _)| !claim.done.contains(*index));
                let chosen: Vec<(u32, Message)> = open.filter(|(_, message)| wanted(message)).collect();
                let resends = decision == Decision::Resend && !fault!(ResendDrops);
                if resends && !chosen.is_empty() {
                    self.resend_copies(chosen.iter().map(|(_, message)| message)).await?;
                }
                let indexes: Progress = chosen.iter().map(|(index, _)| *index).collect();
                settled.push((claim.token, indexes));
            }
            let count: u64 = settled.iter().map(|(_, indexes)| indexes.len()).sum();
            if count == 0 || (decision == Decision::Resend && fault!(ResendUnnoted)) {
                return Ok(decided);
            }
            let resends = decision == Decision::Resend && !fault!(ResendDrops);
            let fate = if resends { Fate::Retried } else { Fate::Dropped };
            let count = count as usize;
            let first = settled.iter().find_map(|(token, indexes)| Some((*token, indexes.iter().next()?)));
            for (token, indexes) in settled.into_iter().filter(|(_, indexes)| !indexes.is_empty()) {
                let report = Report { token, fates: [(fate, indexes)].into(), ..Report::default() };
                // The claim is in the state just read, and is owned by the operators: settling it cannot be
                // refused.
                let _ = state.settle(&operator_id(), &report);
            }
            match self.commit(version, state).await? {
                Commit::Done(_) => {
                    decided += count;
                    in_doubt = None;
                }
                Commit::Unknown => {
                    in_doubt = first.map(|letter| InDoubt { expected: version, letter, count });
                }
                Commit::Conflict => {}
            }
        }
    }

    /// Fails if one of these letters is missing.
    async fn check_present(&self, mut missing: BTreeSet<MessageId>) -> Result<()> {
        self.each(|letter| {
            missing.remove(&letter.id());
            if missing.is_empty() { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
        })
        .await?;
        missing.first().map_or(Ok(()), |id| Err(self.no_such_letter(*id)))
    }

    /// Claims all letters that are in no claim yet, for the operators.
    async fn claim_all(&self) -> Result<()> {
        loop {
            let (version, mut state) = self.state().await?;
            let Some(block) = self.read_next(state.cursor.clone()).await? else { return Ok(()) };
            let new = NewClaim { span: block.span, end: block.end, count: block.messages.len() as u32 };
            // An unordered claim is never refused.
            let _ = state.claim_block(&operator_id(), Rules::default(), &new);
            self.commit(version, state).await?;
        }
    }

    /// Appends copies to the group's own retry lane, where no other group sees them.
    async fn resend_copies(&self, letters: impl Iterator<Item = &Message>) -> Result<()> {
        let records =
            letters.map(|letter| Record::repeatable_in(self.store.log(), &self.retry, letter.resent_copy()));
        self.store.log().append(&self.retry, self.store.env().wall(), records.collect()).await
    }

    /// Reads the next letters after this position; `None` if there are no more. The log may return empty
    /// blocks first.
    async fn read_next(&self, mut after: Position) -> Result<Option<Block>> {
        loop {
            let block = self.read(after).await?;
            if !block.messages.is_empty() {
                return Ok(Some(block));
            }
            if !block.more || fault!(EmptyBlockEndsResend) {
                return Ok(None);
            }
            after = block.end;
            self.store.env().sleep(READ_PAUSE).await;
        }
    }

    async fn read(&self, after: Position) -> Result<Block> {
        let blocks =
            self.store.log().read(&self.dead, &[ReadRequest { shard: 0, after, limit: BLOCK }]).await?;
        let block = blocks.into_iter().next();
        block.ok_or_else(|| Error::new(ErrorKind::Corrupt, "the log did not answer what it was asked"))
    }

    fn cell(&self) -> Result<Cell<'_, ShardState>> {
        Ok(Cell::new(&self.store, EntryKey::shard(&self.dead, &dead_letter_readers()?, 0)))
    }

    async fn state(&self) -> Result<(Option<Version>, ShardState)> {
        let found = self.cell()?.read_versioned().await?;
        Ok(found.map_or_else(Default::default, |(version, state)| (Some(version), state)))
    }

    /// Writes the state once. Unless that is done, the caller reads it again.
    async fn commit(&self, expect: Option<Version>, mut state: ShardState) -> Result<Commit> {
        self.cell()?.replace(expect, &mut state).await
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

/// A commit with an unknown outcome. It has taken effect if the version has moved and its letters are decided on.
struct InDoubt {
    expected: Option<Version>,
    /// One of the letters, by its claim and index.
    letter: (Token, u32),
    /// The number of letters.
    count: usize,
}

/// Returns whether a letter that was open in this claim has been decided on.
fn is_decided(state: &ShardState, (token, index): (Token, u32)) -> bool {
    let claim = state.claims.iter().find(|claim| claim.token == token);
    claim.is_none_or(|claim| claim.done.contains(index))
}

/// The owner of claims on dead letters. It has no member entry: nobody else reads this lane in this group.
fn operator_id() -> WorkerId {
    WorkerId::new("people")
}

#[cfg(test)]
mod tests {
    use sawmill_engine::runtime::Env;
    use sawmill_engine::storage::Memory;

    use super::*;
    use crate::store::faulty_ledger::{Fault, FaultyLedger};
    use crate::{Context, Outcome, RetryPolicy, Sawmill};

    #[tokio::test]
    async fn no_more_letters_are_looked_at_than_it_takes() {
        let mill = Sawmill::open("memory:").await.unwrap();
        mill.create_topic("orders").await.unwrap();
        let count = 2 * BLOCK + 10;
        mill.push_many("orders", (0..count).map(|n| n.to_string())).await.unwrap();
        let worker = mill.worker("orders").start(|_: Context| async { Outcome::dead("no") }).await.unwrap();
        worker.drained().await;
        worker.stop().await;
        let letters = mill.admin().dead_letters("orders", "default").await.unwrap();
        let all = letters.list(usize::MAX).await.unwrap();
        assert_eq!((all.len(), letters.list(0).await.unwrap().len()), (count, 0));
        let first_ids = async |enough: usize| {
            let mut seen = Vec::new();
            let see = |letter: DeadLetter| {
                seen.push(letter.id());
                if seen.len() < enough { ControlFlow::Continue(()) } else { ControlFlow::Break(()) }
            };
            letters.each(see).await.unwrap();
            seen
        };
        let ids: Vec<MessageId> = all.iter().map(DeadLetter::id).collect();
        assert_eq!(first_ids(BLOCK + 1).await, ids[..=BLOCK]);
        // From here on some letters are claimed, and some of those are dropped.
        assert_eq!(letters.drop(DeadLetterSelection::Ids(vec![ids[0], ids[count - 1]])).await.unwrap(), 2);
        assert_eq!(first_ids(3).await, ids[1..4]);
        assert_eq!(first_ids(usize::MAX).await, ids[1..count - 1]);
        assert_eq!(letters.show(ids[count - 2]).await.unwrap(), all[count - 2]);
        assert_eq!(letters.show(ids[0]).await.unwrap_err().kind(), ErrorKind::NotFound);
        let some_are_gone = DeadLetterSelection::Ids(vec![ids[1], ids[0]]);
        assert_eq!(letters.retry(some_are_gone).await.unwrap_err().kind(), ErrorKind::NotFound);
        assert_eq!(first_ids(1).await, ids[1..2]);
    }

    /// Both commits of a decision, the claim and its end, take effect and are not answered.
    #[tokio::test]
    async fn decisions_count_though_the_store_does_not_answer() {
        let ledger = Arc::new(FaultyLedger::default());
        let mill = Sawmill::from_parts(Arc::new(Memory::new()), ledger.clone(), Env::system());
        mill.create_topic("orders").await.unwrap();
        mill.push_many("orders", ["one", "two", "three"]).await.unwrap();
        let worker = mill.worker("orders").retry(RetryPolicy::none());
        let worker = worker.start(|_: Context| async { Outcome::Dead("no".into()) }).await.unwrap();
        worker.drained().await;
        worker.stop().await;
        let letters = mill.admin().dead_letters("orders", "default").await.unwrap();
        let first = letters.list(1).await.unwrap()[0].id();
        ledger.meet([Fault::Unanswered, Fault::Unanswered]);
        assert_eq!(letters.retry(DeadLetterSelection::Ids(vec![first])).await.unwrap(), 1);
        ledger.meet([Fault::Lost, Fault::Unanswered]);
        assert_eq!(letters.drop(DeadLetterSelection::All).await.unwrap(), 2);
        let status = mill.admin().status("orders", "default").await.unwrap();
        assert_eq!((status.dead, status.dropped, status.retrying), (0, 2, 1));
    }
}
