//! Doing a piece of work again when that helps: after a deadlock, a wait for a lock that was too long, or a connection that was
//! found broken.

use std::time::Duration;

use sawmill::Error;
use sawmill::clock::Moment;
use sawmill::env::Env;

use crate::error::Failure;

/// No new attempt is begun after this time.
const PATIENCE: Duration = Duration::from_secs(30);
/// How often a broken connection is replaced by another.
const CONNECTIONS: u32 = 3;
const SHORTEST_PAUSE: Duration = Duration::from_millis(2);
const LONGEST_PAUSE: Duration = Duration::from_millis(250);

/// The attempts at one piece of work.
pub(crate) struct Tries {
    env: Env,
    began: Moment,
    collisions: u32,
    lost: u32,
}

impl Tries {
    pub(crate) fn new(env: &Env) -> Self {
        Self { env: env.clone(), began: env.now(), collisions: 0, lost: 0 }
    }

    /// Waits a little after an attempt that failed, if another one may help. If not, that is the error.
    pub(crate) async fn again(&mut self, failure: Failure) -> Result<(), Error> {
        let late = self.env.now().since(self.began) >= PATIENCE;
        match &failure {
            _ if late => return Err(failure.into()),
            failure if failure.is_collision() => self.collisions += 1,
            // Nothing of it was committed: it may be done again on another connection.
            Failure::Lost(_) if self.lost < CONNECTIONS => self.lost += 1,
            _ => return Err(failure.into()),
        }
        let pause = SHORTEST_PAUSE.saturating_mul(1 << self.collisions.min(7)).min(LONGEST_PAUSE);
        self.env.sleep(self.env.dice().jitter(pause)).await;
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use mysql_async::ServerError;
    use sawmill::ErrorKind;

    use super::*;

    fn server(code: u16) -> Failure {
        Failure::Server(ServerError { code, message: "said".into(), state: "HY000".into() })
    }

    #[tokio::test]
    async fn only_what_may_help_is_tried_again() {
        let env = Env::system();
        let mut tries = Tries::new(&env);
        for code in [1213, 1205] {
            assert!(tries.again(server(code)).await.is_ok());
        }
        assert_eq!(tries.again(server(1142)).await.unwrap_err().kind(), ErrorKind::Invalid);
        assert_eq!(tries.again(Failure::Unknown("cut".into())).await.unwrap_err().kind(), ErrorKind::Unknown);
        for _ in 0..CONNECTIONS {
            assert!(tries.again(Failure::Lost("cut".into())).await.is_ok());
        }
        assert_eq!(
            tries.again(Failure::Lost("cut".into())).await.unwrap_err().kind(),
            ErrorKind::Unavailable
        );
    }
}
