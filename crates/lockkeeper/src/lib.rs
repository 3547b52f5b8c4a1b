//! Lockkeeper keeps many automated workers in one repository from stepping on each other.
//!
//! This is the library behind the `lockkeeper` command: a program that uses it needs no subprocess, and
//! shares its locks with everything that uses the command in the same repository.
//!
//! ```
//! use std::time::Duration;
//! use lockkeeper::Keeper;
//!
//! # let folder = tempfile::tempdir()?;
//! let keeper = Keeper::open(folder.path())?; // or Keeper::discover()
//! let guard = keeper.lock("db").path("src/api/**").wait(Duration::from_secs(30)).acquire()?;
//! println!("we hold it with token {}", guard.token());
//! assert!(!guard.is_lost()?);
//! drop(guard); // the next waiter holds it now
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! A [`Guard`] is held for as long as this process lives, however it ends: the kernel itself vouches for it,
//! so there is nothing to renew unless a TTL was asked for. See [`Keeper`] for waiting, sharing and slots.

mod keeper;

pub use keeper::{Guard, Keeper, KeeperError, LockBuilder};
