//! Five hundred open event streams: all hear of everything, how soon, and what each costs.

use std::io::{Read, Write};
use std::net::TcpStream;
use std::os::fd::AsFd;
use std::time::{Duration, Instant};

use lockkeeper::Keeper;
use lockkeeper_platform::poll;

use crate::client::Client;
use crate::idle::usage;
use crate::place::Server;

pub const STREAMS: usize = 500;
/// So many leases are taken and given back.
const EVENTS: usize = 40;
/// The slowest of a hundred streams hears of something within so long.
const P99: Duration = Duration::from_millis(500);
/// How many kilobytes a stream may cost.
const KILOBYTES: f64 = 64.0;

/// Streams that are listened to.
pub struct Listeners(Vec<Listener>);

struct Listener {
    stream: TcpStream,
    heard: Vec<u8>,
}

impl Listeners {
    pub fn open(server: &Server, count: usize) -> Self {
        let open = |_| {
            let mut stream = TcpStream::connect(server.address).unwrap();
            let head = format!("GET /api/events HTTP/1.1\r\nhost: {}\r\n\r\n", server.address);
            stream.write_all(head.as_bytes()).unwrap();
            Listener { stream, heard: Vec::new() }
        };
        let mut all = Self((0..count).map(open).collect());
        all.hear("event: hello");
        for listener in &all.0 {
            listener.stream.set_nonblocking(true).unwrap();
        }
        all
    }

    /// Waits until every stream has said a text; when each did.
    pub fn hear(&mut self, text: &str) -> Vec<Instant> {
        let limit = Instant::now() + Duration::from_secs(60);
        let mut when: Vec<Option<Instant>> = vec![None; self.0.len()];
        while when.iter().any(Option::is_none) {
            assert!(Instant::now() < limit, "not all heard {text}");
            let waiting: Vec<usize> = (0..self.0.len()).filter(|place| when[*place].is_none()).collect();
            let descriptors: Vec<_> = waiting.iter().map(|place| self.0[*place].stream.as_fd()).collect();
            let ready = poll::wait(&descriptors, Some(Duration::from_secs(1))).unwrap();
            let ready: Vec<usize> = waiting
                .iter()
                .enumerate()
                .filter(|(at, _)| ready.contains(*at))
                .map(|(_, place)| *place)
                .collect();
            for place in ready {
                if self.0[place].says(text) {
                    when[place] = Some(Instant::now());
                }
            }
        }
        when.into_iter().flatten().collect()
    }
}

impl Listener {
    fn says(&mut self, text: &str) -> bool {
        let mut buffer = [0; 16 * 1024];
        let read = self.stream.read(&mut buffer).unwrap_or(0);
        self.heard.extend_from_slice(&buffer[..read]);
        let found = self.heard.windows(text.len()).any(|window| window == text.as_bytes());
        if found {
            self.heard.clear();
        }
        found
    }
}

/// Says how many limits were missed.
pub fn measure() -> usize {
    let folder = tempfile::tempdir().unwrap();
    let keeper = Keeper::open(folder.path().join("state")).unwrap();
    let server = Server::start(folder.path());
    Client::connect(server.address).get("/api/locks");
    let one = Listeners::open(&server, 1);
    let before = usage(server.pid());
    let mut all = Listeners::open(&server, STREAMS - 1);
    let after = usage(server.pid());
    drop(one);
    let mut latencies = Vec::new();
    for number in 0..EVENTS {
        let name = format!("bench-{number}");
        let begun = Instant::now();
        let guard = keeper.lock(&name).owner("bench:1").try_acquire().unwrap();
        latencies.extend(all.hear(&name).into_iter().map(|at| at - begun));
        drop(guard);
        all.hear("lease.ended");
    }
    latencies.sort();
    let at = |percent: usize| latencies[(latencies.len() * percent / 100).min(latencies.len() - 1)];
    let kilobytes = (after.kilobytes - before.kilobytes) / (STREAMS - 2) as f64;
    println!("\n{STREAMS} event streams: all heard all of {EVENTS} leases");
    println!("{:<52} {:>9.1} ms", "until half of them heard", at(50).as_secs_f64() * 1e3);
    println!(
        "{:<52} {:>9.1} ms  (≤ {} ms)",
        "until 99 of 100 heard",
        at(99).as_secs_f64() * 1e3,
        P99.as_millis()
    );
    println!("{:<52} {kilobytes:>9.1} kB  (≤ {KILOBYTES} kB)", "memory of a stream");
    usize::from(at(99) > P99) + usize::from(kilobytes > KILOBYTES)
}
