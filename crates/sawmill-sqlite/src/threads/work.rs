//! Work queued for the writer thread, together with the caller that waits for its answer.

use rusqlite::Result as SqlResult;
use sawmill_engine::{Error, Result};
use tokio::sync::{OwnedSemaphorePermit, oneshot};

use crate::error::Failure;
use crate::threads::batch::Batch;

/// Work with a caller that waits for the answer.
pub(crate) trait Work: Send {
    /// The estimated number of bytes that it writes.
    fn weight(&self) -> usize;
    /// True if the caller is answered only when the write survives a power failure.
    fn is_durable(&self) -> bool;
    /// Runs within the transaction. On an error the transaction must not be committed; the work may run again
    /// in another one.
    fn attempt(&mut self, batch: &mut Batch<'_>) -> SqlResult<()>;
    /// Answers the caller after the commit.
    fn answer(self: Box<Self>);
    /// Answers the caller with an error.
    fn fail(self: Box<Self>, error: Error);
}

/// Work given as a function.
pub(crate) struct FnWork<F, T> {
    work: F,
    weight: usize,
    durable: bool,
    result: Option<Result<T>>,
    caller: oneshot::Sender<Result<T>>,
    _room: OwnedSemaphorePermit,
}

impl<F, T> FnWork<F, T> {
    /// Returns this work and the receiver of its answer. `weight` estimates the bytes it writes.
    pub(crate) fn new(
        weight: usize,
        durable: bool,
        room: OwnedSemaphorePermit,
        work: F,
    ) -> (Self, oneshot::Receiver<Result<T>>) {
        let (caller, answer) = oneshot::channel();
        (Self { work, weight, durable, result: None, caller, _room: room }, answer)
    }
}

impl<F, T> Work for FnWork<F, T>
where
    F: FnMut(&mut Batch<'_>) -> Result<T, Failure> + Send,
    T: Send,
{
    fn weight(&self) -> usize {
        self.weight
    }

    fn is_durable(&self) -> bool {
        self.durable
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
            // The caller may have stopped waiting.
            let _ = self.caller.send(result);
        }
    }

    fn fail(self: Box<Self>, error: Error) {
        let _ = self.caller.send(Err(error));
    }
}
