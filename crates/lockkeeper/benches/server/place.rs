//! A store with many runs, and servers in processes of their own.

use std::io::{BufRead, BufReader};
use std::net::SocketAddr;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use lockkeeper_core::id::WorkerId;
use lockkeeper_core::request::Request;
use lockkeeper_core::run::transition::{self, Claimant, Mark, Transition};
use lockkeeper_core::run::{Run, Stamp, Status};
use lockkeeper_engine::runs::Runs;
use lockkeeper_store::runs::Moved;
use serde_json::Value;

use crate::measure::lockkeeper;

/// So many come in with one transaction.
const AT_ONCE: usize = 5_000;

/// A server; killed when dropped.
pub struct Server {
    child: Child,
    pub address: SocketAddr,
}

impl Server {
    /// Over the store in this folder.
    pub fn start(folder: &Path) -> Self {
        let mut command = Command::new(lockkeeper());
        command.current_dir(folder).env("AI_SWARM_DIR", folder.join("swarm"));
        command.arg("--dir").arg(folder.join("state")).args(["--json", "serve", "--listen", "127.0.0.1:0"]);
        command.args(["--no-token", "--yes", "--log-level", "warn"]);
        Self::of(command, |line| {
            let told: Value = serde_json::from_str(line).unwrap();
            told["url"].as_str().unwrap().strip_prefix("http://").unwrap().parse().unwrap()
        })
    }

    /// One that knows one word.
    pub fn hello() -> Self {
        let mut command = Command::new(std::env::current_exe().unwrap());
        command.arg(crate::HELLO);
        Self::of(command, |line| line.trim_end().parse().unwrap())
    }

    fn of(mut command: Command, address: impl FnOnce(&str) -> SocketAddr) -> Self {
        let mut child = command.stdin(Stdio::null()).stdout(Stdio::piped()).spawn().unwrap();
        let mut line = String::new();
        BufReader::new(child.stdout.as_mut().unwrap()).read_line(&mut line).unwrap();
        Self { address: address(&line), child }
    }

    pub fn pid(&self) -> u32 {
        self.child.id()
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// The bare thing: the same library, one route.
pub fn serve_hello() {
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build().unwrap();
    runtime.block_on(async {
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
        println!("{}", listener.local_addr().unwrap());
        let router = axum::Router::new().route("/healthz", axum::routing::get(|| async { "hello" }));
        axum::serve(listener, router).await.unwrap();
    });
}

/// Makes a store with this many runs: four of ten succeeded, two failed, one was canceled, the others wait.
pub fn fill(folder: &Path, count: usize) -> Runs {
    let runs = Runs::open(&folder.join("state")).unwrap();
    for first in (0..count).step_by(AT_ONCE) {
        let range = first..count.min(first + AT_ONCE);
        let requests: Vec<Request> = range.clone().map(request).collect();
        let submitted = runs.submit_all(&requests, None).unwrap();
        let store = runs.store();
        let now = store.now();
        let records = store.snapshot().unwrap();
        let mut transitions = Vec::new();
        for (number, one) in range.zip(&submitted) {
            let queued = records.run(&one.run).unwrap().unwrap();
            match number % 10 {
                0..=3 => transitions.extend(carry_out(&queued, Status::Succeeded, 0, now)),
                4 | 5 => transitions.extend(carry_out(&queued, Status::Failed, 1, now)),
                6 => transitions.push(transition::cancel(&queued, now, None).unwrap()),
                _ => {}
            }
        }
        let moved = store.move_runs(&transitions).unwrap();
        assert!(moved.iter().all(|moved| *moved == Moved::Applied));
    }
    runs
}

/// The transitions of a run that is claimed and ends.
fn carry_out(queued: &Run, to: Status, code: u8, now: Stamp) -> [Transition; 2] {
    let worker: WorkerId = "bench".parse().unwrap();
    let claimant = Claimant { worker: worker.clone(), holder: None, lease: None };
    let claimed = transition::claim(queued, claimant, now).unwrap();
    let mark = Mark { to, expect: None, claim: None, exit_code: Some(code), worker };
    let ended = transition::mark(&claimed.run, &mark, now).unwrap();
    [claimed, ended]
}

fn request(number: usize) -> Request {
    let command = ["make", "-C", "project", "test"].map(ToOwned::to_owned).to_vec();
    let id = format!("RQ-{number:06}").parse().unwrap();
    Request {
        title: format!("build and test number {number}"),
        env: vec![("PATH".to_owned(), "/usr/local/bin:/usr/bin:/bin".to_owned())],
        timeout: Some(Duration::from_secs(600)),
        ..Request::new(id, command, "/srv/project".to_owned())
    }
}
