//! Checks the clock skew between this machine and a node. Rows are ordered by time: a machine whose clock is
//! off by more than the settle window allows would push where readers have already passed, or read past rows
//! that others have yet to push, and messages would be lost silently.

use std::time::Duration;

use sawmill_engine::runtime::Env;
use sawmill_engine::{Error, ErrorKind, Result};

use crate::connection::link::{Answer, Link};
use crate::log::row::from_time;
use crate::store::read;

/// Fails if the skew is larger than that of two clocks that are each off by a fifth of the window. Warns if
/// one of them must be off by more than that.
pub(crate) async fn check(link: &Link, env: &Env, settle: Duration) -> Result<()> {
    let before = from_time(env.wall());
    let clock = link.query("SELECT toUnixTimestamp(now()) FROM system.local").await;
    let clock: Vec<(i64,)> = read(clock.and_then(Answer::rows))?;
    let after = from_time(env.wall());
    let Some((clock,)) = clock.first() else { return Ok(()) };
    let (apart, most) =
        (apart(*clock, before, after), i64::try_from(settle.as_millis()).unwrap_or(i64::MAX) / 5);
    if apart > 2 * most {
        return Err(too_far(apart, 2 * most));
    }
    if apart > most {
        tracing::warn!(
            apart,
            most,
            "the clocks of this machine and of a node are too many milliseconds apart; set them right"
        );
    }
    Ok(())
}

/// The distance from a time to an interval.
fn apart(time: i64, before: i64, after: i64) -> i64 {
    time.saturating_sub(after).max(before.saturating_sub(time)).max(0)
}

fn too_far(apart: i64, most: i64) -> Error {
    Error::new(
        ErrorKind::Invalid,
        format!(
            "the clocks of this machine and of the node that answered are {apart} ms apart, and messages may be lost with more than {most} ms: \
             set them right (NTP), or make topics with a longer window, and say so in the store's URL (settle=1m)"
        ),
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn clocks_are_apart_by_what_the_question_does_not_explain() {
        assert_eq!(apart(150, 100, 200), 0);
        assert_eq!((apart(100, 100, 200), apart(200, 100, 200)), (0, 0));
        assert_eq!((apart(90, 100, 200), apart(260, 100, 200)), (10, 60));
        let said = too_far(5000, 4000).to_string();
        assert!(said.contains("5000 ms") && said.contains("4000 ms") && said.contains("NTP"), "{said}");
    }
}
