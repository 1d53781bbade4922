//! Retries work after failures that a retry can fix: a deadlock, a lock timeout, or a broken connection.

use std::time::Duration;

use sawmill_engine::Error;
use sawmill_engine::runtime::{Env, Moment};

use crate::error::Failure;

/// No new attempt begins after this time.
const TIME_LIMIT: Duration = Duration::from_secs(30);
/// How often a broken connection is replaced.
const CONNECTIONS: u32 = 3;
const SHORTEST_PAUSE: Duration = Duration::from_millis(2);
const LONGEST_PAUSE: Duration = Duration::from_millis(250);

/// The attempts at one piece of work.
pub(crate) struct Retry {
    env: Env,
    began: Moment,
    collisions: u32,
    lost: u32,
}

impl Retry {
    pub(crate) fn new(env: &Env) -> Self {
        Self { env: env.clone(), began: env.now(), collisions: 0, lost: 0 }
    }

    /// Waits before another attempt, or returns the error if a retry does not help.
    pub(crate) async fn again(&mut self, failure: Failure) -> Result<(), Error> {
        let late = self.env.now().since(self.began) >= TIME_LIMIT;
        match &failure {
            _ if late => return Err(failure.into()),
            failure if failure.is_collision() => self.collisions += 1,
            // Nothing was committed, so the work can be repeated on another connection.
            Failure::Lost(_) if self.lost < CONNECTIONS => self.lost += 1,
            _ => return Err(failure.into()),
        }
        let pause = SHORTEST_PAUSE.saturating_mul(1 << self.collisions.min(7)).min(LONGEST_PAUSE);
        self.env.sleep(self.env.rng().jitter(pause)).await;
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use mysql_async::ServerError;
    use sawmill_engine::ErrorKind;

    use super::*;

    fn server(code: u16) -> Failure {
        Failure::Server(ServerError { code, message: "said".into(), state: "HY000".into() })
    }

    #[tokio::test]
    async fn only_what_may_help_is_tried_again() {
        let env = Env::system();
        let mut retry = Retry::new(&env);
        for code in [1213, 1205] {
            assert!(retry.again(server(code)).await.is_ok());
        }
        assert_eq!(retry.again(server(1142)).await.unwrap_err().kind(), ErrorKind::Invalid);
        assert_eq!(retry.again(Failure::Unknown("cut".into())).await.unwrap_err().kind(), ErrorKind::Unknown);
        for _ in 0..CONNECTIONS {
            assert!(retry.again(Failure::Lost("cut".into())).await.is_ok());
        }
        assert_eq!(
            retry.again(Failure::Lost("cut".into())).await.unwrap_err().kind(),
            ErrorKind::Unavailable
        );
    }
}
