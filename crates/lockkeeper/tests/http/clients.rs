//! Clients that others generate from the OpenAPI document: they compile, and take and release a lease.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use lockkeeper_testing::http::Http;
use serde_json::json;

use super::server::Server;

const TYPESCRIPT: &str = include_str!("clients/lease.ts");
const PYTHON: &str = include_str!("clients/lease.py");

/// A folder of tools beside what is built.
fn tools(name: &str, needed: &str) -> PathBuf {
    let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join("..").join(name);
    assert!(folder.join(needed).exists(), "this test needs {name}/{needed}, which scripts/test installs");
    folder.canonicalize().unwrap()
}

/// Runs a program to its end. Returns what it printed.
fn run(command: &mut Command) -> String {
    let done = command.output().unwrap();
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    assert!(done.status.success(), "{command:?}\n{}\n{}", text(&done.stdout), text(&done.stderr));
    text(&done.stdout) + &text(&done.stderr)
}

/// A server with one run, and a folder with its document.
fn server() -> (Server, tempfile::TempDir) {
    let (server, folder) = (Server::start(), tempfile::tempdir().unwrap());
    server.post("/api/requests", &json!({ "title": "tests", "command": ["true"] })).expect(201);
    let document = server.get("/api/openapi.json").expect(200);
    fs::write(folder.path().join("openapi.json"), document.to_string()).unwrap();
    (server, folder)
}

fn assert_lease(server: &Server, printed: &str, language: &str) {
    let lines: Vec<&str> = printed.lines().collect();
    let [lease, refused, released, runs] = lines[..] else { panic!("{printed}") };
    assert!(lease.starts_with('L') && lease.ends_with(&format!(" test:{language} {language}")), "{lease}");
    assert_eq!([refused, released, runs], ["NOT_THE_OWNER", "released", "tests queued"]);
    assert_eq!(server.get("/api/locks").expect(200)["leases"], json!([]));
}

#[test]
fn a_generated_client_for_typescript_takes_and_releases_a_lease() {
    let tools = tools("typescript-client", "node_modules/.bin/tsc");
    let (server, folder) = server();
    let tool = |name: &str| {
        let mut command = Command::new(tools.join("node_modules/.bin").join(name));
        command.current_dir(folder.path());
        command
    };
    std::os::unix::fs::symlink(tools.join("node_modules"), folder.path().join("node_modules")).unwrap();
    fs::write(folder.path().join("lease.ts"), TYPESCRIPT).unwrap();
    run(tool("openapi-typescript").args(["openapi.json", "--output", "schema.d.ts"]));
    let checks = ["--strict", "--noUncheckedIndexedAccess", "--skipLibCheck", "--types", "node"];
    run(tool("tsc").args(checks).args(["--target", "es2022", "--module", "node16", "lease.ts"]));
    let printed = run(Command::new("node").arg("lease.js").arg(server.url("")).current_dir(folder.path()));
    assert_lease(&server, &printed, "typescript");
}

#[test]
fn a_generated_client_for_python_takes_and_releases_a_lease() {
    let tools = tools("python-client", "bin/openapi-python-client");
    let (server, folder) = server();
    fs::write(folder.path().join("lease.py"), PYTHON).unwrap();
    let mut generate = Command::new(tools.join("bin/openapi-python-client"));
    generate.args(["generate", "--path", "openapi.json", "--meta", "none", "--output-path", "generated"]);
    let path = format!("{}:/usr/bin:/bin", tools.join("bin").display());
    let printed = run(generate.current_dir(folder.path()).env("PATH", path));
    // It understands every type and every call but the text of the metrics.
    let left_out: Vec<&str> = printed.lines().filter(|line| line.starts_with("WARNING")).collect();
    assert_eq!(left_out, ["WARNING parsing GET /metrics within server."], "{printed}");
    let python = tools.join("bin/python");
    run(Command::new(&python).args(["-m", "compileall", "-q", "generated"]).current_dir(folder.path()));
    let mut take = Command::new(&python);
    let printed = run(take.args(["lease.py", &server.url("")]).current_dir(folder.path()));
    assert_lease(&server, &printed, "python");
}
