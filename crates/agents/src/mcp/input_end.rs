//! End of the input: tells calls that wait that nobody listens any more. `rmcp` itself would let them go on for seconds.

use std::io;
use std::pin::Pin;
use std::task::{Context, Poll};

use tokio::io::{AsyncRead, ReadBuf};
use tokio::sync::watch;

/// A reader that says when it has come to its end.
pub(super) struct Watched<R> {
    inner: R,
    ended: watch::Sender<bool>,
}

/// Watches a reader. The receiver has `true` after the end, or after an error.
pub(super) fn watched<R>(inner: R) -> (Watched<R>, watch::Receiver<bool>) {
    let (ended, receiver) = watch::channel(false);
    (Watched { inner, ended }, receiver)
}

impl<R: AsyncRead + Unpin> AsyncRead for Watched<R> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let before = buffer.filled().len();
        let polled = Pin::new(&mut self.inner).poll_read(context, buffer);
        let is_over = match &polled {
            Poll::Ready(Ok(())) => buffer.filled().len() == before && buffer.remaining() > 0,
            Poll::Ready(Err(_)) => true,
            Poll::Pending => false,
        };
        if is_over {
            self.ended.send_replace(true);
        }
        polled
    }
}
