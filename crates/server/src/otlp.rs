//! Span exporter: sends spans of requests and runs to an OpenTelemetry collector as OTLP/JSON over HTTP.
//!
//! One thread sends batches and sleeps while there is nothing to send. Callers never wait: when the queue is full or the
//! collector cannot be reached, spans are dropped and counted.

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

/// The length of the queue, in spans.
const QUEUE_LENGTH: usize = 4_096;
/// The largest batch.
const BATCH_SIZE: usize = 512;
/// How long the first span of a batch waits for others.
const BATCH_DELAY: Duration = Duration::from_secs(1);

/// Queues spans for sending. Dropping it sends the rest.
pub(super) struct Exporter {
    /// None while it is being dropped.
    sender: Option<SyncSender<Span>>,
    thread: Option<JoinHandle<()>>,
    counts: Arc<Counts>,
}

/// How many spans were sent and dropped.
#[derive(Default)]
struct Counts {
    sent: AtomicU64,
    dropped: AtomicU64,
}

impl Exporter {
    /// Starts the thread that sends to this collector.
    pub(super) fn start(endpoint: Endpoint) -> io::Result<Self> {
        let (sender, spans) = sync_channel(QUEUE_LENGTH);
        let counts = Arc::new(Counts::default());
        let sender_thread = Sender { endpoint, spans, counts: Arc::clone(&counts), is_failing: false };
        let thread = thread::Builder::new().name("otlp".to_owned()).spawn(move || sender_thread.run())?;
        Ok(Self { sender: Some(sender), thread: Some(thread), counts })
    }

    /// Queues a span. Never waits.
    pub(super) fn send(&self, span: Span) {
        let queued = self.sender.as_ref().is_some_and(|sender| sender.try_send(span).is_ok());
        if !queued {
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
            tracing::error!("the thread that sends spans panicked");
        }
    }
}

/// The thread that sends.
struct Sender {
    endpoint: Endpoint,
    spans: Receiver<Span>,
    counts: Arc<Counts>,
    /// Whether the failure of the collector was logged. It is logged once until a batch is sent again.
    is_failing: bool,
}

impl Sender {
    /// Runs until the exporter is dropped.
    fn run(mut self) {
        while let Ok(first) = self.spans.recv() {
            let mut batch = vec![first];
            let is_over = self.fill(&mut batch);
            self.post(&batch);
            // At the end, do not wait a second time for a collector that cannot be reached.
            if is_over && self.is_failing {
                let left = self.spans.try_iter().count();
                self.counts.dropped.fetch_add(left as u64, Ordering::Relaxed);
            }
        }
    }

    /// Fills the batch for a moment; true when no more spans will come.
    fn fill(&self, batch: &mut Vec<Span>) -> bool {
        let until = Instant::now() + BATCH_DELAY;
        while batch.len() < BATCH_SIZE {
            match self.spans.recv_timeout(until.saturating_duration_since(Instant::now())) {
                Ok(span) => batch.push(span),
                Err(RecvTimeoutError::Timeout) => return false,
                Err(RecvTimeoutError::Disconnected) => return true,
            }
        }
        false
    }

    fn post(&mut self, batch: &[Span]) {
        let count = batch.len() as u64;
        match self.endpoint.post(&span::document(batch, self.endpoint.service()).to_string()) {
            Ok(()) => {
                self.counts.sent.fetch_add(count, Ordering::Relaxed);
                if std::mem::take(&mut self.is_failing) {
                    tracing::info!(endpoint = %self.endpoint, "spans are sent again");
                }
            }
            Err(error) => {
                self.counts.dropped.fetch_add(count, Ordering::Relaxed);
                if !std::mem::replace(&mut self.is_failing, true) {
                    tracing::warn!(endpoint = %self.endpoint, %error, "spans cannot be sent and are dropped");
                }
            }
        }
    }
}
