//! A piece of work for the database, and who waits for it.

use rusqlite::Result as SqlResult;
use sawmill::{Error, Result};
use tokio::sync::{OwnedSemaphorePermit, oneshot};

use crate::batch::Batch;
use crate::error::Failure;

/// A piece of work with a caller who waits for the answer.
pub(crate) trait Work: Send {
    /// About how many bytes it writes.
    fn weight(&self) -> usize;
    /// True if a power failure must not undo it.
    fn is_lasting(&self) -> bool;
    /// Does it within the transaction. An error means that the transaction must not be committed; the work may be done
    /// again in another one.
    fn attempt(&mut self, batch: &mut Batch<'_>) -> SqlResult<()>;
    /// Answers the caller: the transaction is committed.
    fn answer(self: Box<Self>);
    /// Answers the caller: the work is not done.
    fn fail(self: Box<Self>, error: Error);
}

/// Work that is a function.
pub(crate) struct Piece<F, T> {
    work: F,
    weight: usize,
    lasting: bool,
    result: Option<Result<T>>,
    caller: oneshot::Sender<Result<T>>,
    _room: OwnedSemaphorePermit,
}

impl<F, T> Piece<F, T> {
    /// This work, and where its answer is heard. `weight` is about how many bytes it writes.
    pub(crate) fn new(
        weight: usize,
        lasting: bool,
        room: OwnedSemaphorePermit,
        work: F,
    ) -> (Self, oneshot::Receiver<Result<T>>) {
        let (caller, answer) = oneshot::channel();
        (Self { work, weight, lasting, result: None, caller, _room: room }, answer)
    }
}

impl<F, T> Work for Piece<F, T>
where
    F: FnMut(&mut Batch<'_>) -> Result<T, Failure> + Send,
    T: Send,
{
    fn weight(&self) -> usize {
        self.weight
    }

    fn is_lasting(&self) -> bool {
        self.lasting
    }

    fn attempt(&mut self, batch: &mut Batch<'_>) -> SqlResult<()> {
        self.result = match (self.work)(batch) {
            Ok(answer) => Some(Ok(answer)),
            Err(Failure::Refused(error)) => Some(Err(error)),
            Err(Failure::Storage(error)) => return Err(error),
        };
        Ok(())
    }

    fn answer(self: Box<Self>) {
        if let Some(result) = self.result {
            // A caller who has gone away does not want it.
            let _ = self.caller.send(result);
        }
    }

    fn fail(self: Box<Self>, error: Error) {
        let _ = self.caller.send(Err(error));
    }
}
