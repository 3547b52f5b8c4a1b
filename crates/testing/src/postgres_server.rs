//! A private PostgreSQL server that a test may stop, kill, restore from a backup and replace by a standby.

use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::Command;

use rustix::process::{Pid, kill_process};
use tempfile::TempDir;

use crate::{Certificate, Finished, Signal, is_root, processes, skip, skip_server};

/// A server of one test, on a Unix socket in a folder of its own, and on the addresses that the test names.
pub struct PostgresServer {
    bin: PathBuf,
    folder: TempDir,
    /// The name of the folder whose data it serves.
    data: String,
    options: String,
    certificate: Option<Certificate>,
    /// The library that gives it a clock of its own.
    faketime: Option<PathBuf>,
}

impl PostgresServer {
    /// Makes and starts a server. None where PostgreSQL is not installed; with `CI=true` that is a failure.
    #[must_use]
    pub fn start() -> Option<Self> {
        Self::make(&[], None)
    }

    /// The same, with a clock that [`PostgresServer::set_clock`] changes. It needs faketime, too.
    #[must_use]
    pub fn start_with_clock() -> Option<Self> {
        Self::make(&[], Some(faketime()?))
    }

    /// The same, also on these addresses of this machine, with TLS.
    #[must_use]
    pub fn start_on(addresses: &[String]) -> Option<Self> {
        Self::make(addresses, Some(faketime()?))
    }

    fn make(addresses: &[String], faketime: Option<PathBuf>) -> Option<Self> {
        let Some(bin) = bin() else {
            assert!(std::env::var("CI").is_err(), "PostgreSQL is not installed");
            skip("PostgreSQL (Debian's package postgresql)");
            return None;
        };
        let folder = tempfile::tempdir().unwrap();
        std::fs::set_permissions(folder.path(), PermissionsExt::from_mode(0o755)).unwrap();
        let listen = if addresses.is_empty() { "" } else { "*" };
        let options = format!(
            "-c listen_addresses='{listen}' -k {} -c max_connections=100 -c fsync=off",
            folder.path().display()
        );
        let data = "data".to_owned();
        let mut server = Self { bin, folder, data, options, certificate: None, faketime };
        server.set_clock(0);
        if is_root() {
            Finished::of(Command::new("chown").arg("postgres:").arg(server.folder.path())).code(0);
        }
        server.run("initdb", &["-D", &server.path("data"), "-A", "trust", "-U", "lockkeeper", "--no-sync"]);
        if !addresses.is_empty() {
            server.certificate = Some(server.encrypt(addresses));
        }
        server.begin();
        Some(server)
    }

    /// Makes a certificate for these addresses, and lets everybody in who uses TLS.
    fn encrypt(&self, addresses: &[String]) -> Certificate {
        let made = Certificate::make(self.folder.path(), addresses);
        if is_root() {
            Finished::of(Command::new("chown").args(["postgres:", &made.key(), &made.server()])).code(0);
        }
        for (file, text) in [
            ("pg_hba.conf", "hostssl all all all trust\n".to_owned()),
            (
                "postgresql.conf",
                format!("ssl = on\nssl_cert_file = '{}'\nssl_key_file = '{}'\n", made.server(), made.key()),
            ),
        ] {
            let file = self.folder.path().join("data").join(file);
            let old = std::fs::read_to_string(&file).unwrap();
            std::fs::write(&file, format!("{old}\n{text}")).unwrap();
        }
        made
    }

    /// The certificate that it shows on its addresses.
    #[must_use]
    pub fn certificate(&self) -> Option<&Certificate> {
        self.certificate.as_ref()
    }

    /// The address for clients on this machine.
    #[must_use]
    pub fn address(&self) -> String {
        format!("host={} user=lockkeeper dbname=postgres", self.folder.path().display())
    }

    /// Starts it again.
    pub fn begin(&self) {
        let log = self.path("log");
        let mut start = self.as_owner(Path::new("env"));
        if let Some(library) = &self.faketime {
            start.arg(format!("LD_PRELOAD={}", library.display()));
            start.arg(format!("FAKETIME_TIMESTAMP_FILE={}", self.path("clock")));
            start.args(["FAKETIME_NO_CACHE=1", "FAKETIME_DONT_FAKE_MONOTONIC=1", "FAKETIME_DISABLE_SHM=1"]);
        }
        start.arg(self.bin.join("pg_ctl"));
        start.args(["-D", &self.path(&self.data), "-l", &log, "-s", "-w", "-o", &self.options, "start"]);
        Finished::of(&mut start).code(0);
    }

    /// Sets its clock to this many seconds ahead of the clock of the machine, while it runs.
    pub fn set_clock(&self, ahead: i64) {
        // Replaced at once: the server reads it at every look at the clock.
        std::fs::write(self.path("clock.new"), format!("{ahead:+}")).unwrap();
        std::fs::rename(self.path("clock.new"), self.path("clock")).unwrap();
    }

