//! A server in this process, on a free port.

use std::net::{SocketAddr, TcpListener};
use std::path::{Path, PathBuf};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use lockkeeper::Keeper;
use lockkeeper_core::time::Ttl;
use lockkeeper_engine::location::{Location, LocationSource};
use lockkeeper_engine::messages::Language;
use lockkeeper_engine::open::open_engine;
use lockkeeper_engine::runs::environment;
use lockkeeper_engine::runs::new_request::Defaults;
use lockkeeper_formats::group::Folders;
use lockkeeper_formats::swarm::Swarm;
use lockkeeper_server::{self, AppState, DoctorSettings, Limits, ServeError, Settings, Shutdown};
use lockkeeper_testing::http::Http;
use lockkeeper_testing::{World, world};

/// A running server. Dropping it stops it.
pub struct Server {
    pub address: SocketAddr,
    pub keeper: Keeper,
    state: AppState,
    shutdown: Shutdown,
    thread: Option<JoinHandle<Result<(), ServeError>>>,
    folder: PathBuf,
    world: Option<World>,
}

pub fn settings() -> Settings {
    Settings {
        token: None,
        allowed_hosts: Vec::new(),
        language: Language::En,
        ttl: Ttl::new(Duration::from_secs(300)).unwrap(),
        stays: Ttl::new(Duration::from_secs(120)).unwrap(),
        grace: Duration::from_secs(1),
        execution: lockkeeper_engine::work::Settings::default(),
        status_dir: None,
        defaults: Defaults { env: environment::of_submitter(std::env::vars_os()), ..Defaults::default() },
        queue_limit: None,
        doctor: DoctorSettings {
            groups: Folders::from_variables(&|_| None),
            max_group_age: Duration::from_secs(600),
            swarm: Swarm::new("/nonexistent", Ttl::new(Duration::from_secs(300)).unwrap()),
        },
        otlp: None,
        served: None,
        limits: Limits::default(),
    }
}

impl Server {
    /// A server with the usual settings, in a world of its own.
    pub fn start() -> Self {
        Self::with(settings())
    }

    pub fn with(settings: Settings) -> Self {
        let world = world!().with_state();
        let mut server = Self::over(world.cwd(), settings);
        server.world = Some(world);
        server
    }

    /// A server over a folder. Other servers may use the same folder.
    pub fn over(folder: &Path, settings: Settings) -> Self {
        let mut settings = settings;
        settings.defaults.dir = folder.to_owned();
        let keeper = Keeper::open(folder.join("state")).unwrap();
        let location = Location {
            state: folder.join("state"),
            root: folder.to_owned(),
            source: LocationSource::Named,
            shared: None,
        };
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        let shutdown = Shutdown::new();
        let state = AppState::new(open_engine(&location.state).unwrap(), location, settings).unwrap();
        let (site, told) = (state.clone(), shutdown.clone());
        let thread = Some(thread::spawn(move || lockkeeper_server::run(listener, None, &site, &told)));
        Self { address, keeper, state, shutdown, thread, folder: folder.to_owned(), world: None }
    }

    pub fn folder(&self) -> &Path {
        &self.folder
    }

    /// The world of [`Server::start`] and [`Server::with`].
    pub fn world(&self) -> &World {
        self.world.as_ref().expect("a server over a given folder has no world")
    }

    /// The path of a link that logs a browser in once.
    pub fn login_path(&self) -> String {
        self.state.login_path().unwrap()
    }

    pub fn stop(&self) {
        self.shutdown.stop();
    }

    pub fn drain(&self) {
        self.shutdown.drain();
    }

    /// Waits for its end.
    pub fn ended(&mut self) -> Result<(), ServeError> {
        self.thread.take().unwrap().join().unwrap()
    }
}

impl Http for Server {
    fn address(&self) -> SocketAddr {
        self.address
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        self.shutdown.stop();
        if let Some(thread) = self.thread.take() {
            let ended = thread.join();
            if !thread::panicking() {
                ended.unwrap().unwrap();
            }
        }
    }
}
