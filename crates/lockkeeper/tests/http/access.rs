//! Who may talk to `serve`: the token, the Unix socket, the link for a browser.

use std::fs;
use std::io::Write;
use std::os::unix::fs::{FileTypeExt, PermissionsExt};
use std::os::unix::net::UnixStream;
use std::path::Path;

use lockkeeper_testing::http::{Http, Request, Response};
use lockkeeper_testing::{Finished, ServerProcess, Signal, files, is_root, skip, until, world};
use serde_json::json;

fn mode(path: &Path) -> u32 {
    fs::metadata(path).unwrap().permissions().mode() & 0o7777
}

/// Sends a GET over a Unix socket.
fn ask(socket: &Path, path: &str) -> Response {
    let mut stream = UnixStream::connect(socket).unwrap();
    write!(stream, "GET {path} HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\n\r\n").unwrap();
    Response::read(stream)
}

#[test]
fn a_server_asks_for_the_token_that_it_made_in_its_state_folder() {
    let world = world!().with_state();
    let server = ServerProcess::start(&world, &[]);
    let bare = Request::new(server.address(), "GET", "/api/locks").send();
    bare.error(401, "TOKEN_REQUIRED");
    let path = world.path("state/server.token");
    assert_eq!(mode(&path), 0o600);
    let token = fs::read_to_string(&path).unwrap().trim().to_owned();
    assert!(token.len() >= 64, "{token}");
    let bearer = format!("Bearer {token}");
    let request = |address| Request::new(address, "GET", "/api/locks").header("authorization", &*bearer);
    request(server.address()).send().expect(200);
    let second = ServerProcess::start(&world, &[]);
    request(second.address()).send().expect(200);
    assert_eq!(fs::read_to_string(&path).unwrap().trim(), token);
    Request::new(server.address(), "GET", "/healthz").send().expect(200);
    // Who has removed the file looks for the new one in its place.
    fs::remove_file(&path).unwrap();
    Request::new(server.address(), "GET", "/api/locks").send().error(401, "TOKEN_REQUIRED");
    assert_ne!(fs::read_to_string(&path).unwrap().trim(), token);
    request(server.address()).send().error(401, "TOKEN_REQUIRED");
}

#[test]
fn the_same_user_needs_no_token_on_the_socket() {
    let world = world!().with_state();
    let mut server = ServerProcess::start(&world, &[]);
    let socket = world.path("state/server.sock");
    assert_eq!(mode(&socket), 0o600);
    ask(&socket, "/api/locks").expect(200);
    // The socket of a server that was killed does not keep the next one from its place.
    server.kill();
    let _second = ServerProcess::start(&world, &[]);
    ask(&socket, "/api/locks").expect(200);
}

#[test]
fn another_user_needs_the_token_on_the_socket_too() {
    if !is_root() {
        return skip("root, to become another user");
    }
    let world = world!().with_state();
    let _server = ServerProcess::start(&world, &[]);
    let socket = world.path("state/server.sock");
    // As careless as somebody can be.
    for path in [world.cwd().parent().unwrap(), world.cwd(), &world.path("state")] {
        fs::set_permissions(path, fs::Permissions::from_mode(0o755)).unwrap();
    }
    fs::set_permissions(&socket, fs::Permissions::from_mode(0o666)).unwrap();
    let script = "import socket, sys
s = socket.socket(socket.AF_UNIX); s.connect(sys.argv[1])
s.sendall(b'GET /api/locks HTTP/1.1\\r\\nhost: localhost\\r\\nconnection: close\\r\\n\\r\\n')
print(s.recv(100).split()[1].decode())";
    let mut command = world.command("setpriv");
    // Programs that every user may execute.
    command
        .env("PATH", "/usr/bin:/bin")
        .args(["--reuid=65534", "--clear-groups", "python3", "-c", script])
        .arg(&socket);
    assert_eq!(Finished::of(&mut command).code(0).stdout().trim(), "401");
}

#[test]
fn a_socket_whose_path_would_be_too_long_is_in_the_runtime_folder() {
    let world = world!().at(&"long".repeat(30)).with_state();
    let runtime = world.beside("r");
    fs::create_dir(&runtime).unwrap();
    let world = world.set("XDG_RUNTIME_DIR", &runtime);
    let _server = ServerProcess::start(&world, &[]);
    let socket = fs::canonicalize(world.path("state/server.sock")).unwrap();
    assert!(socket.starts_with(&runtime), "{}", socket.display());
    assert!(fs::metadata(&socket).unwrap().file_type().is_socket());
    assert_eq!((mode(&socket), mode(socket.parent().unwrap())), (0o600, 0o700));
    ask(&socket, "/api/locks").expect(200);
}

