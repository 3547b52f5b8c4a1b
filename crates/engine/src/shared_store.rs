//! A store that several machines share: where it is, which project's leases it has, and how long a holder may be silent.

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use lockkeeper_core::time::Ttl;
use lockkeeper_platform::{origin, runtime_folder};
#[cfg(feature = "postgres")]
pub use lockkeeper_store::AddressError;
#[cfg(feature = "postgres")]
use lockkeeper_store::PostgresAddress;
#[cfg(feature = "postgres")]
pub use lockkeeper_store::{LEAST_PRIVILEGES, ServerCheck};
use lockkeeper_store::{LeaseStore, StoreError};
use thiserror::Error;

use crate::open::OpenError;
use crate::{Engine, MachineProbe};

/// The longest name of a project.
const LONGEST_PROJECT: usize = 100;

/// Leases of one project on a server.
#[derive(Clone, Debug)]
pub struct SharedStore {
    pub(crate) server: Server,
    project: String,
    #[cfg_attr(
        not(feature = "postgres"),
        expect(dead_code, reason = "without a kind of server nothing is opened")
    )]
    pub(crate) connect_timeout: Duration,
    session: Ttl,
}

/// The kind of server.
#[derive(Clone, Debug)]
pub(crate) enum Server {
    #[cfg(feature = "postgres")]
    Postgres(PostgresAddress),
}

/// What the settings say about a store that several machines share.
#[derive(Clone, Copy, Debug)]
pub struct SharedStoreSettings<'s> {
    /// The address, such as `postgres://HOST/DATABASE`.
    pub address: &'s str,
    /// The project. Leases of two projects never meet.
    pub project: Option<&'s str>,
    /// A file with the password and nothing else.
    pub password_file: Option<&'s Path>,
    /// How long the server may take to answer.
    pub connect_timeout: Duration,
    /// How long a lease lasts after the last sign of life of a holder on another machine.
    pub session: Ttl,
}

/// Why the settings name no store.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum SharedStoreError {
    /// The address cannot be used.
    #[cfg(feature = "postgres")]
    #[error(transparent)]
    Address(#[from] lockkeeper_store::AddressError),
    /// No project is named.
    #[error("a store that several machines share needs the name of a project")]
    NoProject,
    /// The name of the project cannot be one.
    #[error("`{0}` cannot be the name of a project")]
    BadProject(String),
    /// This program cannot reach such a server.
    #[error("this program was built without support for PostgreSQL")]
    NotBuilt,
}

/// Whether an address is that of a server.
pub fn is_server(address: &str) -> bool {
    ["postgres://", "postgresql://"].iter().any(|scheme| address.starts_with(scheme))
}

impl SharedStore {
    /// Reads the settings. Does not connect.
    pub fn new(settings: SharedStoreSettings<'_>) -> Result<Self, SharedStoreError> {
        let SharedStoreSettings { address, project, password_file, connect_timeout, session } = settings;
        let server = server(address, password_file)?;
        let project = project.ok_or(SharedStoreError::NoProject)?;
        let is_plain = |character: char| !character.is_control() && !character.is_whitespace();
        if project.is_empty() || project.len() > LONGEST_PROJECT || !project.chars().all(is_plain) {
            return Err(SharedStoreError::BadProject(project.to_owned()));
        }
        Ok(Self { server, project: project.to_owned(), connect_timeout, session })
    }

    /// The name of the project.
    pub fn project(&self) -> &str {
        &self.project
    }

    /// The server, for people. It contains no password.
    pub fn address(&self) -> String {
        match self.server {
            #[cfg(feature = "postgres")]
            Server::Postgres(ref address) => address.to_string(),
        }
    }

    /// What tells this store from every other one: the server and the project.
    pub fn id(&self) -> String {
        format!("{}#{}", self.address(), self.project)
    }

    /// Opens the engine over this store. The kernel locks of this machine's holders are in a local folder.
    pub(crate) fn engine(&self, store: Arc<dyn LeaseStore>) -> Result<Engine, OpenError> {
        let mut here = origin::origin().map_err(OpenError::Machine)?;
        here.session = Some(self.session);
        let folder = runtime_folder::runtime_folder().map_err(OpenError::Machine)?;
        let probe = MachineProbe::new(&folder, here)
            .map_err(|source| StoreError::io("open the locks in", &folder, source))?;
        let (shared_id, outage) = (Some(self.id()), self.connect_timeout);
        Ok(Engine { shared_id, outage, ..Engine::new(store, probe) })
    }
}

#[cfg(feature = "postgres")]
fn server(address: &str, password_file: Option<&Path>) -> Result<Server, SharedStoreError> {
    let variable = |name: &str| std::env::var(name).ok();
    Ok(Server::Postgres(PostgresAddress::parse(address, &variable, password_file)?))
}

#[cfg(not(feature = "postgres"))]
fn server(_address: &str, _password_file: Option<&Path>) -> Result<Server, SharedStoreError> {
    Err(SharedStoreError::NotBuilt)
}

/// The same project on the same server.
impl PartialEq for SharedStore {
    fn eq(&self, other: &Self) -> bool {
        self.id() == other.id()
    }
}

impl Eq for SharedStore {}
