//! More settings of a worker: shared values, hooks, layers, the journal, and the other ways to start one.

use std::fmt::Display;
use std::path::PathBuf;
use std::time::Duration;

use sawmill_engine::{Error, Result};

use crate::handler::{
    Batch, Context, FromBatch, FromContext, FromStates, Function, IntoOutcome, IntoOutcomes, Next, States,
    batched, blocking,
};
use crate::worker::{Work, Worker, WorkerBuilder};

impl WorkerBuilder {
    /// Shares a value with all handlers, which take it by its type as [`State`](crate::handler::State). A
    /// second value of the same type replaces the first.
    pub fn state<T: Send + Sync + 'static>(mut self, value: T) -> Self {
        self.hooks.states.put(value);
        self
    }

    /// Runs this hook once, before any message is started. Its result is shared like a
    /// [`state`](WorkerBuilder::state). If it fails, the worker does not start and never joins its group.
    ///
    /// Several hooks run in turn, and may take values that are shared already as
    /// [`State`](crate::handler::State) arguments.
    ///
    /// ```
    /// use sawmill::{Context, Sawmill, State};
    ///
    /// struct Pool { url: String }
    /// impl Pool {
    ///     async fn connect(url: &str) -> Result<Pool, std::io::Error> { Ok(Pool { url: url.to_owned() }) }
    ///     async fn close(&self) {}
    /// }
    ///
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> sawmill::Result<()> {
    /// # let mill = Sawmill::open("memory:").await?;
    /// # mill.create_topic("orders").await?;
    /// let worker = mill
    ///     .worker("orders")
    ///     .on_start(|| Pool::connect("db://orders"))
    ///     .on_stop(|pool: State<Pool>| async move { pool.close().await })
    ///     .start(|order: Context, pool: State<Pool>| async move {
    ///         println!("{} goes to {}", order.id(), pool.url);
    ///     })
    ///     .await?;
    /// worker.stop().await;
    /// # Ok(()) }
    /// ```
    pub fn on_start<F, Args, T, E>(mut self, hook: F) -> Self
    where
        F: Function<Args, Output: Future<Output = Result<T, E>> + Send + 'static>,
        Args: FromStates,
        T: Send + Sync + 'static,
        E: Display,
    {
        self.hooks.on_start(hook);
        self
    }

    /// Runs this hook once, after the last handler has ended and all claims have been given back, and before
    /// [`stop`](Worker::stop), [`abort`](Worker::abort) or [`ended`](Worker::ended) returns. It also runs if
    /// the worker fails to start after a start hook has run. It may take shared values as
    /// [`State`](crate::handler::State) arguments.
    ///
    /// Of several hooks the last one runs first. A hook whose arguments are not shared is skipped: the
    /// resource that it would close was never opened.
    pub fn on_stop<F, Args>(mut self, hook: F) -> Self
    where
        F: Function<Args, Output: Future<Output = ()> + Send + 'static>,
        Args: FromStates,
    {
        self.hooks.on_stop(hook);
        self
    }

    /// Keeps a journal of started messages in this file on the machine's own disk, for workers that deliver
    /// [at most once](crate::worker::Delivery::AtMostOnce). A worker that crashes and is started again with
    /// the same file takes over its claims at once and runs the messages that it had not started; without a
    /// journal all of them are lost. Messages that it was running become dead letters, marked as lost.
    ///
    /// Each worker needs a file of its own; a second file beside it, whose name ends in `.2`, comes and goes.
    /// Do not put the journal on a network file system, and do not copy or restore it. It no longer counts
    /// after the machine was restarted, nor for claims that other workers of the group took over first, as
    /// they do when a worker has been silent for its TTL. Each start costs one write to the file, which is
    /// not synced. If the write fails, for example because the disk is full, the worker stops.
    ///
    /// Works only on Linux, which tells one start of the machine from another.
    ///
    /// ```
    /// use sawmill::{Context, Delivery, Sawmill};
    ///
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> sawmill::Result<()> {
    /// # if !cfg!(target_os = "linux") { return Ok(()) }
    /// # let mill = Sawmill::open("memory:").await?;
    /// # mill.create_topic("payments").await?;
    /// # let folder = std::env::temp_dir();
    /// # let path = folder.join(format!("sawmill-{}.journal", std::process::id()));
    /// let worker = mill
    ///     .worker("payments")
    ///     .delivery(Delivery::AtMostOnce)
    ///     .journal(&path)
    ///     .start(|payment: Context| async move { println!("{}", payment.id()) })
    ///     .await?;
    /// worker.stop().await;
    /// # let _ = std::fs::remove_file(path);
    /// # Ok(()) }
    /// ```
    pub fn journal(mut self, path: impl Into<PathBuf>) -> Self {
        self.journal = Some(path.into());
        self
    }

    /// Wraps a layer around the handler, inside the layers that were added before. A layer goes on with
    /// [`next.run(context)`](Next::run), or settles the message itself by returning an outcome without
    /// calling it.
    ///
    /// Layers are for handlers of single messages, blocking ones included; with
    /// [`start_batch`](WorkerBuilder::start_batch) or [`pull`](WorkerBuilder::pull) they are an error.
    ///
    /// ```
    /// use sawmill::{Context, Outcome, Sawmill};
    /// use sawmill::handler::Next;
    ///
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> sawmill::Result<()> {
    /// # let mill = Sawmill::open("memory:").await?;
    /// # mill.create_topic("orders").await?;
    /// let worker = mill
    ///     .worker("orders")
    ///     .layer(|order: Context, next: Next| async move {
    ///         let (id, attempt) = (order.id(), order.attempt());
    ///         let outcome = next.run(order).await;
    ///         println!("{id}, attempt {attempt}: {outcome:?}");
    ///         outcome
    ///     })
    ///     .layer(|order: Context, next: Next| async move {
    ///         if order.payload().is_empty() {
    ///             return Outcome::dead("an order without content");
    ///         }
    ///         next.run(order).await
    ///     })
    ///     .start(|_order: Context| async {})
    ///     .await?;
    /// worker.stop().await;
    /// # Ok(()) }
    /// ```
    pub fn layer<F, R>(mut self, layer: F) -> Self
    where
        F: Fn(Context, Next) -> R + Send + Sync + 'static,
        R: Future<Output: IntoOutcome> + Send + 'static,
    {
        self.layers.add(layer);
        self
    }

    /// Sets how long one attempt may take, layers included; there is no limit if not set. An attempt that
    /// takes longer is dropped and has failed. Its context [is cancelled](Context::is_cancelled) then; a
    /// blocking handler should check this, because its thread cannot be stopped from outside.
    pub fn timeout(mut self, timeout: Duration) -> Self {
        self.timeout = Some(timeout);
        self
    }

    /// Joins the group and starts handling messages with a handler that may block: it is not `async`, and
    /// each call runs on a thread of its own, so that nothing else waits for it. It takes the same arguments
    /// as any [handler](WorkerBuilder::start).
    ///
    /// ```
    /// use sawmill::{Context, Sawmill};
    ///
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> sawmill::Result<()> {
    /// # let mill = Sawmill::open("memory:").await?;
    /// # mill.create_topic("archives").await?;
    /// let worker = mill.worker("archives").concurrency(4).start_blocking(|archive: Context| {
    ///     std::fs::write(std::env::temp_dir().join(archive.id().to_string()), archive.payload())
    /// }).await?;
    /// worker.stop().await;
    /// # Ok(()) }
    /// ```
    pub async fn start_blocking<F, Args>(self, handler: F) -> Result<Worker>
    where
        F: Function<Args, Output: IntoOutcome>,
        Args: FromContext + 'static,
    {
        let handler = blocking(handler, self.store.env().clone());
        self.start(handler).await
    }

    /// Joins the group and starts handling messages, several at once: each slot takes as many as are ready,
    /// up to the size of the [`Batch`]. A batch has at most one message of a key.
    ///
    /// The handler's first argument is a `Vec` of a type that a handler of single messages could take;
    /// [`State`](crate::handler::State)s may follow. A message that cannot be converted to this type gets its
    /// own outcome, and the handler gets the others. It returns one outcome for all messages, or a `Vec` with
    /// an [`Outcome`](crate::handler::Outcome) for each, in their order.
    ///
    /// ```
    /// use std::time::Duration;
    /// use sawmill::{Batch, Json, Push, Sawmill};
    ///
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> sawmill::Result<()> {
    /// # let mill = Sawmill::open("memory:").await?;
    /// # mill.create_topic("readings").await?;
    /// mill.push_many("readings", [Push::json(&20.5)?, Push::json(&21.0)?]).await?;
    /// let batch = Batch::of(100).linger(Duration::from_millis(50));
    /// let worker = mill.worker("readings").start_batch(batch, |readings: Vec<Json<f64>>| async move {
    ///     println!("{} readings, the first is {}", readings.len(), *readings[0]);
    /// }).await?;
    /// worker.drained().await;
    /// assert_eq!(worker.stop().await.done, 2);
    /// # Ok(()) }
    /// ```
    pub async fn start_batch<F, Args>(self, batch: Batch, handler: F) -> Result<Worker>
    where
        F: Function<Args, Output: Future<Output: IntoOutcomes> + Send + 'static>,
        Args: FromBatch + 'static,
    {
        self.launch(Work::Batch(batch, batched(handler))).await
    }
}

impl Work {
    /// Returns how many messages a slot takes at once.
    pub(super) fn batch(&self) -> usize {
        match self {
            Work::Batch(batch, _) => batch.size,
            Work::Each(_) | Work::Pull => 1,
        }
    }

    /// Checks that this fits the other settings.
    pub(super) fn check(&self, builder: &WorkerBuilder) -> Result<()> {
        if let Work::Batch(batch, _) = self {
            batch.check()?;
        }
        if !matches!(self, Work::Each(_)) && !builder.layers.is_empty() {
            return Err(Error::invalid(
                "layers are wrapped around a handler of single messages: a worker that takes batches, or whose messages \
                 are pulled, cannot have any",
            ));
        }
        Ok(())
    }

    /// Checks that every value that the handler takes is shared.
    pub(super) fn check_states(&self, states: &States) -> Result<()> {
        match self {
            Work::Each(handler) => handler.check(states),
            Work::Batch(_, handler) => handler.check(states),
            Work::Pull => Ok(()),
        }
    }
}
