//! A way to a client that has to take what it is sent: who reads too slowly, or not at all, is left.

use std::future::Future;
use std::io;
use std::pin::Pin;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use sawmill::clock::Moment;
use sawmill::env::Env;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

/// Who takes at least so many bytes a second is never left.
const SLOWEST: f64 = 32.0 * 1024.0;

/// A stream on which all waiting for the reader together may take so long. What is written earns some of it back, so that a long answer is
/// not cut, and nobody stays for ever who takes a byte now and then.
pub(crate) struct Impatient<S> {
    stream: S,
    env: Env,
    patience: Duration,
    left: Duration,
    waiting: Option<Waiting>,
}

struct Waiting {
    since: Moment,
    over: Pin<Box<dyn Future<Output = ()> + Send>>,
}

impl<S> Impatient<S> {
    pub(crate) fn new(stream: S, env: Env, patience: Duration) -> Self {
        Self { stream, env, patience, left: patience, waiting: None }
    }

    /// Takes note of how a write went.
    fn note(
        &mut self,
        context: &mut Context<'_>,
        written: Poll<io::Result<usize>>,
    ) -> Poll<io::Result<usize>> {
        if written.is_ready() {
            if let Some(waiting) = self.waiting.take() {
                self.left = self.left.saturating_sub(self.env.now().since(waiting.since));
            }
            if let Poll::Ready(Ok(bytes)) = &written {
                let earned = Duration::from_secs_f64(*bytes as f64 / SLOWEST);
                self.left = (self.left + earned).min(self.patience);
            }
            return written;
        }
        let waiting = self.waiting.get_or_insert_with(|| Waiting {
            since: self.env.now(),
            over: Box::pin(self.env.sleep(self.left)),
        });
        ready!(waiting.over.as_mut().poll(context));
        Poll::Ready(Err(io::Error::new(io::ErrorKind::TimedOut, "the client does not take its answer")))
    }
}

impl<S: AsyncRead + Unpin> AsyncRead for Impatient<S> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        into: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_read(context, into)
    }
}

impl<S: AsyncWrite + Unpin> AsyncWrite for Impatient<S> {
    fn poll_write(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        let written = Pin::new(&mut self.stream).poll_write(context, bytes);
        self.note(context, written)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        parts: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let written = Pin::new(&mut self.stream).poll_write_vectored(context, parts);
        self.note(context, written)
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
        let mut stream = Impatient::new(stream, Env::system(), Duration::from_millis(50));
        stream.write_all(&[0; 1024]).await.unwrap();
        assert_eq!(stream.write_all(&[0; 1]).await.unwrap_err().kind(), io::ErrorKind::TimedOut);
        client.read_exact(&mut [0; 1024]).await.unwrap();
    }

    #[tokio::test]
    async fn what_is_taken_earns_time_and_never_more_than_all_of_it() {
        let (stream, _client) = tokio::io::duplex(1 << 20);
        let mut stream = Impatient::new(stream, Env::system(), Duration::from_secs(10));
        stream.left = Duration::from_secs(1);
        stream.write_all(&[0; 64 << 10]).await.unwrap();
        assert_eq!(stream.left, Duration::from_secs(3));
        stream.write_all(&[0; 512 << 10]).await.unwrap();
        assert_eq!(stream.left, Duration::from_secs(10));
    }

    #[tokio::test]
    async fn who_takes_a_little_now_and_then_is_left_at_last() {
        let (stream, mut client) = tokio::io::duplex(16);
        let mut stream = Impatient::new(stream, Env::system(), Duration::from_millis(300));
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
