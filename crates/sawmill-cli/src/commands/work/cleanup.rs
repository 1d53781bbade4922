//! Cleanup after a run that did not end by itself. Killing its processes is not enough: a container keeps
//! running when the program that started it is killed.

use std::os::unix::process::CommandExt;
use std::process::{Command, Stdio};
use std::sync::Arc;

use super::minder::Minder;
use super::program::Program;

/// Cleans up on drop, unless the run has ended. If the worker is killed, the minder cleans up.
pub(crate) struct Cleanup {
    program: Option<Program>,
    minder: Arc<Minder>,
}

impl Cleanup {
    pub(crate) fn new(program: Option<Program>, minder: &Arc<Minder>) -> Self {
        if let Some(program) = &program {
            minder.set_cleanup(Some(program));
        }
        Self { program, minder: minder.clone() }
    }

    /// Cancels the cleanup: the run has ended.
    pub(crate) fn cancel(mut self) {
        if self.program.take().is_some() {
            self.minder.set_cleanup(None);
        }
    }
}

impl Drop for Cleanup {
    fn drop(&mut self) {
        let Some(program) = self.program.take() else { return };
        // The program runs on by itself: nothing may be left that could wait for it.
        match start(&program) {
            Ok(_) => self.minder.set_cleanup(None),
            Err(error) => {
                let program = program.path.display();
                tracing::warn!(%error, "{program} cannot be started to clean up after a run that was ended");
            }
        }
    }
}

/// Starts a program without waiting for it.
pub(super) fn start(program: &Program) -> std::io::Result<std::process::Child> {
    Command::new(&program.path)
        .args(&program.args)
        .process_group(0)
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn()
}
