//! What has to be done after a run that did not end by itself, since killing its processes is not enough: a container runs on
//! when the program that asked for it is killed.

use std::os::unix::process::CommandExt;
use std::process::{Command, Stdio};
use std::sync::Arc;

use super::minder::Minder;
use super::program::Program;

/// Cleans up when it is dropped, unless the run has ended. The minder does it if the worker is killed.
pub(crate) struct Cleanup {
    program: Option<Program>,
    minder: Arc<Minder>,
}

impl Cleanup {
    pub(crate) fn ready(program: Option<Program>, minder: &Arc<Minder>) -> Self {
        if let Some(program) = &program {
            minder.clean_up_by(Some(program));
        }
        Self { program, minder: minder.clone() }
    }

    /// There is nothing left to clean up.
    pub(crate) fn ended(mut self) {
        if self.program.take().is_some() {
            self.minder.clean_up_by(None);
        }
    }
}

impl Drop for Cleanup {
    fn drop(&mut self) {
        let Some(program) = self.program.take() else { return };
        // Nobody may be left to wait for it; it goes on by itself.
        match start(&program) {
            Ok(_) => self.minder.clean_up_by(None),
            Err(error) => {
                let program = program.path.display();
                tracing::warn!(%error, "{program} cannot be started to clean up after a run that was ended");
            }
        }
    }
}

/// Starts a program that nobody waits for.
pub(super) fn start(program: &Program) -> std::io::Result<std::process::Child> {
    Command::new(&program.path)
        .args(&program.args)
        .process_group(0)
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn()
}
