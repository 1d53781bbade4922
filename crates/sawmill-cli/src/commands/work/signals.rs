//! The signals that a running worker obeys.

use tokio::signal::unix::{Signal, SignalKind, signal};

use crate::failure::Failure;

/// A request by signal.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Request {
    /// SIGINT: finish the running commands, then stop. The second one aborts.
    Finish,
    /// SIGTERM: abort the running commands, then stop.
    Abort,
    /// SIGUSR2: write the state to the log.
    Dump,
}

pub(crate) struct Signals {
    interrupt: Signal,
    terminate: Signal,
    dump: Signal,
}

impl Signals {
    /// Catches these signals from now on.
    pub(crate) fn listen() -> Result<Self, Failure> {
        Ok(Self {
            interrupt: listen(SignalKind::interrupt())?,
            terminate: listen(SignalKind::terminate())?,
            dump: listen(SignalKind::user_defined2())?,
        })
    }

    /// Waits for the next signal.
    pub(crate) async fn next(&mut self) -> Request {
        tokio::select! {
            biased;
            Some(()) = self.terminate.recv() => Request::Abort,
            Some(()) = self.interrupt.recv() => Request::Finish,
            Some(()) = self.dump.recv() => Request::Dump,
            else => std::future::pending().await,
        }
    }

    /// Awaits the work, but returns `None` if a signal asks to stop first.
    pub(crate) async fn unless_ended<T>(&mut self, work: impl Future<Output = T>) -> Option<T> {
        let mut work = std::pin::pin!(work);
        loop {
            tokio::select! {
                biased;
                done = &mut work => return Some(done),
                request = self.next() => if request != Request::Dump { return None },
            }
        }
    }
}

/// Catches this signal from now on, so that it does not end the program.
pub(super) fn listen(kind: SignalKind) -> Result<Signal, Failure> {
    signal(kind).map_err(|error| Failure::failed(format!("signals cannot be caught: {error}")))
}
