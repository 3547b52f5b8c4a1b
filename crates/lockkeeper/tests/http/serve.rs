//! `serve` as a process: starting, sharing a store, stopping.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::process::Command;

use lockkeeper_testing::http::{Http, connect};
use lockkeeper_testing::{Finished, ServerProcess, Signal, processes, skip, world};
use serde_json::{Value, json};

use super::runs::{let_go, submit, until, wait_for};
use super::server::{Server, settings};

#[test]
fn the_first_signal_serves_those_who_are_there_to_their_end() {
    let world = world!().with_state();
    let server = ServerProcess::start(&world, &[]);
    let mut stream = connect(server.address());
    let body = json!({ "names": ["db"] }).to_string();
    let head = format!(
        "POST /api/locks HTTP/1.1\r\nhost: {}\r\ncontent-type: application/json\r\ncontent-length: {}\r\n\
         authorization: Bearer {}\r\nexpect: 100-continue\r\n\r\n",
        server.address(),
        body.len(),
        server.token().unwrap()
    );
    stream.write_all(head.as_bytes()).unwrap();
    // The server asks for the body once it has begun to answer: from then on it owes one.
    let mut reader = BufReader::new(stream.try_clone().unwrap());
    let mut line = String::new();
    reader.read_line(&mut line).unwrap();
    assert!(line.contains("100 Continue"), "{line}");
    reader.read_line(&mut line).unwrap();
    server.signal(Signal::TERM);
    stream.write_all(body.as_bytes()).unwrap();
    let mut answer = String::new();
    reader.read_to_string(&mut answer).unwrap();
    assert!(answer.starts_with("HTTP/1.1 201"), "{answer}");
    server.wait().code(0);
}

#[test]
fn the_second_signal_stops_at_once() {
    let world = world!().with_state();
    let server = ServerProcess::start(&world, &[]);
    let mut stream = connect(server.address());
    let head = format!(
        "POST /api/locks HTTP/1.1\r\nhost: {}\r\ncontent-length: 9\r\nauthorization: Bearer {}\r\n\
         expect: 100-continue\r\n\r\n",
        server.address(),
        server.token().unwrap()
    );
    stream.write_all(head.as_bytes()).unwrap();
    stream.read_exact(&mut [0; 8]).unwrap();
    server.signal(Signal::INT);
    // The connection that waits for its body keeps the server. Nothing new is taken in from now on, which is the only
    // sign that the first signal has arrived; a second one before that would be the same signal.
    while TcpStream::connect(server.address()).is_ok() {
        std::thread::yield_now();
    }
    server.signal(Signal::INT);
    server.wait().code(0);
}

/// Invariant 10. Without the second signal the server waits for the command.
#[test]
fn the_second_signal_ends_the_command_of_the_auto_run() {
    let world = world!().with_state();
    let server = ServerProcess::start(&world, &[]);
    let command = json!(["sh", "-c", "echo $$ >new && mv new pid; exec sleep 1000"]);
    server.post("/api/requests", &json!({ "id": "RQ-1", "command": command })).expect(201);
    server.post("/api/queue/run-next", &json!({ "auto": true })).expect(202);
    let pid = processes::pid_in(&world.path("pid"));
    server.signal(Signal::TERM);
    // Nothing new is taken in from now on: the first signal has arrived.
    while TcpStream::connect(server.address()).is_ok() {
        std::thread::yield_now();
    }
    assert!(processes::is_alive(pid));
    server.signal(Signal::TERM);
    let ended = server.wait().code(0);
    assert!(!processes::is_alive(pid), "{}", ended.stderr());
    assert_eq!(world.json(&["runs"])["runs"][0]["status"], "canceled");
}

#[test]
fn two_servers_on_one_store_share_it() {
    let world = world!().with_state();
    let one = ServerProcess::start(&world, &[]);
    let two = ServerProcess::start(&world, &[]);
    assert_ne!(one.address(), two.address());
    let wish = json!({ "names": ["db"], "owner": "test:1" });
    let lease = one.post("/api/locks", &wish).expect(201);
    let other = json!({ "names": ["db"], "owner": "test:2" });
    let refused = two.post("/api/locks", &other).error(409, "LOCK_HELD");
    assert_eq!(refused["context"]["holders"][0]["id"], lease["lease"]["id"]);
}