    /// Stops it in an orderly way, without waiting for its clients.
    pub fn stop(&self) {
        self.run("pg_ctl", &["-D", &self.path(&self.data), "-m", "fast", "-s", "stop"]);
    }

    /// Stops it at once, as a crash does.
    pub fn crash(&self) {
        self.run("pg_ctl", &["-D", &self.path(&self.data), "-m", "immediate", "-s", "stop"]);
    }

    /// Copies its data while it runs.
    pub fn back_up(&self, name: &str) {
        let socket = self.folder.path().display().to_string();
        self.run(
            "pg_basebackup",
            &["-h", &socket, "-U", "lockkeeper", "-D", &self.path(name), "-c", "fast", "--no-sync"],
        );
    }

    /// Crashes it, and starts it again with the data of a backup, on the same timeline.
    pub fn restore(&mut self, name: &str) {
        self.crash();
        name.clone_into(&mut self.data);
        self.begin();
    }

    /// Crashes it, and puts a standby with the data of a backup in its place: it has not seen anything later.
    pub fn promote_standby(&mut self, name: &str) {
        std::fs::write(self.folder.path().join(name).join("standby.signal"), "").unwrap();
        self.restore(name);
        self.run("pg_ctl", &["-D", &self.path(&self.data), "-s", "-w", "promote"]);
    }

    /// Runs a statement, and returns what it prints.
    #[track_caller]
    pub fn sql(&self, statement: &str) -> String {
        let socket = self.folder.path().display().to_string();
        let args =
            ["-h", &socket, "-U", "lockkeeper", "-d", "postgres", "-qAtX", "-v", "ON_ERROR_STOP=1", "-c"];
        self.run("psql", &[&args[..], &[statement]].concat()).stdout().trim().to_owned()
    }

    /// Sends a signal to all processes of the server.
    pub fn signal(&self, with: Signal) {
        let file = self.folder.path().join(&self.data).join("postmaster.pid");
        let first: u32 = std::fs::read_to_string(file).unwrap().lines().next().unwrap().parse().unwrap();
        // The first process is told first, so that it starts no other one meanwhile.
        processes::signal(first, with);
        let children = std::fs::read_to_string(format!("/proc/{first}/task/{first}/children")).unwrap();
        for child in children.split_whitespace() {
            // It may have ended meanwhile.
            let _ = kill_process(Pid::from_raw(child.parse().unwrap()).unwrap(), with);
        }
    }

    /// The folder of its socket and its files.
    #[must_use]
    pub fn folder(&self) -> &Path {
        self.folder.path()
    }

    fn path(&self, name: &str) -> String {
        self.folder.path().join(name).display().to_string()
    }

    #[track_caller]
    fn run(&self, program: &str, args: &[&str]) -> Finished {
        Finished::of(self.command(program).args(args)).code(0)
    }

    fn command(&self, program: &str) -> Command {
        self.as_owner(&self.bin.join(program))
    }

    /// PostgreSQL refuses to run as root.
    pub(crate) fn as_owner(&self, program: &Path) -> Command {
        let mut command = if is_root() {
            let mut command = Command::new("setpriv");
            command.args(["--reuid=postgres", "--regid=postgres", "--clear-groups", "--"]).arg(program);
            command
        } else {
            Command::new(program)
        };
        command.current_dir(self.folder.path()).env("LC_ALL", "C");
        command
    }
}

impl Drop for PostgresServer {
    fn drop(&mut self) {
        let data = self.path(&self.data);
        let _ = self.command("pg_ctl").args(["-D", &data, "-m", "immediate", "-s", "stop"]).output();
    }
}

/// The folder of the programs: Debian has one for each version.
fn bin() -> Option<PathBuf> {
    let versions = std::fs::read_dir("/usr/lib/postgresql").into_iter().flatten().flatten();
    let mut folders: Vec<PathBuf> = versions.map(|entry| entry.path().join("bin")).collect();
    folders.retain(|folder| folder.join("postgres").is_file());
    let number = |folder: &Path| folder.parent().and_then(Path::file_name)?.to_str()?.parse::<u32>().ok();
    folders.sort_by_key(|folder| number(folder));
    let path = std::env::var_os("PATH").unwrap_or_default();
    folders.pop().or_else(|| std::env::split_paths(&path).find(|folder| folder.join("initdb").is_file()))
}

/// The library of faketime(1), in Debian's folder. None where it is not installed.
fn faketime() -> Option<PathBuf> {
    let folders = std::fs::read_dir("/usr/lib").into_iter().flatten().flatten();
    let mut libraries = folders.map(|folder| folder.path().join("faketime/libfaketime.so.1"));
    let found = libraries.find(|library| library.is_file());
    if found.is_none() {
        skip_server("libfaketime (Debian's package faketime)");
    }
    found
}
