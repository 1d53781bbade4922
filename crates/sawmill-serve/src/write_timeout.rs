//! Limits how long the server waits for a client that does not read its response.

use std::future::Future;
use std::io;
use std::pin::Pin;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use sawmill::engine::runtime::{Env, Moment};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

/// A client that reads at least this many bytes a second is never disconnected.
const MIN_BYTES_PER_SECOND: f64 = 32.0 * 1024.0;

/// A stream that limits the total time spent waiting for its reader. Each write earns time back in proportion
/// to its size. A long response is therefore not cut off, and a client that reads one byte now and then is
/// disconnected in the end.
pub(crate) struct WriteTimeout<S> {
    stream: S,
    env: Env,
    limit: Duration,
    left: Duration,
    waiting: Option<Waiting>,
}

struct Waiting {
    since: Moment,
    timeout: Pin<Box<dyn Future<Output = ()> + Send>>,
}

impl<S> WriteTimeout<S> {
    pub(crate) fn new(stream: S, env: Env, limit: Duration) -> Self {
        Self { stream, env, limit, left: limit, waiting: None }
    }

    /// Records the result of a write and accounts for the time it waited.
    fn record_write(
        &mut self,
        context: &mut Context<'_>,
        written: Poll<io::Result<usize>>,
    ) -> Poll<io::Result<usize>> {
        if written.is_ready() {
            if let Some(waiting) = self.waiting.take() {
                self.left = self.left.saturating_sub(self.env.now().since(waiting.since));
            }
            if let Poll::Ready(Ok(bytes)) = &written {
                let earned = Duration::from_secs_f64(*bytes as f64 / MIN_BYTES_PER_SECOND);
                self.left = (self.left + earned).min(self.limit);
            }
            return written;
        }
        let waiting = self.waiting.get_or_insert_with(|| Waiting {
            since: self.env.now(),
            timeout: Box::pin(self.env.sleep(self.left)),
        });
        ready!(waiting.timeout.as_mut().poll(context));
        Poll::Ready(Err(io::Error::new(io::ErrorKind::TimedOut, "the client does not take its answer")))
    }
}

impl<S: AsyncRead + Unpin> AsyncRead for WriteTimeout<S> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        into: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_read(context, into)
    }
}

impl<S: AsyncWrite + Unpin> AsyncWrite for WriteTimeout<S> {
    fn poll_write(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        let written = Pin::new(&mut self.stream).poll_write(context, bytes);
        self.record_write(context, written)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        parts: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let written = Pin::new(&mut self.stream).poll_write_vectored(context, parts);
        self.record_write(context, written)
    }

    fn is_write_vectored(&self) -> bool {
        self.stream.is_write_vectored()
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_flush(context)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(context)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use tokio::io::{AsyncReadExt, AsyncWriteExt};

    #[tokio::test]
    async fn who_takes_nothing_is_left() {
        let (stream, mut client) = tokio::io::duplex(1024);
        let mut stream = WriteTimeout::new(stream, Env::system(), Duration::from_millis(50));
        stream.write_all(&[0; 1024]).await.unwrap();
        assert_eq!(stream.write_all(&[0; 1]).await.unwrap_err().kind(), io::ErrorKind::TimedOut);
        client.read_exact(&mut [0; 1024]).await.unwrap();
    }

    #[tokio::test]
    async fn what_is_taken_earns_time_and_never_more_than_all_of_it() {
        let (stream, _client) = tokio::io::duplex(1 << 20);
        let mut stream = WriteTimeout::new(stream, Env::system(), Duration::from_secs(10));
        stream.left = Duration::from_secs(1);
        stream.write_all(&[0; 64 << 10]).await.unwrap();
        assert_eq!(stream.left, Duration::from_secs(3));
        stream.write_all(&[0; 512 << 10]).await.unwrap();
        assert_eq!(stream.left, Duration::from_secs(10));
    }

    #[tokio::test]
    async fn who_takes_a_little_now_and_then_is_left_at_last() {
        let (stream, mut client) = tokio::io::duplex(16);
        let mut stream = WriteTimeout::new(stream, Env::system(), Duration::from_millis(300));
        let take = async {
            while client.read_exact(&mut [0; 1]).await.is_ok() {
                Env::system().sleep(Duration::from_millis(20)).await;
            }
        };
        let all = vec![0; 1 << 20];
        let written = tokio::select! {
            written = stream.write_all(&all) => written,
            () = take => unreachable!("there is always more"),
        };
        assert_eq!(written.unwrap_err().kind(), io::ErrorKind::TimedOut);
    }
}
