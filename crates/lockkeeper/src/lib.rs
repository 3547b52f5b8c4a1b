//! Locks that survive crashes, claims on paths, and a queue of runs, for many workers in one repository.
//!
//! This is the library behind the `lockkeeper` command. A program that uses it starts no subprocess. It shares its locks and
//! runs with every process that uses the command or the library on the same state folder.
//!
//! # Lock
//!
//! A [`Keeper`] opens the state folder. [`Keeper::lock`] starts a [`LockBuilder`]. The [`Guard`] holds the lock, and dropping the
//! guard releases it. If the process dies, the kernel frees the lock at once: nothing has to expire.
//!
//! ```
//! use lockkeeper::{Error, Keeper};
//!
//! # let folder = tempfile::tempdir()?;
//! let keeper = Keeper::open(folder.path())?; // or Keeper::discover()
//! let guard = keeper.lock("db").acquire()?; // waits in line
//!
//! // `try_acquire` never waits. The error says who holds the lock.
//! match keeper.lock("db").try_acquire() {
//!     Err(Error::Held { blockers, .. }) => assert_eq!(blockers[0].witness, "db"),
//!     other => panic!("{other:?}"),
//! }
//! drop(guard); // the next waiter holds it now
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! # Share, slots, paths
//!
//! One lock may protect several names and paths. It is granted for all of them or for none.
//!
//! ```
//! # use lockkeeper::Keeper;
//! # let folder = tempfile::tempdir()?;
//! # let keeper = Keeper::open(folder.path())?;
//! // Many readers, or one writer.
//! let one = keeper.lock("docs").shared().acquire()?;
//! let two = keeper.lock("docs").shared().acquire()?;
//! assert!(keeper.lock("docs").try_acquire().is_err());
//!
//! // At most three holders.
//! let build = keeper.lock("build").slots(3).acquire()?;
//!
//! // Patterns over paths: two locks exclude each other if some path matches both.
//! let edit = keeper.lock("git/index").path("src/**/*.rs").reason("rename User").acquire()?;
//! assert!(keeper.path("src/main.*").try_acquire().is_err());
//! assert!(keeper.path("docs/**").try_acquire().is_ok());
//! # drop((one, two, build, edit));
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! # Wait with a timeout
//!
//! Waiters are served by priority, then in the order in which they came. A wait that would never end is refused at once with
//! [`Error::Deadlock`].
//!
//! ```
//! # use std::time::Duration;
//! # use lockkeeper::{Error, Keeper};
//! # let folder = tempfile::tempdir()?;
//! # let keeper = Keeper::open(folder.path())?;
//! # let held = keeper.lock("db").acquire()?;
//! match keeper.lock("db").timeout(Duration::from_millis(10)).acquire() {
//!     Ok(guard) => println!("held with token {}", guard.token()),
//!     Err(Error::Timeout { blockers, .. }) => println!("still held: {}", blockers[0]),
//!     Err(error) => return Err(error.into()),
//! }
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! # Fencing token and loss
//!
//! Every grant has a larger [`Token`] than all grants before it. The protected system stores the largest token that it saw and
//! refuses smaller ones. So it refuses a holder that was stopped for a while and does not know yet that it lost the lock.
//!
//! A lock is lost only if a person breaks it, or if its TTL ends under a [`Contract`] that lets it go.
//!
//! ```
//! # use lockkeeper::Keeper;
//! # let folder = tempfile::tempdir()?;
//! # let keeper = Keeper::open(folder.path())?;
//! let guard = keeper.lock("deploy").acquire()?;
//! guard.on_lost(|loss| eprintln!("stop the deployment: {loss}"))?;
//! let largest_seen = guard.token().get(); // stored by the protected system
//! assert!(!guard.is_lost()?); // before each step that cannot be undone
//! guard.release()?; // as drop does, but it reports an error
//! assert!(keeper.lock("deploy").acquire()?.token().get() > largest_seen);
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! # Run
//!
//! [`Keeper::submit`] puts a command into the queue. A worker (`lockkeeper work`) executes it, under the locks that the
//! request names. The [`Run`] waits for the end, also if another process executes it.
//!
//! ```
//! # use std::time::Duration;
//! # use lockkeeper::Keeper;
//! # let folder = tempfile::tempdir()?;
//! # let keeper = Keeper::open(folder.path())?;
//! let build = keeper.submit(["make"]).path("target/**").enqueue()?;
//! let tests = keeper
//!     .submit(["make", "test"])
//!     .lock("db")
//!     .after(build.request_id())
//!     .retries(2)
//!     .timeout(Duration::from_secs(600))
//!     .enqueue()?;
//! # build.cancel()?;
//! # tests.cancel()?;
//! let outcome = tests.wait()?;
//! println!("{} {:?}", outcome.status, outcome.exit_code);
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! # Features
//!
//! | feature | default | what it adds |
//! |---|---|---|
//! | `cli` | yes | the command `lockkeeper`. A library turns it off with `default-features = false` |
//! | `tokio` | no | `LockBuilder::acquire_async` and `Run::wait_async` |
//!
//! This crate follows semantic versioning. The other crates `lockkeeper-*` are its parts and have no such promise.

mod keeper;

pub use keeper::{
    Blocker, Contract, Error, Guard, Keeper, Link, LockBuilder, Loss, Run, RunBuilder, RunOutcome, RunStatus,
    Token,
};
