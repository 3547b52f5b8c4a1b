//! A server of state folders inside of the test, which speaks as `lockkeeper serve` does. The first part of a path names the folder.

use std::collections::BTreeMap;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{Ipv4Addr, TcpListener, TcpStream};
use std::os::fd::{AsFd, BorrowedFd};
use std::sync::{Arc, Mutex, OnceLock};
use std::thread;
use std::time::Duration;

use lockkeeper_core::id::WakerId;
use lockkeeper_core::request::Request;
use lockkeeper_core::time::Ttl;
use lockkeeper_platform::poll;
use lockkeeper_store::ServedFolder;
use tempfile::TempDir;

/// Names the server for another process.
pub const SERVER: &str = "LOCKKEEPER_TEST_HTTP";

/// A folder with a state folder for each project.
pub struct Serving {
    pub folder: TempDir,
    pub boot: Mutex<&'static str>,
    pub open: Mutex<BTreeMap<String, Arc<ServedFolder>>>,
}

/// The address of the server, which is started with the first call.
pub fn address() -> String {
    static ADDRESS: OnceLock<String> = OnceLock::new();
    let started = || start().0;
    std::env::var(SERVER).unwrap_or_else(|_| ADDRESS.get_or_init(started).clone())
}

/// Starts a server of its own.
pub fn start() -> (String, Arc<Serving>) {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
    let address = format!("http://{}", listener.local_addr().unwrap());
    let folder = tempfile::tempdir().unwrap();
    let serving = Arc::new(Serving { folder, boot: Mutex::new("this-boot"), open: Mutex::default() });
    let served = Arc::clone(&serving);
    // The threads end with the process.
    thread::spawn(move || {
        for client in listener.incoming().flatten() {
            let serving = Arc::clone(&serving);
            thread::spawn(move || serving.serve(client));
        }
    });
    (address, served)
}

impl Serving {
    fn project(&self, name: &str) -> Arc<ServedFolder> {
        let mut open = self.open.lock().unwrap();
        let folder = self.folder.path().join(name);
        let session = Ttl::new(Duration::from_secs(30)).unwrap();
        let boot = *self.boot.lock().unwrap();
        let opened = || {
            let translate = |request| Request { dir: "converted".to_owned(), ..request };
            Arc::new(ServedFolder::open(&folder, boot, name, session, &translate).unwrap())
        };
        Arc::clone(open.entry(name.to_owned()).or_insert_with(opened))
    }

    /// Answers requests until the client is gone.
    fn serve(&self, mut client: TcpStream) -> Option<()> {
        client.set_nodelay(true).ok()?;
        let mut input = BufReader::new(client.try_clone().ok()?);
        loop {
            let (mut lines, mut length) = (Vec::new(), 0);
            loop {
                let mut line = String::new();
                input.read_line(&mut line).ok()?;
                let line = line.strip_suffix("\r\n")?.to_owned();
                if line.is_empty() {
                    break;
                }
                if let Some(value) = line.strip_prefix("Content-Length: ") {
                    length = value.parse().ok()?;
                }
                lines.push(line);
            }
            let mut body = vec![0; length];
            input.read_exact(&mut body).ok()?;
            let mut path = lines.first()?.split(' ').nth(1)?.split('/').skip(1);
            let folder = self.project(path.next()?);
            match (path.nth(2), path.next()) {
                (Some("changes"), _) => return changes(&folder, &client),
                (_, None) => {
                    let answer = folder.answer(&body).ok()?;
                    let head = format!("HTTP/1.1 200 OK\r\nContent-Length: {}\r\n\r\n", answer.len());
                    client.write_all(&[head.as_bytes(), &answer].concat()).ok()?;
                }
                (_, Some(waker)) => return wake(&folder, waker.parse().ok()?, &client),
            }
        }
    }
}

/// Passes wake-ups on until the client is gone.
fn wake(folder: &ServedFolder, waker: u64, client: &TcpStream) -> Option<()> {
    let waker = folder.waker(WakerId(waker)).ok()?;
    pass_on(client, waker.as_fd(), || waker.receive())
}

/// Passes changes on until the client is gone.
fn changes(folder: &ServedFolder, client: &TcpStream) -> Option<()> {
    let changes = folder.changes().ok()?;
    let told = || {
        changes.drain();
        "wake\n".to_owned()
    };
    pass_on(client, changes.as_fd()?, told)
}

fn pass_on(mut client: &TcpStream, signal: BorrowedFd<'_>, told: impl Fn() -> String) -> Option<()> {
    let part = |text: &str| format!("{:x}\r\n{text}\r\n", text.len());
    client.write_all(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n").ok()?;
    client.write_all(part("ready\n").as_bytes()).ok()?;
    loop {
        let ready = poll::wait(&[signal, client.as_fd()], None).ok()?;
        if ready.contains(1) {
            return None;
        }
        client.write_all(part(&told()).as_bytes()).ok()?;
    }
}
