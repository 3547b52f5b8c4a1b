//! Stores: where leases, tickets, requests and runs are kept.
//!
//! [`LeaseStore`] has the contract for leases and tickets. [`RunStore`] has the contract for requests and runs.
//!
//! This crate is unstable: it has no semver promise. Programs use the crate `lockkeeper`.

mod address_error;
pub mod encoding;
mod error;
#[cfg(feature = "etcd")]
pub mod etcd;
#[cfg(feature = "http")]
pub mod http;
mod lease_store;
mod memory;
#[cfg(any(feature = "etcd", feature = "http", feature = "postgres", feature = "redis"))]
mod optimistic;
#[cfg(feature = "postgres")]
pub mod postgres;
#[cfg(feature = "redis")]
pub mod redis;
pub mod runs;
#[cfg(any(feature = "etcd", feature = "http", feature = "postgres", feature = "redis"))]
mod server_address;
#[cfg(any(feature = "http", feature = "redis"))]
mod server_stream;
pub mod sqlite;

pub use address_error::AddressError;
pub use error::StoreError;
#[cfg(feature = "etcd")]
pub use etcd::{EtcdAddress, EtcdStore};
#[cfg(feature = "http")]
pub use http::{HttpAddress, HttpStore};
pub use lease_store::{Commit, Examination, Granted, LeaseStore, Risk, Transaction, Waker};
pub use memory::MemoryStore;
#[cfg(feature = "postgres")]
pub use postgres::{LEAST_PRIVILEGES, PostgresAddress, PostgresStore, ServerCheck};
#[cfg(feature = "redis")]
pub use redis::{RedisAddress, RedisStore};
#[cfg(feature = "http")]
pub use runs::HttpRunStore;
#[cfg(feature = "postgres")]
pub use runs::PostgresRunStore;
pub use runs::{RunStore, SqliteRunStore};
pub use sqlite::SqliteStore;
#[cfg(feature = "http")]
pub use sqlite::served::{ServedFolder, ServedWaker};
