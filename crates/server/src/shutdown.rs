//! Being told to stop: first gently, then at once.

use tokio::sync::watch;

/// How far the end of a server has come.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Stage {
    Serving,
    Draining,
    Stopped,
}

/// Tells a server to stop; all clones tell the same one.
#[derive(Clone, Debug)]
pub struct Shutdown(watch::Sender<Stage>);

impl Shutdown {
    /// A server that goes on until told.
    pub fn new() -> Self {
        Self(watch::Sender::new(Stage::Serving))
    }

    /// Takes no new connections, and ends once those who are there have been answered.
    pub fn drain(&self) {
        self.0.send_if_modified(|stage| {
            std::mem::replace(stage, Stage::Draining.max(*stage)) < Stage::Draining
        });
    }

    /// Ends at once.
    pub fn stop(&self) {
        self.0.send_replace(Stage::Stopped);
    }

    /// Returns when the server is to end, however.
    pub(super) async fn draining(&self) {
        self.reached(Stage::Draining).await;
    }

    /// Returns when the server is to end at once.
    pub(super) async fn stopped(&self) {
        self.reached(Stage::Stopped).await;
    }

    async fn reached(&self, wanted: Stage) {
        // The sender is ours, so that it cannot be gone.
        let _ = self.0.subscribe().wait_for(|stage| *stage >= wanted).await;
    }
}

impl Default for Shutdown {
    fn default() -> Self {
        Self::new()
    }
}
