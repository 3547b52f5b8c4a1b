//! Stores: where leases, tickets, requests and runs are kept.
//!
//! [`LeaseStore`] has the contract for leases and tickets. [`RunStore`] has the contract for requests and runs.
//!
//! This crate is unstable: it has no semver promise. Programs use the crate `lockkeeper`.

pub mod encoding;
mod error;
mod lease_store;
mod memory;
#[cfg(feature = "postgres")]
pub mod postgres;
pub mod runs;
pub mod sqlite;

pub use error::StoreError;
pub use lease_store::{Commit, Examination, Granted, LeaseStore, Transaction, Waker};
pub use memory::MemoryStore;
#[cfg(feature = "postgres")]
pub use postgres::{AddressError, LEAST_PRIVILEGES, PostgresAddress, PostgresStore, ServerCheck};
#[cfg(feature = "postgres")]
pub use runs::PostgresRunStore;
pub use runs::{RunStore, SqliteRunStore};
pub use sqlite::SqliteStore;
