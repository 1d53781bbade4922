//! What commands say on stdout, passed on line by line to a terminal that has a live line on it.

use tokio::io::{AsyncRead, AsyncReadExt};

use crate::live;

/// The longest piece of a line that is kept until its end comes.
const LONGEST: usize = 64 << 10;

/// Passes on all that is said. A terminal that has gone is no reason to stop.
pub(crate) async fn pass_on(mut stdout: impl AsyncRead + Unpin) {
    let mut said = Vec::new();
    while matches!(stdout.read_buf(&mut said).await, Ok(1..)) {
        let whole = said.iter().rposition(|byte| *byte == b'\n').map_or(0, |at| at + 1);
        let ready = if said.len() > LONGEST { said.len() } else { whole };
        if ready > 0 {
            let _ = live::above_on_stdout(&said[..ready]);
            said.drain(..ready);
        }
    }
    if !said.is_empty() {
        said.push(b'\n');
        let _ = live::above_on_stdout(&said);
    }
}
