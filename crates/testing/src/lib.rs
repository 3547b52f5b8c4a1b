//! Test support: temporary worlds, guarded processes, waiting with a limit, seeded dice, an HTTP client, a fake
//! language model.
//!
//! A test reads like an example:
//!
//! ```no_run
//! # use lockkeeper_testing::{Signal, World};
//! # let program = "lockkeeper";
//! let world = World::new(program).git();
//! let holder = world.hold(&["db"]);
//! let waiter = world.start(["exec", "db", "--", "echo", "ran"]);
//! world.until_waiting(1);
//! holder.finish().code(0);
//! waiter.wait().code(0).prints("ran");
//! ```
//!
//! Tests of the command write `world!()`, which fills in the program that Cargo built for them.
//! The crate is only a dev-dependency; `tests/architecture.rs` checks that.
#![expect(clippy::unwrap_used, reason = "a test fails by panicking, in its helpers too")]

mod certificate;
mod dice;
mod etcd_cluster;
mod fake_model;
pub mod files;
mod finished;
pub mod http;
mod pooler;
mod postgres_server;
pub mod processes;
mod redis_server;
mod relay;
mod server;
mod server_proxy;
pub mod stages;
mod started;
mod stream;
mod terminal;
mod tools;
mod wait;
mod world;

pub use certificate::Certificate;
pub use dice::Dice;
pub use etcd_cluster::{EtcdCluster, EtcdPlace, etcd_remembers};
pub use fake_model::{Asked, Call, FakeModel, Script};
pub use finished::Finished;
pub use pooler::Pooler;
pub use postgres_server::PostgresServer;
pub use redis_server::{RedisServer, redis_command};
pub use relay::Relay;
pub use rustix::process::Signal;
pub use server::ServerProcess;
pub use server_proxy::{Break, ServerProxy};
pub use started::Started;
pub use terminal::Terminal;
pub use tools::{is_installed, is_root, skip, skip_server, this_test, this_test_line};
pub use wait::{LIMIT, until, until_seen};
pub use world::World;

/// Makes a [`World`] for the program that Cargo built for this test.
#[macro_export]
macro_rules! world {
    () => {
        $crate::World::new(env!("CARGO_BIN_EXE_lockkeeper"))
    };
}
