//! A simulated host: namespaces, a boot id, a runtime folder, and a link to the server that can be cut in each direction.

use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use lockkeeper_platform::random;
use lockkeeper_testing::{Finished, Signal};
use rustix::process::{Pid, kill_process};
use tempfile::TempDir;

use super::history::History;
use super::network::{Cable, Namespaces};

/// The shortest session with which a command is stopped in time.
const SESSION: &str = "5s";
/// Namespaces of a host.
const KINDS: [&str; 5] = ["--net", "--pid", "--uts", "--mount", "--mount-proc"];

pub(crate) struct Host {
    pub(crate) number: usize,
    namespaces: Namespaces,
    cable: Cable,
    name: String,
    /// `boot_id`, and the home folder with the runtime folder `run`.
    folder: TempDir,
    /// Where its home folder is for its processes.
    home: PathBuf,
    variables: Vec<(&'static str, String)>,
}

/// A process of a host.
pub(crate) struct Process {
    pub(crate) pid: u32,
    /// What it does: the second word of its command line.
    pub(crate) verb: String,
}

/// The boot of a cloned host.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Boot {
    /// As when a virtual machine was copied.
    Another,
    /// As in a container that has a copy of the runtime folder.
    Same,
}

impl Host {
    /// Starts a host whose store has this address, and asks for this token if there is one.
    pub(crate) fn start(number: usize, store: &str, token_file: Option<String>, history: &History) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let home = folder.path().join("home");
        for path in [&home, &home.join("run")] {
            std::fs::DirBuilder::new().mode(0o700).create(path).unwrap();
        }
        std::fs::write(folder.path().join("boot_id"), new_boot()).unwrap();
        let path = |name: &str| home.join(name).display().to_string();
        let mut variables = vec![
            ("HOME", path("")),
            ("PATH", std::env::var("PATH").unwrap()),
            ("LOCKKEEPER_RUNTIME_DIR", path("run")),
            ("LOCKKEEPER_STORE", store.to_owned()),
            ("LOCKKEEPER_PROJECT", "hosts".to_owned()),
            ("LOCKKEEPER_SESSION", SESSION.to_owned()),
            ("LOCKKEEPER_CONNECT_TIMEOUT", "1s".to_owned()),
            ("LOCKKEEPER_GRACE", "500ms".to_owned()),
            ("HOST", number.to_string()),
            ("HISTORY", history.folder()),
        ];
        variables.extend(token_file.map(|file| ("LOCKKEEPER_PASSWORD_FILE", file)));
        Self::begin(number, format!("host{number}"), folder, home, variables)
    }

    /// Starts a clone of this host: with the same name, and a copy of the runtime folder at the same path.
    pub(crate) fn cloned(&self, number: usize, store: &str, boot: Boot) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let mut copy = Command::new("cp");
        copy.arg("-a").arg(self.folder.path().join("home")).arg(folder.path());
        // Files come and go meanwhile.
        let _ = copy.stderr(Stdio::null()).status().unwrap();
        let boot_id = match boot {
            Boot::Another => new_boot(),
            Boot::Same => std::fs::read_to_string(self.folder.path().join("boot_id")).unwrap(),
        };
        std::fs::write(folder.path().join("boot_id"), boot_id).unwrap();
        let mut variables = self.variables.clone();
        for (name, value) in &mut variables {
            match *name {
                "LOCKKEEPER_STORE" => store.clone_into(value),
                "HOST" => *value = number.to_string(),
                _ => {}
            }
        }
        Self::begin(number, self.name.clone(), folder, self.home.clone(), variables)
    }

    fn begin(
        number: usize,
        name: String,
        folder: TempDir,
        home: PathBuf,
        variables: Vec<(&'static str, String)>,
    ) -> Self {
        let script = "hostname $0 && mount --bind $1/boot_id /proc/sys/kernel/random/boot_id && mount --bind $1/home $2";
        let args = [&name, folder.path().to_str().unwrap(), home.to_str().unwrap()];
        let namespaces = Namespaces::start(&KINDS, script, &args);
        let cable = Cable::connect(number, &namespaces);
        Self { number, namespaces, cable, name, folder, home, variables }
    }

    /// Ends everything on it, and empties its runtime folder, as a reboot does.
    pub(crate) fn lose_power(&self) {
        self.signal_all(Signal::KILL);
        let run = self.folder.path().join("home/run");
        std::fs::remove_dir_all(&run).unwrap();
        std::fs::DirBuilder::new().mode(0o700).create(&run).unwrap();
    }

    /// Lets packets through in each direction, or loses them without a word.
    pub(crate) fn link(&self, to_server: bool, to_host: bool) {
        self.cable.link(&self.namespaces, to_server, to_host);
    }

    /// Its home folder.
    pub(crate) fn home(&self) -> &Path {
        &self.home
    }

    /// Runs Lockkeeper on this host.
    pub(crate) fn run(&self, args: &[&str]) -> Finished {
        Finished::of(&mut self.command(args))
    }

    /// Lockkeeper on this host.
    pub(crate) fn command(&self, args: &[&str]) -> Command {
        let mut command = Command::new("nsenter");
        let first = self.namespaces.first.to_string();
        command.args(["--target", &first, "--net", "--pid", "--uts", "--mount", "--"]);
        command.args(["sh", "-c", "cd \"$HOME\" && exec \"$0\" \"$@\"", env!("CARGO_BIN_EXE_lockkeeper")]);
        command.args(args).env_clear().envs(self.variables.iter().map(|(name, value)| (name, value)));
        command.stdin(Stdio::null());
        command
    }

    /// Lets all its processes go on, also those that entered it: `nsenter` stops with the process that it started.
    pub(crate) fn wake(&self) {
        self.signal_all(Signal::CONT);
        let (first, mine) = (self.namespaces.first.to_string(), "nsenter");
        for pid in pids() {
            let line = std::fs::read_to_string(format!("/proc/{pid}/cmdline")).unwrap_or_default();
            let words: Vec<&str> = line.split('\0').collect();
            if words[0] == mine && words.contains(&first.as_str()) {
                send(pid, Signal::CONT);
            }
        }
    }

    /// All its processes but the first one.
    pub(crate) fn processes(&self) -> Vec<Process> {
        let namespace = |pid: u32| std::fs::read_link(format!("/proc/{pid}/ns/pid")).ok();
        let first = self.namespaces.first;
        let own = namespace(first);
        let of_host =
            pids().filter(|pid| *pid != first && namespace(*pid).is_some() && namespace(*pid) == own);
        let with_verb = of_host.map(|pid| {
            let line = std::fs::read(PathBuf::from(format!("/proc/{pid}/cmdline"))).unwrap_or_default();
            let verb = line.split(|byte| *byte == 0).nth(1).unwrap_or_default();
            Process { pid, verb: String::from_utf8_lossy(verb).into_owned() }
        });
        with_verb.collect()
    }

    /// Sends a signal to its processes with this verb.
    pub(crate) fn signal_each(&self, verb: &str, with: Signal) {
        for process in self.processes().into_iter().filter(|process| process.verb == verb) {
            send(process.pid, with);
        }
    }

    /// Sends a signal to all its processes, also to those that start meanwhile.
    pub(crate) fn signal_all(&self, with: Signal) {
        let mut told = Vec::new();
        loop {
            let new: Vec<u32> =
                self.processes().iter().map(|it| it.pid).filter(|pid| !told.contains(pid)).collect();
            if new.is_empty() {
                return;
            }
            new.iter().for_each(|pid| send(*pid, with));
            told.extend(new);
        }
    }
}

fn new_boot() -> String {
    format!("{:032x}\n", u128::from(random::number().unwrap()))
}

fn pids() -> impl Iterator<Item = u32> {
    let entries = std::fs::read_dir("/proc").unwrap().flatten();
    entries.filter_map(|entry| entry.file_name().to_str()?.parse().ok())
}

/// A process may have ended meanwhile.
fn send(pid: u32, with: Signal) {
    let _ = kill_process(Pid::from_raw(pid.cast_signed()).unwrap(), with);
}