#[test]
fn events_of_one_server_are_told_by_the_other() {
    let world = world!().with_state();
    let one = Server::over(world.cwd(), settings());
    let two = ServerProcess::start(&world, &[]);
    let mut stream = one.listen();
    assert_eq!(stream.event().name, "hello");
    let wish = json!({ "names": ["db"], "owner": "test:2" });
    two.post("/api/locks", &wish).expect(201);
    assert_eq!(stream.until("lease.acquired").data["lease"]["owner"], "test:2");
}

#[test]
fn a_port_that_is_taken_is_told_with_the_way_out() {
    let world = world!().with_state();
    let taken = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = taken.local_addr().unwrap().to_string();
    let refused = world.run(["serve", "--listen", &address]).code(1);
    refused.says(&format!("cannot listen on {address}")).says("--listen");
}

#[test]
fn other_machines_are_let_in_only_with_a_token() {
    let world = world!().with_state();
    world.run(["serve", "--listen", "0.0.0.0:0", "--no-token", "--yes"]).code(2).says("--token-file");
}

/// Requirements 186 and 197. The command goes on, so that its request stays locked; nothing else does.
#[test]
fn a_server_that_is_killed_leaves_nothing_stuck() {
    let world = world!().with_state();
    let swarm = world.beside("swarm");
    let swarm = swarm.to_str().unwrap();
    let witness = Server::over(world.cwd(), settings());
    let mut stream = witness.listen();
    let mut first = ServerProcess::start(&world, &["--status-dir", swarm]);
    let run = submit(&witness, "RQ-1", &until("go"));
    first.post("/api/queue/run-next", &json!({ "auto": true })).expect(202);
    stream.until("run.started");
    first.kill();
    let second = ServerProcess::start(&world, &["--status-dir", swarm, "--work", "1"]);
    let ask = |path: &str| second.post(path, &json!({}));
    assert_eq!(witness.get("/api/queue").expect(200)["running"], false);
    ask("/api/requests/RQ-1/run").error(409, "RUN_IN_PROGRESS");
    let_go(&witness, "go");
    let show = || witness.get(&format!("/api/runs/{run}")).expect(200);
    stream.until_seen(show, |shown| shown["run"]["completed_at"].is_string());
    let again = ask("/api/requests/RQ-1/run").expect(202);
    wait_for(&witness, &mut stream, again["run_id"].as_str().unwrap(), "succeeded");
}

#[test]
fn the_log_is_one_json_object_a_line() {
    let world = world!().with_state();
    let server = ServerProcess::start(&world, &["--log", "json"]);
    server.post("/api/locks", &json!({ "names": ["db"] })).expect(201);
    server.signal(Signal::TERM);
    let log = server.wait().code(0).stderr();
    let lines: Vec<Value> = log.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    let answered = lines.iter().find(|line| line["message"] == "answered").unwrap();
    assert_eq!((&answered["method"], &answered["status"]), (&json!("POST"), &json!(201)));
}

/// Requirement 193. The log of the server and its messages know that a stale lock was put away.
#[test]
fn a_stale_lock_that_was_put_away_is_in_the_log() {
    let world = world!().with_state();
    let locks = world.path(".aiflow/locks");
    std::fs::create_dir_all(&locks).unwrap();
    let stale = json!({
        "version": "1.0", "lock_type": "request", "request_id": "RQ-OLD", "run_id": "RUN-OLD", "pid": processes::exited_pid(),
        "host": "127.0.0.1", "created_at": "2025-12-14T15:01:02+09:00", "expires_at": "2025-12-14T15:31:02+09:00",
    });
    std::fs::write(locks.join("request.RQ-OLD.lock.json"), stale.to_string()).unwrap();
    let swarm = world.beside("swarm");
    let args = ["--log", "json", "--lock-format", "aiflow", "--status-dir", swarm.to_str().unwrap()];
    let server = ServerProcess::start(&world, &args);
    server.post("/api/requests", &json!({ "id": "RQ-1", "command": ["true"] })).expect(201);
    server.post("/api/requests/RQ-1/run", &json!({})).expect(202);
    for language in ["en", "ja", "zh"] {
        let path = format!("/api/messages.v1.{language}.json");
        let messages = server.get(&path).expect(200);
        for code in ["QUEUE_IN_PROGRESS", "LOCK_STALE_RECOVERED"] {
            assert!(messages.to_string().contains(code), "{language}: {code}");
        }
    }
    server.signal(Signal::TERM);
    let log = server.wait().code(0).stderr();
    let lines: Vec<Value> = log.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    let told = lines.iter().find(|line| line["reason_code"] == "LOCK_STALE_RECOVERED");
    let told = told.unwrap_or_else(|| panic!("not told in {log}"));
    assert!(told["level"] == "WARN" && told["subject"].to_string().contains("RQ-OLD"), "{told}");
    assert!(!locks.join("request.RQ-OLD.lock.json").exists());
}