#[test]
fn serving_without_a_token_says_what_it_means_and_root_has_to_confirm() {
    let world = world!().with_state();
    if is_root() {
        let refused = world.run(["serve", "--listen", "127.0.0.1:0", "--no-token"]).code(2);
        refused.says("as root").says("--yes");
        assert!(!files::is_there(&world.path("state/runs.db")));
    }
    let server = ServerProcess::start(&world, &["--no-token", "--yes"]);
    Request::new(server.address(), "GET", "/api/locks").send().expect(200);
    assert!(!files::is_there(&world.path("state/server.token")));
    server.signal(Signal::TERM);
    let said = server.wait().code(0).stderr();
    assert!(said.contains("every user and program of this machine"), "{said}");
}

#[test]
fn a_server_that_may_not_listen_claims_nothing() {
    let world = world!().with_state();
    let _ = world.run(["submit", "--id", "RQ-1", "--", "touch", "ran"]).code(0);
    let refused = world.run(["serve", "--listen", "0.0.0.0:0", "--no-token", "--yes", "--work", "2"]).code(2);
    refused.says("--token-file");
    assert_eq!(world.json(&["requests"])["requests"][0]["status"], json!("QUEUED"));
    assert!(!files::is_there(&world.path("ran")));
}

/// The link is in the list of processes while the browser is started.
#[test]
fn another_user_cannot_use_the_link_and_does_not_use_it_up() {
    if !is_root() {
        return skip("root, to become another user");
    }
    let world = world!().with_state();
    let mut server = world.start(["serve", "--listen", "127.0.0.1:0", "--print-url"]);
    let link = server.line();
    let (address, code) = link.strip_prefix("http://").unwrap().split_once("/login#").unwrap();
    let script = "import socket, sys
host, port = sys.argv[1].split(':'); s = socket.create_connection((host, int(port)))
s.sendall(('POST /login HTTP/1.1\\r\\nhost: ' + sys.argv[1] + '\\r\\nconnection: close\\r\\ncontent-type: '
    'application/x-www-form-urlencoded\\r\\ncontent-length: %d\\r\\n\\r\\n' % len(sys.argv[2]) + sys.argv[2]).encode())
print(s.recv(100).split()[1].decode())";
    let mut other = world.command("setpriv");
    // Programs that every user may execute.
    other.env("PATH", "/usr/bin:/bin").args([
        "--reuid=65534",
        "--clear-groups",
        "python3",
        "-c",
        script,
        address,
        code,
    ]);
    assert_eq!(Finished::of(&mut other).code(0).stdout().trim(), "401");
    let form = Request::new(address.parse().unwrap(), "POST", "/login");
    let form = form.header("content-type", "application/x-www-form-urlencoded").raw_body(code);
    assert_eq!(form.send().status, 303);
}

/// The browser is a program that writes down what it was asked to open.
#[test]
fn the_link_for_a_browser_logs_in_once_and_is_not_the_token() {
    let world = world!().with_state();
    let programs = world.beside("programs");
    files::write(
        &programs.join("xdg-open"),
        "#!/bin/sh\nprintf %s \"$1\" >\"$HOME/new\" && mv \"$HOME/new\" \"$HOME/opened\"\n",
    );
    fs::set_permissions(programs.join("xdg-open"), fs::Permissions::from_mode(0o755)).unwrap();
    let path = std::env::var("PATH").unwrap();
    let world = world.set("PATH", format!("{}:{path}", programs.display()));
    let server = ServerProcess::start(&world, &["--open"]);
    let opened = world.home().join("opened");
    until("the browser is asked to open the page", || opened.exists());
    let link = fs::read_to_string(opened).unwrap();
    let code = link.strip_prefix(&server.url("/login#code=")).unwrap_or_else(|| panic!("{link}"));
    let token = fs::read_to_string(world.path("state/server.token")).unwrap();
    assert!(!link.contains(token.trim()));
    let log_in = || {
        let form = Request::new(server.address(), "POST", "/login");
        form.header("content-type", "application/x-www-form-urlencoded")
            .raw_body(format!("code={code}"))
            .send()
    };
    let entered = log_in();
    assert_eq!((entered.status, entered.header("location")), (303, Some("/")));
    let cookie = entered.header("set-cookie").unwrap().split(';').next().unwrap().to_owned();
    assert!(cookie.starts_with(&format!("lockkeeper_session_{}=", server.address().port())), "{cookie}");
    let shown = Request::new(server.address(), "GET", "/api/locks").header("cookie", cookie);
    shown.send().expect(200);
    log_in().error(401, "TOKEN_REQUIRED");
}

#[test]
fn a_link_is_printed_for_those_who_want_to_open_it_themselves() {
    let world = world!().with_state();
    let mut server = world.start(["serve", "--listen", "127.0.0.1:0", "--print-url"]);
    let link = server.line();
    assert!(link.starts_with("http://127.0.0.1:") && link.contains("/login#code="), "{link}");
}
