//! Application state: the engine, the settings, and what all HTTP requests share.

use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Instant;

use axum::http::StatusCode;
use lockkeeper_core::alert::{Counts, DOWNGRADE_SPAN};
use lockkeeper_engine::doctor::{self, Diagnosis, Opened, Pass};
use lockkeeper_engine::foreign_locks::{ForeignLocks, ForeignPlaces};
use lockkeeper_engine::location::Location;
use lockkeeper_engine::messages::Messages;
use lockkeeper_engine::report::Report;
use lockkeeper_engine::runs::{RunError, Runs};
#[cfg(feature = "http")]
use lockkeeper_engine::served::ServedStore;
use lockkeeper_engine::stages::report::Report as Executions;
use lockkeeper_engine::work::{Listener, WorkerEvent};
use lockkeeper_engine::{Engine, Listing};
use lockkeeper_platform::wall_clock::WallTime;

use crate::broadcast::Broadcaster;
use crate::error::ApiError;
use crate::idempotency::IdempotencyCache;
use crate::log;
use crate::metrics::HttpMetrics;
use crate::otlp::{Exporter, Span};
use crate::run_spawner::RunSpawner;
use crate::sessions::Sessions;
use crate::settings::{Limits, Settings};

/// State shared by all HTTP requests. Clones share one instance.
#[derive(Clone)]
pub struct AppState(Arc<Inner>);

struct Inner {
    leases: Arc<Engine>,
    location: Location,
    settings: Settings,
    messages: Messages,
    broadcaster: Broadcaster,
    idempotency: IdempotencyCache,
    http_metrics: HttpMetrics,
    runs: Runs,
    run_spawner: RunSpawner,
    exporter: Option<Exporter>,
    sessions: Sessions,
    #[cfg(feature = "http")]
    served: Option<Arc<ServedStore>>,
}

impl AppState {
    /// Opens the runs of this state folder, and starts the span exporter if one is set.
    pub fn new(leases: Engine, location: Location, settings: Settings) -> Result<Self, RunError> {
        let runs = Runs::at(&location)?;
        let exporter = settings.otlp.clone().map(Exporter::start).transpose().map_err(RunError::Machine)?;
        #[cfg(feature = "http")]
        let served = settings.served.as_ref().filter(|_| location.shared.is_none());
        #[cfg(feature = "http")]
        let served = served.map(|(project, session)| ServedStore::new(&location, project, *session));
        Ok(Self(Arc::new(Inner {
            #[cfg(feature = "http")]
            served: served.map(Arc::new),
            leases: Arc::new(leases),
            location,
            messages: Messages::load(),
            broadcaster: Broadcaster::new(),
            idempotency: IdempotencyCache::default(),
            http_metrics: HttpMetrics::default(),
            settings,
            runs,
            run_spawner: RunSpawner::new(),
            exporter,
            sessions: Sessions::default(),
        })))
    }

    pub(super) fn leases(&self) -> &Arc<Engine> {
        &self.0.leases
    }

    pub(super) fn runs(&self) -> &Runs {
        &self.0.runs
    }

    pub(super) fn run_spawner(&self) -> &RunSpawner {
        &self.0.run_spawner
    }

    /// Runs the doctor.
    pub(super) fn examine(&self, pass: Pass) -> Diagnosis {
        let doctor = &self.settings().doctor;
        let inputs = doctor::Inputs {
            location: &self.0.location,
            store: Opened::Open(self.leases()),
            groups: &doctor.groups,
            max_group_age: doctor.max_group_age,
            swarm: &doctor.swarm,
            downgrades: self.downgrades(),
            now: WallTime::now(),
        };
        doctor::examine(&inputs, pass, &mut |_, _, _| {})
    }

    /// The locks of other formats.
    pub(super) fn foreign_locks(&self) -> ForeignLocks {
        let doctor = &self.settings().doctor;
        let places = ForeignPlaces { root: self.root(), swarm: &doctor.swarm, groups: &doctor.groups };
        ForeignLocks::look(places, WallTime::now())
    }

    /// The counts that alerts are raised from.
    pub(super) fn counts(&self, listing: &Listing, foreign: &ForeignLocks) -> Result<Counts, Report> {
        let mut counts = doctor::count_leases(self.leases(), listing)?;
        counts.downgrades = self.downgrades();
        foreign.add_to(&mut counts);
        Ok(counts)
    }

    /// How many downgrades executions had recently.
    fn downgrades(&self) -> usize {
        Executions::all_downgrades_since(self.state_folder(), WallTime::now().before(DOWNGRADE_SPAN))
    }

