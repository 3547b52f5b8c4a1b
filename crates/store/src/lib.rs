//! Stores: where leases, tickets, requests and runs are kept.
//!
//! [`LeaseStore`] has the contract for leases and tickets. [`RunStore`] has the contract for requests and runs.
//!
//! This crate is unstable: it has no semver promise. Programs use the crate `lockkeeper`.

#[cfg(any(feature = "etcd", feature = "postgres"))]
mod address;
mod address_error;
pub mod encoding;
mod error;
#[cfg(feature = "etcd")]
pub mod etcd;
mod lease_store;
#[cfg(any(feature = "etcd", feature = "postgres"))]
mod listener;
mod memory;
#[cfg(any(feature = "etcd", feature = "postgres"))]
mod parts;
#[cfg(feature = "postgres")]
pub mod postgres;
pub mod runs;
pub mod sqlite;

pub use address_error::AddressError;
pub use error::StoreError;
#[cfg(feature = "etcd")]
pub use etcd::{EtcdAddress, EtcdStore};
pub use lease_store::{Commit, Examination, Granted, LeaseStore, Transaction, Waker};
pub use memory::MemoryStore;
#[cfg(feature = "postgres")]
pub use postgres::{PostgresAddress, PostgresStore};
#[cfg(feature = "postgres")]
pub use runs::PostgresRunStore;
pub use runs::{RunStore, SqliteRunStore};
pub use sqlite::SqliteStore;
