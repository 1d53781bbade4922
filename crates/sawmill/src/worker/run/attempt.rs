//! One call of a handler: its context, its time limit, and how it ended.

use std::panic::AssertUnwindSafe;
use std::sync::Arc;
use std::time::Duration;

use futures_util::FutureExt;
use futures_util::future::BoxFuture;
use sawmill_engine::runtime::Moment;
use tokio_util::sync::CancellationToken;

use crate::handler::{Context, Outcome};
use crate::worker::Shared;
use crate::worker::inflight::message::Start;

/// One call of a handler, for one message or several.
pub(super) struct Attempt<'a> {
    shared: &'a Shared,
    began: Moment,
    /// Tell the handler that its time is up, if there is a timeout.
    cancelled: Vec<Arc<CancellationToken>>,
}

/// How a handler ended.
pub(super) enum HandlerEnd<T = Outcome> {
    Said(T),
    /// It panicked, or was late.
    Failed(String),
    /// The worker was aborted.
    Dropped,
    /// A person has cancelled the message.
    Cancelled,
}

impl<'a> Attempt<'a> {
    pub(super) fn new(shared: &'a Shared, began: Moment) -> Self {
        Self { shared, began, cancelled: Vec::new() }
    }

    /// Makes the handler's context of this message.
    pub(super) fn context(&mut self, start: &Start) -> Context {
        let mut cancelled = start.cancelled.clone();
        if self.shared.builder.timeout.is_some() {
            cancelled = Arc::new(cancelled.child_token());
            self.cancelled.push(cancelled.clone());
        }
        Context {
            message: start.held.message.clone(),
            source: self.shared.sources[start.source].origin.clone(),
            attempt: start.held.attempt(),
            token: start.token,
            began: self.began,
            cancelled,
        }
    }

    /// Calls the handler and waits for its end, unless it takes too long, the message is cancelled
    /// (`unwanted`), or the worker is aborted.
    pub(super) async fn run<T>(
        self,
        call: impl FnOnce() -> BoxFuture<'static, T>,
        unwanted: impl Future<Output = ()>,
    ) -> HandlerEnd<T> {
        let env = self.shared.env();
        // A handler may panic while it makes its future; that fails the message too.
        let future = match std::panic::catch_unwind(AssertUnwindSafe(call)) {
            Ok(future) => AssertUnwindSafe(future).catch_unwind(),
            Err(panic) => return HandlerEnd::Failed(panic_text(&*panic)),
        };
        let late = async {
            match self.shared.builder.timeout {
                Some(limit) => env.sleep(limit).await,
                None => std::future::pending().await,
            }
        };
        tokio::select! {
            biased;
            ended = future => match ended {
                Ok(said) => HandlerEnd::Said(said),
                Err(panic) => HandlerEnd::Failed(panic_text(&*panic)),
            },
            () = self.shared.abort.cancelled() => HandlerEnd::Dropped,
            () = unwanted => HandlerEnd::Cancelled,
            () = late => {
                self.cancelled.iter().for_each(|cancelled| cancelled.cancel());
                HandlerEnd::Failed(late_text(self.shared.builder.timeout))
            }
        }
    }
}

/// The beginning of the error of an attempt that took too long.
pub(super) const LATE: &str = "it took longer than its timeout";

/// Makes the error of an attempt that took too long.
pub(super) fn late_text(limit: Option<Duration>) -> String {
    format!("{LATE} of {:?}", limit.unwrap_or_default())
}

fn panic_text(panic: &(dyn std::any::Any + Send)) -> String {
    let text = panic.downcast_ref::<&str>().copied();
    let text = text.or_else(|| panic.downcast_ref::<String>().map(String::as_str));
    format!("the handler panicked: {}", text.unwrap_or("(no message)"))
}
