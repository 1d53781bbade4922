//! What can be asked of a running worker by signals.

use tokio::signal::unix::{Signal, SignalKind, signal};

use crate::failure::Failure;

/// What somebody asks for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Asked {
    /// SIGINT: finish what runs, then stop. The second time: abort.
    Finish,
    /// SIGTERM: abort what runs, then leave.
    Abort,
    /// SIGUSR2: say what you are doing.
    Dump,
}

pub(crate) struct Signals {
    interrupt: Signal,
    terminate: Signal,
    dump: Signal,
}

impl Signals {
    /// From now on these signals are heard.
    pub(crate) fn listen() -> Result<Self, Failure> {
        Ok(Self {
            interrupt: listen(SignalKind::interrupt())?,
            terminate: listen(SignalKind::terminate())?,
            dump: listen(SignalKind::user_defined2())?,
        })
    }

    /// The next signal.
    pub(crate) async fn next(&mut self) -> Asked {
        tokio::select! {
            biased;
            Some(()) = self.terminate.recv() => Asked::Abort,
            Some(()) = self.interrupt.recv() => Asked::Finish,
            Some(()) = self.dump.recv() => Asked::Dump,
            else => std::future::pending().await,
        }
    }

    /// Waits for this, unless somebody wants the program to end first: then `None`.
    pub(crate) async fn unless_ended<T>(&mut self, work: impl Future<Output = T>) -> Option<T> {
        let mut work = std::pin::pin!(work);
        loop {
            tokio::select! {
                biased;
                done = &mut work => return Some(done),
                asked = self.next() => if asked != Asked::Dump { return None },
            }
        }
    }
}

/// From now on this signal is heard, and does not end the program.
pub(super) fn listen(kind: SignalKind) -> Result<Signal, Failure> {
    signal(kind).map_err(|error| Failure::failed(format!("signals cannot be heard: {error}")))
}
