//! Stores: where leases, tickets, requests and runs are kept.
//!
//! [`LeaseStore`] has the contract for leases and tickets. [`RunStore`] has the contract for requests and runs.
//!
//! This crate is unstable: it has no semver promise. Programs use the crate `lockkeeper`.

pub mod encoding;
mod error;
mod lease_store;
mod memory;
#[cfg(any(feature = "postgres", feature = "redis"))]
mod optimistic;
#[cfg(feature = "postgres")]
pub mod postgres;
#[cfg(feature = "redis")]
pub mod redis;
pub mod runs;
#[cfg(any(feature = "postgres", feature = "redis"))]
mod server_address;
pub mod sqlite;

pub use error::StoreError;
pub use lease_store::{Commit, Examination, Granted, LeaseStore, Risk, Transaction, Waker};
pub use memory::MemoryStore;
#[cfg(feature = "postgres")]
pub use postgres::{PostgresAddress, PostgresStore};
#[cfg(feature = "redis")]
pub use redis::{RedisAddress, RedisStore};
#[cfg(feature = "postgres")]
pub use runs::PostgresRunStore;
pub use runs::{RunStore, SqliteRunStore};
#[cfg(any(feature = "postgres", feature = "redis"))]
pub use server_address::AddressError;
pub use sqlite::SqliteStore;
