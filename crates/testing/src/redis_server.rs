//! Redis servers of a test's own: they can be restarted, copied by a replica, and replaced by it.

use std::io::{Read, Write};
use std::net::{Ipv4Addr, TcpListener};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use rustix::process::{Pid, kill_process};
use tempfile::TempDir;

use crate::{Signal, skip_server, until};

/// A server on a Unix socket. It ends with the test.
pub struct RedisServer {
    folder: TempDir,
    args: Vec<String>,
    child: Child,
}

impl RedisServer {
    /// Starts a server that keeps everything in memory, or with these options. None where there is no Redis.
    pub fn start(options: &[&str]) -> Option<Self> {
        let folder = tempfile::tempdir().unwrap();
        let args = options.iter().map(|option| (*option).to_owned()).collect();
        let Ok(child) = spawn(&folder, options) else {
            skip_server("redis-server, or the program that LOCKKEEPER_REDIS names");
            return None;
        };
        let server = Self { folder, args, child };
        server.until_up();
        Some(server)
    }

    /// A port that nobody uses.
    pub fn free_port() -> u16 {
        TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap().local_addr().unwrap().port()
    }

    /// The address for lockkeeper.
    #[must_use]
    pub fn address(&self) -> String {
        format!("unix:{}", self.socket().display())
    }

    /// Its socket.
    #[must_use]
    pub fn socket(&self) -> PathBuf {
        self.folder.path().join("redis.sock")
    }

    /// Ends it as a power cut does.
    pub fn kill(&mut self) {
        self.child.kill().unwrap();
        self.child.wait().unwrap();
    }

    /// Ends it as a power cut does, and starts it again.
    pub fn restart(&mut self) {
        self.kill();
        self.begin();
    }

    /// Starts it again.
    pub fn begin(&mut self) {
        let args: Vec<&str> = self.args.iter().map(String::as_str).collect();
        self.child = spawn(&self.folder, &args).unwrap();
        self.until_up();
    }

    /// Makes a replica a master, also after the next start.
    pub fn promote(&mut self) {
        self.command("REPLICAOF NO ONE");
        if let Some(at) = self.args.iter().position(|arg| arg == "--replicaof") {
            self.args.drain(at..at + 3);
        }
    }

    /// Sends a signal to it.
    pub fn signal(&self, with: Signal) {
        kill_process(Pid::from_child(&self.child), with).unwrap();
    }

    /// The folder of its socket and its files.
    #[must_use]
    pub fn folder(&self) -> &Path {
        self.folder.path()
    }

    /// Runs a command. Returns the reply as it came.
    pub fn command(&self, line: &str) -> String {
        redis_command(&self.socket(), line).unwrap()
    }

    fn until_up(&self) {
        // Without a password it answers as well, that it wants one.
        until("the server answers", || {
            redis_command(&self.socket(), "PING")
                .is_ok_and(|reply| !reply.is_empty() && !reply.contains("LOADING"))
        });
    }
}

impl Drop for RedisServer {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn spawn(folder: &TempDir, options: &[&str]) -> std::io::Result<Child> {
    let program = std::env::var("LOCKKEEPER_REDIS").unwrap_or_else(|_| "redis-server".to_owned());
    let _ = std::fs::remove_file(folder.path().join("redis.sock"));
    let mut command = Command::new(program);
    command.args(["--save", "", "--port", "0", "--unixsocket", "redis.sock"]).args(options);
    command.current_dir(folder.path()).stdout(Stdio::null()).stderr(Stdio::null()).spawn()
}

/// Runs a command on the server with this socket. Returns the reply as it came.
pub fn redis_command(socket: &Path, line: &str) -> std::io::Result<String> {
    let mut stream = UnixStream::connect(socket)?;
    stream.set_read_timeout(Some(Duration::from_secs(30)))?;
    stream.write_all(format!("{line}\r\nQUIT\r\n").as_bytes())?;
    let mut reply = String::new();
    stream.read_to_string(&mut reply)?;
    Ok(reply)
}
