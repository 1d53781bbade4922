//! A process group: a command and everything that it starts. It ends as a whole.

use std::io;
use std::os::unix::process::ExitStatusExt;
use std::process::ExitStatus;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use rustix::process::{Pid, Signal, kill_process_group};
use tokio::process::{Child, Command};

use super::minder::Minder;
use crate::values::Size;

/// A process group that is killed on drop, if not before.
pub(crate) struct ProcessGroup {
    leader: Pid,
    ended: AtomicBool,
    minder: Arc<Minder>,
}

impl ProcessGroup {
    /// Starts a command in its own process group. The runtime reaps the child if it is dropped.
    pub(crate) fn start(
        command: &mut Command,
        memory: Option<Size>,
        minder: &Arc<Minder>,
    ) -> io::Result<(Self, Child)> {
        let child = command.process_group(0).spawn()?;
        let gone = || io::Error::other("it has no process id");
        let leader = child.id().and_then(|id| Pid::from_raw(id as i32)).ok_or_else(gone)?;
        minder.open(leader);
        let group = Self { leader, ended: AtomicBool::new(false), minder: minder.clone() };
        if let Some(memory) = memory {
            limit(leader, memory)?;
        }
        Ok((group, child))
    }

    pub(crate) fn leader(&self) -> Pid {
        self.leader
    }

    /// Sends SIGTERM to the group.
    pub(crate) fn terminate(&self) {
        self.signal(Signal::TERM);
    }

    /// Kills the rest of the group. Call this as soon as the leader is known to have ended: the group number
    /// is certain to be ours only while a process of the group exists, or right after its leader was reaped.
    pub(crate) fn end(&self) {
        self.signal(Signal::KILL);
        if !self.ended.swap(true, Ordering::SeqCst) {
            self.minder.close(self.leader);
        }
    }

    /// Releases the group: its remaining processes run on.
    pub(crate) fn release(self) {
        self.ended.store(true, Ordering::SeqCst);
        self.minder.close(self.leader);
    }

    fn signal(&self, signal: Signal) {
        if !self.ended.load(Ordering::SeqCst) {
            // The group may have ended already.
            let _ = kill_process_group(self.leader, signal);
        }
    }
}

impl Drop for ProcessGroup {
    fn drop(&mut self) {
        self.end();
    }
}

/// Limits the private writable memory of a process. A limit on address space (RLIMIT_AS) would not work:
/// runtimes such as Node, Go and Java reserve many gigabytes that they never use.
#[cfg(target_os = "linux")]
fn limit(process: Pid, memory: Size) -> io::Result<()> {
    use rustix::process::{Resource, Rlimit, prlimit};
    let limit = Rlimit { current: Some(memory.0), maximum: Some(memory.0) };
    match prlimit(Some(process), Resource::Data, limit) {
        // The process has ended already.
        Ok(_) | Err(rustix::io::Errno::SRCH) => Ok(()),
        Err(error) => Err(error.into()),
    }
}

#[cfg(not(target_os = "linux"))]
fn limit(_process: Pid, _memory: Size) -> io::Result<()> {
    Err(io::ErrorKind::Unsupported.into())
}

/// Describes how a process ended.
pub(crate) fn ending(status: ExitStatus) -> String {
    match (status.code(), status.signal()) {
        (Some(code), _) => format!("exit code {code}"),
        (None, Some(signal)) => {
            let name = Signal::from_named_raw(signal).map(|signal| format!("{signal:?}"));
            // The debug format is like `Signal::KILL`, perhaps in quotes.
            let name =
                name.and_then(|name| Some(format!(" (SIG{})", name.trim_matches('"').rsplit("::").next()?)));
            format!("killed by signal {signal}{}", name.unwrap_or_default())
        }
        (None, None) => "ended without an exit code".to_owned(),
    }
}
