//! Shutdown signal with two stages: drain, then stop.

use tokio::sync::watch;

/// The stage of the shutdown.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Stage {
    Serving,
    Draining,
    Stopped,
}

/// Shutdown signal of a server. Clones share one signal.
#[derive(Clone, Debug)]
pub struct Shutdown(watch::Sender<Stage>);

impl Shutdown {
    /// A signal that was not given yet.
    pub fn new() -> Self {
        Self(watch::Sender::new(Stage::Serving))
    }

    /// Accepts no new connections; the server ends when open requests are answered.
    pub fn drain(&self) {
        self.0.send_if_modified(|stage| {
            std::mem::replace(stage, Stage::Draining.max(*stage)) < Stage::Draining
        });
    }

    /// Closes all connections; the server ends at once.
    pub fn stop(&self) {
        self.0.send_replace(Stage::Stopped);
    }

    /// Returns when the server has to drain or to stop.
    pub(super) async fn draining(&self) {
        self.reached(Stage::Draining).await;
    }

    /// Returns when the server has to stop.
    pub(super) async fn stopped(&self) {
        self.reached(Stage::Stopped).await;
    }

    async fn reached(&self, wanted: Stage) {
        // It fails only when the sender is dropped, and `self` owns the sender.
        let _ = self.0.subscribe().wait_for(|stage| *stage >= wanted).await;
    }
}

impl Default for Shutdown {
    fn default() -> Self {
        Self::new()
    }
}
