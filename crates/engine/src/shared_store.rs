//! A store that several machines share: its address, its project, and the span of sessions.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use lockkeeper_core::time::{Ttl, format_span};
use lockkeeper_platform::{origin, runtime_folder};
pub use lockkeeper_store::AddressError;
#[cfg(feature = "etcd")]
use lockkeeper_store::EtcdAddress;
#[cfg(feature = "http")]
use lockkeeper_store::HttpAddress;
#[cfg(feature = "postgres")]
use lockkeeper_store::PostgresAddress;
#[cfg(feature = "redis")]
use lockkeeper_store::RedisAddress;
#[cfg(feature = "postgres")]
pub use lockkeeper_store::{LEAST_PRIVILEGES, ServerCheck};
use lockkeeper_store::{LeaseStore, StoreError};
use thiserror::Error;

use crate::open::OpenError;
#[cfg(feature = "postgres")]
use crate::open::PostgresServer;
use crate::{Engine, MachineProbe, sessions};

/// The longest name of a project.
const LONGEST_PROJECT: usize = 100;

/// Leases, requests and runs of one project on a server, or the runs on a second one.
#[derive(Clone, Debug)]
pub struct SharedStore {
    pub(crate) server: Server,
    /// The server of requests and runs. None if they are in the state folder of each machine.
    pub(crate) runs: Option<RunsServer>,
    project: String,
    pub(crate) connect_timeout: Duration,
    pub(crate) session: Ttl,
}

/// The kind of server.
#[derive(Clone, Debug)]
pub(crate) enum Server {
    #[cfg(feature = "etcd")]
    Etcd(EtcdAddress),
    #[cfg(feature = "http")]
    Http(HttpAddress),
    #[cfg(feature = "postgres")]
    Postgres(PostgresServer),
    #[cfg(feature = "redis")]
    Redis(RedisAddress),
}

/// The kind of server of requests and runs.
#[derive(Clone, Debug)]
pub(crate) enum RunsServer {
    #[cfg(feature = "http")]
    Http(HttpAddress),
    #[cfg(feature = "postgres")]
    Postgres(PostgresServer),
}

/// The settings of a store that several machines share.
#[derive(Clone, Copy, Debug)]
pub struct SharedStoreSettings<'s> {
    /// The address, such as `postgres://HOST/DATABASE`, `etcds://HOST,HOST`, `rediss://HOST` or `https://HOST`.
    pub address: &'s str,
    /// The store of requests and runs, if it is another one: `postgres://HOST/DATABASE`, or `sqlite:PATH` for a folder of each machine.
    pub runs: Option<&'s str>,
    /// The project. Leases of two projects never conflict.
    pub project: Option<&'s str>,
    /// A file with the password, or the token, and nothing else.
    pub password_file: Option<&'s Path>,
    /// How long the server may take to answer.
    pub connect_timeout: Duration,
    /// How long a lease lasts after the last heartbeat of a holder on another machine.
    pub session: Ttl,
    /// How long a command may take to end by itself before it is killed: it has to end before the session does.
    pub grace: Duration,
}

