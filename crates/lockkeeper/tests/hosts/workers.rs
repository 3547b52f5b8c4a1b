//! Workers: one thread for each host runs commands under the lease, one after the other.

use std::process::Command;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use lockkeeper_testing::{Dice, until};

use super::history::COMMAND;
use super::host::Host;

/// How commands may end: done, server not reached, lease lost, killed by the test.
const ALLOWED: [i32; 4] = [0, 69, 76, 137];

/// What a command says whose server was lost during a commit, and did not come back in time: exit 1.
const IN_DOUBT: &str = "it is not known whether";
/// How a command ends whose ticket is gone.
const LOST_ITS_PLACE: i32 = 75;

pub(crate) struct Workers {
    ends: Arc<AtomicBool>,
    may_lose_their_places: Arc<AtomicBool>,
    /// How many have had their last turn.
    done: Arc<AtomicUsize>,
    threads: Vec<JoinHandle<()>>,
}

impl Workers {
    pub(crate) fn start(hosts: &[Host], seed: u64) -> Self {
        let (ends, done) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicUsize::new(0)));
        let may_lose = Arc::new(AtomicBool::new(false));
        let threads = hosts.iter().map(|host| {
            let (ends, done, may_lose) = (Arc::clone(&ends), Arc::clone(&done), Arc::clone(&may_lose));
            let mut dice = Dice::new(seed + host.number as u64);
            let (template, host) = (Template::of(host), format!("host {}:", host.number));
            thread::spawn(move || {
                loop {
                    let is_last = ends.load(Ordering::SeqCst);
                    let ended = template.command(200 + dice.below(2_500)).output().unwrap();
                    let code = ended.status.code().unwrap_or(137);
                    let said = String::from_utf8_lossy(&ended.stderr).into_owned();
                    let is_excused = code == LOST_ITS_PLACE && may_lose.load(Ordering::SeqCst)
                        || code == 1 && said.contains(IN_DOUBT);
                    assert!(ALLOWED.contains(&code) || is_excused, "{host} exit {code}: {said}");
                    if is_last && code == 0 {
                        done.fetch_add(1, Ordering::SeqCst);
                        return;
                    }
                    if code != 0 {
                        thread::sleep(Duration::from_millis(100));
                    }
                }
            })
        });
        let threads = threads.collect();
        Self { ends, may_lose_their_places: may_lose, done, threads }
    }

    /// Whether a command that waits may end because the store has lost its ticket.
    pub(crate) fn may_lose_their_places(&self, may: bool) {
        self.may_lose_their_places.store(may, Ordering::SeqCst);
    }

    /// Fails if a command has ended in a way that is not allowed.
    #[track_caller]
    pub(crate) fn check(&self) {
        // A thread that ended without its last turn has panicked.
        let ended = self.threads.iter().filter(|thread| thread.is_finished()).count();
        assert!(ended <= self.done.load(Ordering::SeqCst), "a command ended in a way that is not allowed");
    }

    /// Lets each worker have one more turn, and waits for it.
    pub(crate) fn finish(self) {
        self.ends.store(true, Ordering::SeqCst);
        let all = self.threads.len();
        until("each host gets the lease once more", || {
            self.check();
            self.done.load(Ordering::SeqCst) == all
        });
        self.threads.into_iter().for_each(|thread| thread.join().unwrap());
    }
}

/// What is needed to make the same command again in another thread.
struct Template {
    words: Vec<std::ffi::OsString>,
    variables: Vec<(std::ffi::OsString, std::ffi::OsString)>,
}

impl Template {
    fn of(host: &Host) -> Self {
        let command = host.command(&["exec", "db", "--quiet", "--", "sh", "-c", COMMAND, "command"]);
        let words = std::iter::once(command.get_program()).chain(command.get_args());
        let variables =
            command.get_envs().filter_map(|(name, value)| Some((name.to_owned(), value?.to_owned())));
        Self { words: words.map(ToOwned::to_owned).collect(), variables: variables.collect() }
    }

    fn command(&self, millis: u64) -> Command {
        let mut command = Command::new(&self.words[0]);
        command.args(&self.words[1..]).arg(format!("{}.{:03}", millis / 1_000, millis % 1_000));
        command.env_clear().envs(self.variables.iter().map(|(name, value)| (name, value)));
        command.stdin(std::process::Stdio::null());
        command
    }
}
