//! Telling a collector of OpenTelemetry what was answered and executed: spans as OTLP/JSON over HTTP.
//!
//! One thread sends, and sleeps while there is nothing to send. Nobody waits for it: where it cannot keep up, or the
//! collector cannot be reached, spans are dropped and counted, and everything else goes on.

mod endpoint;
mod span;

use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError, SyncSender, sync_channel};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

pub use endpoint::{BadEndpoint, Endpoint};
pub(super) use span::{Span, TraceParent};

/// So many spans wait to be sent at the most.
const WAITING: usize = 4_096;
/// So many are sent at once.
const AT_ONCE: usize = 512;
/// The first of them waits for others this long.
const GATHER: Duration = Duration::from_secs(1);

/// Sends spans. What is left is sent when this is dropped.
pub(super) struct Exporter {
    /// None while it ends.
    sender: Option<SyncSender<Span>>,
    thread: Option<JoinHandle<()>>,
    counts: Arc<Counts>,
}

/// What became of spans.
#[derive(Default)]
struct Counts {
    sent: AtomicU64,
    dropped: AtomicU64,
}

impl Exporter {
    /// Begins to send to this place.
    pub(super) fn start(endpoint: Endpoint) -> io::Result<Self> {
        let (sender, spans) = sync_channel(WAITING);
        let counts = Arc::new(Counts::default());
        let sending = Sending { endpoint, spans, counts: Arc::clone(&counts), is_told: false };
        let thread = thread::Builder::new().name("otlp".to_owned()).spawn(move || sending.run())?;
        Ok(Self { sender: Some(sender), thread: Some(thread), counts })
    }

    /// Has a span sent some time soon. Never waits.
    pub(super) fn send(&self, span: Span) {
        let taken = self.sender.as_ref().is_some_and(|sender| sender.try_send(span).is_ok());
        if !taken {
            self.counts.dropped.fetch_add(1, Ordering::Relaxed);
        }
    }

    /// How many were sent, and how many dropped.
    pub(super) fn counts(&self) -> (u64, u64) {
        (self.counts.sent.load(Ordering::Relaxed), self.counts.dropped.load(Ordering::Relaxed))
    }
}

impl Drop for Exporter {
    fn drop(&mut self) {
        self.sender.take();
        if self.thread.take().is_some_and(|thread| thread.join().is_err()) {
            tracing::error!("the thread that sends spans had panicked");
        }
    }
}

/// The thread that sends.
struct Sending {
    endpoint: Endpoint,
    spans: Receiver<Span>,
    counts: Arc<Counts>,
    /// Whether it was said that the collector cannot be reached; said once until it can.
    is_told: bool,
}

impl Sending {
    /// Goes on until nobody is left who could send anything.
    fn run(mut self) {
        while let Ok(first) = self.spans.recv() {
            let mut few = vec![first];
            let is_over = self.gather(&mut few);
            self.post(&few);
            // Who ends does not wait for a collector that cannot be reached once more.
            if is_over && self.is_told {
                let left = self.spans.try_iter().count();
                self.counts.dropped.fetch_add(left as u64, Ordering::Relaxed);
            }
        }
    }

    /// Waits a moment for more; true when no more will come.
    fn gather(&self, few: &mut Vec<Span>) -> bool {
        let until = Instant::now() + GATHER;
        while few.len() < AT_ONCE {
            match self.spans.recv_timeout(until.saturating_duration_since(Instant::now())) {
                Ok(span) => few.push(span),
                Err(RecvTimeoutError::Timeout) => return false,
                Err(RecvTimeoutError::Disconnected) => return true,
            }
        }
        false
    }

    fn post(&mut self, few: &[Span]) {
        let count = few.len() as u64;
        match self.endpoint.post(&span::document(few, self.endpoint.service()).to_string()) {
            Ok(()) => {
                self.counts.sent.fetch_add(count, Ordering::Relaxed);
                if std::mem::take(&mut self.is_told) {
                    tracing::info!(endpoint = %self.endpoint, "spans are sent again");
                }
            }
            Err(error) => {
                self.counts.dropped.fetch_add(count, Ordering::Relaxed);
                if !std::mem::replace(&mut self.is_told, true) {
                    tracing::warn!(endpoint = %self.endpoint, %error, "spans cannot be sent and are dropped");
                }
            }
        }
    }
}
