//! A world with requests in its store, and workers on it.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};

use lockkeeper_core::id::RunId;
use lockkeeper_core::request::Request;
use lockkeeper_core::retry::RetryPolicy;
use lockkeeper_core::run::Run;
use lockkeeper_engine::runs::Runs;
use lockkeeper_testing::{Signal, Started, World, processes};
use rusqlite::Connection;
use serde_json::Value;

pub(crate) use lockkeeper_testing::processes::{is_alive as lives, is_stopped, pid_in as number_in};
pub(crate) use lockkeeper_testing::{LIMIT as PATIENCE, until};

/// A world whose store is beside the working folder, in which commands run.
pub(crate) struct Site {
    world: World,
    pub(crate) runs: Runs,
}

impl Site {
    pub(crate) fn new() -> Self {
        Self::in_folder(tempfile::tempdir().unwrap())
    }

    pub(crate) fn in_folder(folder: tempfile::TempDir) -> Self {
        let world = World::in_folder(folder, env!("CARGO_BIN_EXE_lockkeeper"));
        let store = world.beside("store");
        let runs = Runs::open(&store).unwrap();
        Self { world: world.set("LOCKKEEPER_DIR", store).set("LOCKKEEPER_GRACE", "2s"), runs }
    }

    pub(crate) fn store(&self) -> PathBuf {
        self.world.beside("store")
    }