/// Why the settings name no store.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum SharedStoreError {
    /// The address cannot be used.
    #[error(transparent)]
    Address(#[from] AddressError),
    /// The address of requests and runs cannot be used.
    #[error("the address in `runs` cannot be used")]
    Runs(#[source] AddressError),
    /// Such a server keeps leases only.
    #[error("`runs` cannot name {0}, which keeps leases only")]
    KeepsNoRuns(&'static str),
    /// A folder that is served has requests and runs beside its leases.
    #[error(
        "`runs` cannot name a folder that `lockkeeper serve` serves: it has the runs of those whose `store` it is"
    )]
    RunsWithoutLeases,
    /// No project is named.
    #[error("a store that several machines share needs the name of a project")]
    NoProject,
    /// The name of the project is not allowed.
    #[error("`{0}` cannot be the name of a project")]
    BadProject(String),
    /// A session would end, or could not be renewed, before a command is stopped.
    #[error("`session` of {} is too short for a `grace` of {}", format_span(*session), format_span(*grace))]
    ShortSession {
        /// The session.
        session: Duration,
        /// The time that a command has to end by itself.
        grace: Duration,
        /// The shortest session that fits.
        shortest: Duration,
        /// The longest grace that fits.
        longest: Duration,
    },
    /// This program cannot reach such a server.
    #[error("this program was built without support for {0}")]
    NotBuilt(&'static str),
}

/// How addresses begin, by the kind of server.
const ETCD: &[&str] = &["etcd://", "etcds://"];
const HTTP: &[&str] = &["http://", "https://"];
const POSTGRES: &[&str] = &["postgres://", "postgresql://"];
const REDIS: &[&str] = &["redis://", "rediss://", "unix:", "redis+unix:"];

/// Whether an address is that of a server.
pub fn is_server(address: &str) -> bool {
    [ETCD, HTTP, POSTGRES, REDIS].iter().any(|schemes| begins_with(address, schemes))
}

fn begins_with(address: &str, schemes: &[&str]) -> bool {
    schemes.iter().any(|scheme| address.starts_with(scheme))
}

impl SharedStore {
    /// Reads the settings. Does not connect.
    pub fn new(settings: SharedStoreSettings<'_>) -> Result<Self, SharedStoreError> {
        let SharedStoreSettings { address, runs, project, password_file, connect_timeout, session, grace } =
            settings;
        let server = server(address, password_file)?;
        let runs = runs_server(runs, &server)?;
        let project = project.ok_or(SharedStoreError::NoProject)?;
        let is_plain = |character: char| !character.is_control() && !character.is_whitespace();
        if project.is_empty() || project.len() > LONGEST_PROJECT || !project.chars().all(is_plain) {
            return Err(SharedStoreError::BadProject(project.to_owned()));
        }
        let shortest = sessions::shortest_span(grace);
        if session.get() < shortest {
            let (session, longest) = (session.get(), sessions::longest_grace(session.get()));
            return Err(SharedStoreError::ShortSession { session, grace, shortest, longest });
        }
        let project = project.to_owned();
        Ok(Self { server, runs, project, connect_timeout, session })
    }

    /// The name of the project.
    pub fn project(&self) -> &str {
        &self.project
    }

    /// The server, for people. It contains no password.
    pub fn address(&self) -> String {
        match self.server {
            #[cfg(feature = "etcd")]
            Server::Etcd(ref address) => address.to_string(),
            #[cfg(feature = "http")]
            Server::Http(ref address) => address.to_string(),
            #[cfg(feature = "postgres")]
            Server::Postgres(ref server) => server.address.to_string(),
            #[cfg(feature = "redis")]
            Server::Redis(ref address) => address.to_string(),
        }
    }

    /// A unique name of this store: the server and the project.
    pub fn id(&self) -> String {
        format!("{}#{}", self.address(), self.project)
    }

    /// Whether a server keeps requests and runs. Otherwise they are in the state folder of each machine.
    pub fn keeps_runs(&self) -> bool {
        self.runs.is_some()
    }

    /// Whether any project can be made in this store, and removed again. A folder that is served has one.
    pub fn takes_any_project(&self) -> bool {
        let Some(runs) = &self.runs else { return false };
        match *runs {
            #[cfg(feature = "http")]
            RunsServer::Http(_) => false,
            #[cfg(feature = "postgres")]
            RunsServer::Postgres(_) => true,
        }
    }

    /// The PostgreSQL server of the leases, else that of requests and runs.
    #[cfg(feature = "postgres")]
    pub(crate) fn postgres(&self) -> Option<&PostgresServer> {
        match self.server {
            Server::Postgres(ref server) => Some(server),
            #[cfg(any(feature = "etcd", feature = "http", feature = "redis"))]
            _ => match &self.runs {
                Some(RunsServer::Postgres(server)) => Some(server),
                #[cfg(feature = "http")]
                Some(RunsServer::Http(_)) => None,
                None => None,
            },
        }
    }

    /// How long a lease lasts after the last heartbeat of a holder on another machine.
    pub fn session(&self) -> Duration {
        self.session.get()
    }

    /// The folder with the liveness locks of this machine's holders and workers.
    pub(crate) fn liveness_folder() -> Result<PathBuf, OpenError> {
        runtime_folder::runtime_folder().map_err(OpenError::Machine)
    }

    /// Opens the engine over this store. The liveness locks of this machine's holders are in a local folder.
    #[cfg_attr(
        not(any(feature = "etcd", feature = "http", feature = "postgres", feature = "redis")),
        expect(dead_code, reason = "without a kind of server nothing is opened")
    )]
    pub(crate) fn engine(&self, store: Arc<dyn LeaseStore>) -> Result<Engine, OpenError> {
        let mut here = origin::origin().map_err(OpenError::Machine)?;
        here.session = Some(self.session);
        let folder = Self::liveness_folder()?;
        let probe = MachineProbe::new(&folder, here)
            .map_err(|source| StoreError::io("open the locks in", &folder, source))?;
        let (shared_id, outage) = (Some(self.id()), self.connect_timeout);
        Ok(Engine { shared_id, outage, ..Engine::new(store, probe) })
    }
}

fn server(address: &str, password_file: Option<&Path>) -> Result<Server, SharedStoreError> {
    if begins_with(address, ETCD) {
        etcd(address, password_file)
    } else if begins_with(address, HTTP) {
        http(address, password_file)
    } else if begins_with(address, REDIS) {
        redis(address, password_file)
    } else {
        postgres(address, password_file)
    }
}

