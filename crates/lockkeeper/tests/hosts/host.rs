//! A simulated host: namespaces, a boot id, a runtime folder, and a link to the server that can be cut in each direction.

use std::io::{BufRead, BufReader};
use std::os::unix::fs::DirBuilderExt;
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};

use lockkeeper_platform::random;
use lockkeeper_testing::{Finished, PostgresServer, Signal};
use rustix::process::{Pid, kill_process};
use tempfile::TempDir;

use super::history::History;

/// The shortest session with which a command is stopped in time.
const SESSION: &str = "5s";

pub(crate) struct Host {
    pub(crate) number: usize,
    _folder: TempDir,
    /// Ends with the test, and everything in its namespace with it.
    _namespaces: Child,
    /// The first process in its pid namespace.
    first: u32,
    variables: Vec<(&'static str, String)>,
}

/// A process of a host.
pub(crate) struct Process {
    pub(crate) pid: u32,
    /// What it does: the second word of its command line.
    pub(crate) verb: String,
}

/// The address of the server for one host.
pub(crate) fn address(number: usize) -> String {
    format!("10.77.{number}.1")
}

/// Runs `ip` in the namespace of the server.
pub(crate) fn ip(args: &[&str]) {
    Finished::of(Command::new("ip").args(args)).code(0);
}

impl Host {
    pub(crate) fn start(number: usize, server: &PostgresServer, history: &History) -> Self {
        let folder = tempfile::tempdir().unwrap();
        std::fs::DirBuilder::new().mode(0o700).create(folder.path().join("run")).unwrap();
        let boot_id = folder.path().join("boot_id");
        std::fs::write(&boot_id, format!("{:032x}\n", u128::from(random::number().unwrap()))).unwrap();
        let script = "hostname $0 && mount --bind $1 /proc/sys/kernel/random/boot_id && echo up && exec sleep infinity";
        let mut unshare = Command::new("unshare");
        unshare.args(["--net", "--pid", "--uts", "--mount", "--fork", "--kill-child", "--mount-proc"]);
        unshare.args(["sh", "-c", script, &format!("host{number}")]).arg(&boot_id).stdout(Stdio::piped());
        let mut namespaces = unshare.spawn().unwrap();
        let mut line = String::new();
        BufReader::new(namespaces.stdout.take().unwrap()).read_line(&mut line).unwrap();
        assert_eq!(line, "up\n");
        let children = format!("/proc/{0}/task/{0}/children", namespaces.id());
        let first = std::fs::read_to_string(children).unwrap().trim().parse().unwrap();
        let path = |name: &str| folder.path().join(name).display().to_string();
        let store =
            format!("postgres://lockkeeper@{}/postgres?sslrootcert={}", address(number), server.roots());
        let variables = vec![
            ("HOME", path("")),
            ("PATH", std::env::var("PATH").unwrap()),
            ("LOCKKEEPER_RUNTIME_DIR", path("run")),
            ("LOCKKEEPER_STORE", store),
            ("LOCKKEEPER_PROJECT", "hosts".to_owned()),
            ("LOCKKEEPER_SESSION", SESSION.to_owned()),
            ("LOCKKEEPER_CONNECT_TIMEOUT", "1s".to_owned()),
            ("LOCKKEEPER_GRACE", "500ms".to_owned()),
            ("HOST", number.to_string()),
            ("HISTORY", history.folder()),
        ];
        let host = Self { number, _folder: folder, _namespaces: namespaces, first, variables };
        host.connect();
        host
    }

    fn connect(&self) {
        let (ours, first) = (format!("lk{}", self.number), self.first.to_string());
        ip(&["link", "add", &ours, "type", "veth", "peer", "name", "eth0", "netns", &first]);
        ip(&["link", "set", &ours, "address", &self.server_mac(true)]);
        ip(&["addr", "add", &format!("{}/24", address(self.number)), "dev", &ours]);
        ip(&["link", "set", &ours, "up"]);
        self.ip(&["link", "set", "lo", "up"]);
        self.ip(&["link", "set", "eth0", "address", &self.own_mac(true)]);
        self.ip(&["addr", "add", &format!("{}/24", self.own_address()), "dev", "eth0"]);
        self.ip(&["link", "set", "eth0", "up"]);
        self.link(true, true);
    }

    /// Lets packets through in each direction, or loses them without a word: they are addressed to a card that does not exist.
    pub(crate) fn link(&self, to_server: bool, to_host: bool) {
        let (mac, device) = (self.server_mac(to_server), "eth0");
        self.ip(&[
            "neigh",
            "replace",
            &address(self.number),
            "lladdr",
            &mac,
            "dev",
            device,
            "nud",
            "permanent",
        ]);
        let (mac, device) = (self.own_mac(to_host), format!("lk{}", self.number));
        ip(&["neigh", "replace", &self.own_address(), "lladdr", &mac, "dev", &device, "nud", "permanent"]);
    }

    fn own_address(&self) -> String {
        format!("10.77.{}.2", self.number)
    }

    fn server_mac(&self, is_right: bool) -> String {
        format!("02:00:00:00:{:02x}:{}", self.number, if is_right { "01" } else { "f1" })
    }

    fn own_mac(&self, is_right: bool) -> String {
        format!("02:00:00:00:{:02x}:{}", self.number, if is_right { "02" } else { "f2" })
    }

    fn ip(&self, args: &[&str]) {
        let first = self.first.to_string();
        Finished::of(Command::new("nsenter").args(["--net", "--target", &first, "ip"]).args(args)).code(0);
    }

    /// Runs Lockkeeper on this host.
    pub(crate) fn run(&self, args: &[&str]) -> Finished {
        Finished::of(&mut self.command(args))
    }

    /// Lockkeeper on this host.
    pub(crate) fn command(&self, args: &[&str]) -> Command {
        let mut command = Command::new("nsenter");
        command.args(["--target", &self.first.to_string(), "--net", "--pid", "--uts", "--mount", "--"]);
        command.args(["sh", "-c", "cd \"$HOME\" && exec \"$0\" \"$@\"", env!("CARGO_BIN_EXE_lockkeeper")]);
        command.args(args).env_clear().envs(self.variables.iter().map(|(name, value)| (name, value)));
        command.stdin(Stdio::null());
        command
    }

    /// Lets all its processes go on, also those that entered it: `nsenter` stops with the process that it started.
    pub(crate) fn wake(&self) {
        self.signal_all(Signal::CONT);
        let (first, mine) = (self.first.to_string(), "nsenter");
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
        let own = namespace(self.first);
        let of_host =
            pids().filter(|pid| *pid != self.first && namespace(*pid).is_some() && namespace(*pid) == own);
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

fn pids() -> impl Iterator<Item = u32> {
    let entries = std::fs::read_dir("/proc").unwrap().flatten();
    entries.filter_map(|entry| entry.file_name().to_str()?.parse().ok())
}

/// A process may have ended meanwhile.
fn send(pid: u32, with: Signal) {
    let _ = kill_process(Pid::from_raw(pid.cast_signed()).unwrap(), with);
}