    /// A path beside the store.
    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.world.beside(name)
    }

    /// Where commands run.
    pub(crate) fn dir(&self) -> PathBuf {
        self.world.cwd().to_owned()
    }

    /// A request that runs a shell script in [`Site::dir`].
    pub(crate) fn script(&self, id: &str, script: &str) -> Request {
        self.command(id, &["sh", "-c", script])
    }

    pub(crate) fn command(&self, id: &str, command: &[&str]) -> Request {
        let command = command.iter().map(|word| (*word).to_owned()).collect();
        let dir = self.dir().to_str().unwrap().to_owned();
        Request {
            title: format!("do {id}"),
            env: vec![("PATH".to_owned(), std::env::var("PATH").unwrap())],
            retry: RetryPolicy { base: Duration::from_millis(20), ..RetryPolicy::default() },
            ..Request::new(id.parse().unwrap(), command, dir)
        }
    }

    /// Makes everything that is there look like that of an earlier boot.
    pub(crate) fn pretend_another_boot(&self) {
        let database = Connection::open(self.store().join("runs.db")).unwrap();
        database.execute_batch("UPDATE clock SET boot = 'another boot'").unwrap();
        for worker in std::fs::read_dir(self.store().join("spare")).into_iter().flatten() {
            let ended = worker.unwrap().path().join("ended");
            let here = lockkeeper_platform::origin::origin().unwrap().boot;
            // Earlier versions made none.
            let Ok(text) = std::fs::read_to_string(&ended) else { continue };
            std::fs::write(&ended, text.replace(&here, &"b".repeat(here.len()))).unwrap();
        }
    }

    pub(crate) fn submit(&self, request: &Request) -> RunId {
        self.runs.submit(request, None).unwrap().run
    }

    pub(crate) fn run(&self, id: &RunId) -> Run {
        self.runs.show(id).unwrap().run
    }

    /// Waits until a run has ended.
    pub(crate) fn end_of(&self, id: &RunId) -> Run {
        let run = self.runs.wait(id, Some(Instant::now() + PATIENCE), None).unwrap();
        assert!(run.status().is_terminal(), "it does not end: {:#?}", self.runs.show(id).unwrap());
        run
    }

    /// The kinds of a run's events, in order.
    pub(crate) fn kinds(&self, id: &RunId) -> Vec<String> {
        self.runs.show(id).unwrap().events.into_iter().map(|event| event.kind).collect()
    }

    /// `lockkeeper work` on this store.
    pub(crate) fn worker(&self, args: &[&str]) -> Worker {
        self.worker_under(&[], args)
    }

    /// The same under another program, such as `strace`.
    pub(crate) fn worker_under(&self, wrapper: &[&str], args: &[&str]) -> Worker {
        let mut command = self.lockkeeper_under(wrapper, &[&["--json", "work"], args].concat());
        Worker { process: Started::of(&mut command) }
    }

    /// How many calls of one kind the dynamic loader makes before the program begins.
    pub(crate) fn calls_of_the_loader(&self, call: &str) -> usize {
        self.world.calls_of_the_loader(call)
    }

    /// Stops a worker, but not while it writes: nobody else could write before it goes on.
    pub(crate) fn freeze(&self, worker: &Worker) {
        loop {
            worker.signal(Signal::STOP);
            until("the worker is stopped", || is_stopped(worker.pid()));
            if self.can_be_written() {
                return;
            }
            worker.signal(Signal::CONT);
        }
    }

    /// Whether nobody writes to the store now.
    pub(crate) fn can_be_written(&self) -> bool {
        ["gate", "runs.gate"].iter().all(|name| match std::fs::File::open(self.store().join(name)) {
            Ok(file) => file.try_lock().is_ok(),
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => true,
            Err(error) => panic!("{name}: {error}"),
        })
    }

    /// Holds a lease with `exec` until [`Started::finish`].
    pub(crate) fn hold(&self, args: &[&str]) -> Started {
        self.world.hold(args)
    }

    /// Any command of `lockkeeper` on this store, in the folder beside the store.
    pub(crate) fn lockkeeper(&self, args: &[&str]) -> Command {
        self.lockkeeper_under(&[], args)
    }

    /// The same under another program, such as `unshare`.
    pub(crate) fn lockkeeper_under(&self, wrapper: &[&str], args: &[&str]) -> Command {
        let mut command = if wrapper.is_empty() {
            self.world.lockkeeper(args)
        } else {
            self.world.lockkeeper_under(wrapper, args)
        };
        command.current_dir(self.path(""));
        command
    }

    /// Works until nothing is left to do. Runs may fail.
    pub(crate) fn drain(&self, jobs: &str) {
        let mut worker = self.worker(&["--jobs", jobs, "--drain"]);
        assert!(matches!(worker.wait(), Some(0 | 1)));
    }

    /// The lines that commands wrote to `record`.
    pub(crate) fn record(&self) -> Vec<String> {
        let text = std::fs::read_to_string(self.dir().join("record")).unwrap_or_default();
        text.lines().map(ToOwned::to_owned).collect()
    }

    pub(crate) fn output_of(&self, id: &RunId) -> Vec<u8> {
        std::fs::read(self.runs.folder_of(id).output()).unwrap()
    }

    /// Nobody holds or waits for anything, nothing of a run is thought to live, and no process carries its mark.
    pub(crate) fn assert_settled(&self, about: &str) {
        let leases = lockkeeper_engine::open::open_engine(&self.store()).unwrap();
        leases.clean_up().unwrap();
        let listing = leases.listing().unwrap();
        assert!(listing.holders.is_empty() && listing.waiters.is_empty(), "{about}: {listing:?}");
        let living = self.runs.store().snapshot().unwrap().active_runs().unwrap();
        assert!(living.is_empty(), "{about}: {living:?}");
        let left = marked(&self.store());
        assert!(left.is_empty(), "{about}: processes {left:?} are left");
    }
}

/// Processes that were started for a run of this store.
pub(crate) fn marked(store: &Path) -> Vec<u32> {
    processes::of_runs(store)
}

/// A worker that runs, and the events that it prints.
pub(crate) struct Worker {
    process: Started,
}

impl Worker {
    pub(crate) fn pid(&self) -> u32 {
        self.process.pid()
    }

    /// The next event; none when the worker has ended.
    pub(crate) fn try_told(&mut self) -> Option<Value> {
        self.process.try_json()
    }

    /// Reads on until an event of this kind.
    pub(crate) fn until(&mut self, event: &str) -> Value {
        loop {
            let told = self.try_told().unwrap_or_else(|| panic!("it ended before it told `{event}`"));
            if told["event"] == event {
                return told;
            }
        }
    }

    pub(crate) fn signal(&self, signal: Signal) {
        self.process.signal(signal);
    }

    pub(crate) fn kill(&mut self) {
        self.process.kill();
    }

    /// Its exit code, or 128 and the signal.
    pub(crate) fn wait(&mut self) -> Option<i32> {
        use std::os::unix::process::ExitStatusExt;
        let status = self.process.end();
        status.code().or_else(|| status.signal().map(|signal| 128 + signal))
    }

    pub(crate) fn has_ended(&mut self) -> bool {
        self.process.has_ended()
    }
}