/// The server of requests and runs: that of the setting `runs`, else that of the leases if it keeps both.
fn runs_server(setting: Option<&str>, leases: &Server) -> Result<Option<RunsServer>, SharedStoreError> {
    let Some(setting) = setting else { return Ok(runs_beside(leases)) };
    if begins_with(setting, HTTP) {
        return Err(SharedStoreError::RunsWithoutLeases);
    }
    let kinds = [(ETCD, "an etcd cluster"), (REDIS, "a Redis server")];
    if let Some((_, kind)) = kinds.iter().find(|(schemes, _)| begins_with(setting, schemes)) {
        return Err(SharedStoreError::KeepsNoRuns(kind));
    }
    // A folder is one of each machine.
    if begins_with(setting, POSTGRES) { postgres_of_runs(setting, leases).map(Some) } else { Ok(None) }
}

/// The server of leases, if it keeps requests and runs as well.
fn runs_beside(leases: &Server) -> Option<RunsServer> {
    match *leases {
        #[cfg(feature = "etcd")]
        Server::Etcd(_) => None,
        #[cfg(feature = "http")]
        Server::Http(ref address) => Some(RunsServer::Http(address.clone())),
        #[cfg(feature = "postgres")]
        Server::Postgres(ref server) => Some(RunsServer::Postgres(server.clone())),
        #[cfg(feature = "redis")]
        Server::Redis(_) => None,
    }
}

#[cfg(feature = "postgres")]
fn postgres_of_runs(setting: &str, leases: &Server) -> Result<RunsServer, SharedStoreError> {
    let address = PostgresAddress::parse(setting, &variable, None).map_err(SharedStoreError::Runs)?;
    let beside = match leases {
        Server::Postgres(server) => Some(server),
        #[cfg(any(feature = "etcd", feature = "http", feature = "redis"))]
        _ => None,
    };
    // Leases and runs on one server share their connections.
    let is_beside = |server: &&PostgresServer| server.address.to_string() == address.to_string();
    let server = beside.filter(is_beside).cloned();
    Ok(RunsServer::Postgres(server.unwrap_or_else(|| PostgresServer::new(address))))
}

#[cfg(not(feature = "postgres"))]
fn postgres_of_runs(_setting: &str, _leases: &Server) -> Result<RunsServer, SharedStoreError> {
    Err(SharedStoreError::NotBuilt("PostgreSQL"))
}

#[cfg(feature = "etcd")]
fn etcd(address: &str, password_file: Option<&Path>) -> Result<Server, SharedStoreError> {
    Ok(Server::Etcd(EtcdAddress::parse(address, &variable, password_file)?))
}

#[cfg(not(feature = "etcd"))]
fn etcd(_address: &str, _password_file: Option<&Path>) -> Result<Server, SharedStoreError> {
    Err(SharedStoreError::NotBuilt("etcd"))
}

#[cfg(feature = "http")]
fn http(address: &str, token_file: Option<&Path>) -> Result<Server, SharedStoreError> {
    Ok(Server::Http(HttpAddress::parse(address, token_file)?))
}

#[cfg(not(feature = "http"))]
fn http(_address: &str, _token_file: Option<&Path>) -> Result<Server, SharedStoreError> {
    Err(SharedStoreError::NotBuilt("HTTP"))
}

#[cfg(feature = "postgres")]
fn postgres(address: &str, password_file: Option<&Path>) -> Result<Server, SharedStoreError> {
    let address = PostgresAddress::parse(address, &variable, password_file)?;
    Ok(Server::Postgres(PostgresServer::new(address)))
}

#[cfg(not(feature = "postgres"))]
fn postgres(_address: &str, _password_file: Option<&Path>) -> Result<Server, SharedStoreError> {
    Err(SharedStoreError::NotBuilt("PostgreSQL"))
}

#[cfg(feature = "redis")]
fn redis(address: &str, password_file: Option<&Path>) -> Result<Server, SharedStoreError> {
    Ok(Server::Redis(RedisAddress::parse(address, &variable, password_file)?))
}

#[cfg(not(feature = "redis"))]
fn redis(_address: &str, _password_file: Option<&Path>) -> Result<Server, SharedStoreError> {
    Err(SharedStoreError::NotBuilt("Redis"))
}

#[cfg(any(feature = "etcd", feature = "postgres", feature = "redis"))]
fn variable(name: &str) -> Option<String> {
    std::env::var(name).ok()
}

/// The same project on the same server.
impl PartialEq for SharedStore {
    fn eq(&self, other: &Self) -> bool {
        self.id() == other.id()
    }
}

impl Eq for SharedStore {}
