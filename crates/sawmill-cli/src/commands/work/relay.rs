//! Passes the stdout of commands line by line to a terminal that shows a live line.

use sawmill::engine::runtime::Env;
use tokio::io::{AsyncRead, AsyncReadExt};

use crate::terminal::live::{self, Out};

/// The longest unfinished line that is kept until its end arrives.
const LONGEST: usize = 64 << 10;

/// Passes on all output. If the terminal is slow, only this command waits.
pub(crate) async fn pass_on(mut stdout: impl AsyncRead + Unpin, env: &Env) {
    let mut said = Vec::new();
    while matches!(stdout.read_buf(&mut said).await, Ok(1..)) {
        let whole = said.iter().rposition(|byte| *byte == b'\n').map_or(0, |at| at + 1);
        let ready = if said.len() > LONGEST { said.len() } else { whole };
        if ready > 0 {
            let rest = said.split_off(ready);
            let lines = std::mem::replace(&mut said, rest);
            live::above_in_turn(Out::Stdout, lines, env).await;
        }
    }
    if !said.is_empty() {
        said.push(b'\n');
        live::above_in_turn(Out::Stdout, said, env).await;
    }
}