    pub(super) fn location(&self) -> &Location {
        &self.0.location
    }

    pub(super) fn state_folder(&self) -> &Path {
        &self.0.location.state
    }

    /// The root folder of the project. All paths are relative to it.
    pub(super) fn root(&self) -> &Path {
        &self.0.location.root
    }

    pub(super) fn settings(&self) -> &Settings {
        &self.0.settings
    }

    pub(super) fn limits(&self) -> Limits {
        self.0.settings.limits
    }

    pub(super) fn messages(&self) -> &Messages {
        &self.0.messages
    }

    pub(super) fn broadcaster(&self) -> &Broadcaster {
        &self.0.broadcaster
    }

    pub(super) fn idempotency(&self) -> &IdempotencyCache {
        &self.0.idempotency
    }

    pub(super) fn http_metrics(&self) -> &HttpMetrics {
        &self.0.http_metrics
    }

    /// The leases of the state folder as a store of other machines, if they may use it.
    #[cfg(feature = "http")]
    pub(super) fn served(&self) -> Option<&Arc<ServedStore>> {
        self.0.served.as_ref()
    }

    /// The sessions of browsers.
    pub(super) fn sessions(&self) -> &Sessions {
        &self.0.sessions
    }

    /// Makes the path of a page that logs a browser in, once. Without a token it is the first page.
    pub fn login_path(&self) -> io::Result<String> {
        match &self.settings().token {
            // Browsers do not send what follows the `#`: no log of a server or proxy has the code.
            Some(token) => {
                let code = self.sessions().new_code(token.version(), Instant::now())?;
                Ok(format!("/login#code={code}"))
            }
            None => Ok(String::new()),
        }
    }

    /// The span exporter, if a collector is set.
    pub(super) fn exporter(&self) -> Option<&Exporter> {
        self.0.exporter.as_ref()
    }

    /// Returns a listener for the events of a worker: it logs them, and exports a span for each attempt.
    pub fn worker_listener(&self) -> Box<Listener> {
        let inner = Arc::downgrade(&self.0);
        Box::new(move |event| {
            log::worker_event(event);
            let (WorkerEvent::Ended(run) | WorkerEvent::Retrying(run)) = event else { return };
            let Some(state) = inner.upgrade() else { return };
            let now = WallTime::from_micros(state.runs.now().unix_micros);
            if let (Some(exporter), Some(span)) = (&state.exporter, Span::of_attempt(run, now)) {
                exporter.send(span);
            }
        })
    }

    /// Makes a path of a user relative to the root.
    pub(super) fn below_root(&self, text: &str) -> Result<String, Report> {
        let root: &PathBuf = &self.0.location.root;
        Ok(self.0.location.from_root(text, root)?)
    }

    /// Calls the lease engine on a blocking thread.
    pub(super) async fn with_leases<T: Send + 'static>(
        &self,
        call: impl FnOnce(&Engine) -> Result<T, Report> + Send + 'static,
    ) -> Result<T, ApiError> {
        self.blocking(move |state| call(state.leases())).await
    }

    /// Runs a closure on a blocking thread.
    pub(super) async fn blocking<T: Send + 'static>(
        &self,
        call: impl FnOnce(&Self) -> Result<T, Report> + Send + 'static,
    ) -> Result<T, ApiError> {
        let state = self.clone();
        let answered = tokio::task::spawn_blocking(move || call(&state)).await;
        match answered {
            Ok(answer) => answer.map_err(ApiError::from),
            Err(panic) => Err(ApiError::internal(format!("a call to the engine ended: {panic}"))),
        }
    }

    /// Runs a closure on a blocking thread without waiting for it. A failure is only logged.
    pub(super) fn in_background(
        &self,
        what: &'static str,
        task: impl FnOnce(&Engine) -> Result<(), Report> + Send + 'static,
    ) {
        let leases = Arc::clone(&self.0.leases);
        tokio::task::spawn_blocking(move || {
            if let Err(report) = task(&leases) {
                tracing::error!(%report, "cannot {what}");
            }
        });
    }
}

/// The error for a request that took too long.
pub(super) fn timed_out() -> ApiError {
    let report = Report::new(
        lockkeeper_engine::report::Exit::Unreachable,
        "REQUEST_TIMEOUT",
        "the request took too long",
    )
    .with_hint("send it again, all of it at once");
    ApiError::new(StatusCode::REQUEST_TIMEOUT, report)
}