/// Requirement 199. A network with nothing but this machine in it, and no program but a shell and git.
#[test]
fn everything_works_locally_with_git_alone() {
    let world = world!().with_state();
    let programs = world.path("programs");
    std::fs::create_dir(&programs).unwrap();
    for program in ["sh", "git"] {
        let found = Finished::of(Command::new("sh").args(["-c", &format!("command -v {program}")]));
        let path = found.code(0).stdout();
        std::os::unix::fs::symlink(path.trim_end(), programs.join(program)).unwrap();
    }
    let isolated = |arguments: &[&str]| {
        let mut command = Command::new("unshare");
        command.args(["--user", "--map-root-user", "--net"]).args(arguments);
        command
    };
    if !Finished::of(&mut isolated(&["true"])).succeeded() {
        return skip("a network namespace of its own");
    }
    let script = r#"
import fcntl, json, os, socket, struct, subprocess, sys, urllib.error, urllib.request
program, folder = sys.argv[1:]
# The loopback of a new network is down.
with socket.socket() as s:
    fcntl.ioctl(s, 0x8914, struct.pack('16sH14s', b'lo', 1, b''))
try:
    socket.create_connection(('192.0.2.1', 80), 1)
    sys.exit('there is a network')
except OSError:
    pass
env = {'PATH': folder + '/programs', 'HOME': folder, 'AI_SWARM_DIR': folder + '/swarm'}
server = subprocess.Popen([program, '--json', 'serve', '--listen', '127.0.0.1:0', '--lock-format', 'aiflow'],
    cwd=folder, env=env, stdout=subprocess.PIPE)
told = json.loads(server.stdout.readline())
base, token = told['url'], open(told['token_file']).read().strip()
def ask(path, body=None):
    data = None if body is None else json.dumps(body).encode()
    request = urllib.request.Request(base + path, data, {'content-type': 'application/json', 'authorization': 'Bearer ' + token})
    with urllib.request.build_opener(urllib.request.ProxyHandler({})).open(request) as answer:
        return answer.read()
commit = 'git init -q r && cd r && git -c user.name=t -c user.email=t@t commit -q --allow-empty -m t && git log --oneline'
run = json.loads(ask('/api/requests', {'id': 'RQ-1', 'command': ['sh', '-c', commit]}))['run_id']
ask('/api/queue/run-next', {'auto': True})
while True:
    shown = json.loads(ask('/api/runs/' + run))['run']
    if shown['completed_at']:
        break
for page in ['/', '/requests/RQ-1', '/runs/' + run, '/runs', '/locks', '/doctor', '/api', '/assets/page.mjs', '/metrics']:
    text = ask(page).decode()
    assert not any('src="http' in part or 'href="http' in part for part in text.split()), page
assert shown['status'] == 'succeeded', (shown, ask('/api/runs/' + run + '/log'))
assert json.loads(ask('/api/runs/' + run + '/log'))['text'].endswith(' t\n')
server.terminate()
sys.exit(server.wait())
"#;
    let folder = world.cwd().to_str().unwrap();
    Finished::of(&mut isolated(&["python3", "-c", script, world.program(), folder])).code(0);
}

#[test]
fn a_collector_that_cannot_be_used_is_told_and_one_of_the_environment_is_no_reason_not_to_serve() {
    let world = world!().with_state();
    let refused = world.run(["serve", "--otlp", "https://127.0.0.1:4318"]).code(2);
    refused.says("only http:// is supported").says("a collector on this machine");
    let world = world.set("OTEL_EXPORTER_OTLP_ENDPOINT", "https://127.0.0.1:4318");
    let server = ServerProcess::start(&world, &[]);
    server.get("/healthz").expect(200);
}
