//! Lists and pages among many runs against few, and the plainest answer against that of a bare server.

use std::sync::Arc;
use std::time::{Duration, Instant};

use lockkeeper_engine::runs::Runs;
use lockkeeper_engine::work::{ControlListener, Settings, Worker};

use crate::client::Client;
use crate::measure::{Row, median};
use crate::place::{Server, fill};

/// As many as fill every page, so that both sides show the same number.
const FEW: usize = 1_000;
const MANY: usize = 100_000;
/// How often each address is asked, and how many of these at once.
const REQUESTS: usize = 480;
const CLIENTS: usize = 4;
/// How many times as long a list among many may take as one among few.
const FLAT: f64 = 1.5;

/// What people and programs ask for all the time.
const PATHS: [&str; 9] = [
    "/api/requests",
    "/api/runs",
    "/api/runs?status=failed,canceled",
    "/api/requests?status=FAILED,CANCELED",
    "/api/queue",
    "/",
    "/?status=FAILED",
    "/runs",
    "/metrics",
];

/// Says how many limits were missed.
pub fn measure() -> usize {
    let folder = tempfile::tempdir().unwrap();
    let [few, many] = [("few", FEW), ("many", MANY)].map(|(name, count)| {
        let folder = folder.path().join(name);
        std::fs::create_dir(&folder).unwrap();
        let begun = Instant::now();
        drop(fill(&folder, count));
        eprintln!("{count} runs came in within {:.1} s", begun.elapsed().as_secs_f64());
        folder
    });
    // Somebody works, so that places in line are looked up.
    let _workers = [&few, &many].map(|folder| worker(&folder.join("state")));
    let (among_few, among_many, hello) = (Server::start(&few), Server::start(&many), Server::hello());
    println!(
        "\n{:<52} {:>12} {:>12} {:>8} {:>8}",
        "latency among 100,000 runs", "100,000", "1,000", "ratio", "limit"
    );
    let mut rows = Vec::new();
    for path in PATHS {
        let [a_few, a_many] = in_turns(path, [&among_few, &among_many]);
        let what = format!("{path} ({:.0}/s, p99 {:.1} ms)", a_many.a_second, a_many.p99.as_secs_f64() * 1e3);
        rows.push(Row::times(what, a_many.median, a_few.median, FLAT));
        println!("{}", rows.last().unwrap());
    }
    let mut client = Client::connect(among_many.address);
    let begun = Instant::now();
    client.get("/?text=number+99999");
    println!("{:<52} {:>9.1} ms", "search for a text in 100,000 titles", begun.elapsed().as_secs_f64() * 1e3);
    let [bare, ours] = in_turns("/healthz", [&hello, &among_many]);
    let row = Row::at_least("/healthz, against a bare server", ours.a_second, bare.a_second, "/s", 0.5);
    println!("{row}");
    rows.push(row);
    rows.iter().filter(|row| !row.holds()).count()
}

/// A worker that claims nothing.
fn worker(state: &std::path::Path) -> (Arc<Worker>, ControlListener) {
    let (runs, leases) = (Runs::open(state).unwrap(), lockkeeper_engine::open::open_engine(state).unwrap());
    let worker = Worker::begin(runs, leases, Settings::default(), 1, None, Box::new(|_| {})).unwrap();
    let worker = Arc::new(worker);
    let listener = ControlListener::begin(&worker, None).unwrap();
    (worker, listener)
}

struct Figures {
    median: Duration,
    p99: Duration,
    a_second: f64,
}

/// Asks both in rounds that take turns, with several clients at once.
fn in_turns(path: &str, servers: [&Server; 2]) -> [Figures; 2] {
    const ROUNDS: usize = 6;
    let mut samples: [Vec<Duration>; 2] = Default::default();
    let mut spent = [Duration::ZERO; 2];
    for _ in 0..ROUNDS {
        for (place, server) in servers.iter().enumerate() {
            let begun = Instant::now();
            let asked: Vec<Duration> = std::thread::scope(|scope| {
                let clients: Vec<_> = (0..CLIENTS)
                    .map(|_| scope.spawn(|| ask(server, path, REQUESTS / ROUNDS / CLIENTS)))
                    .collect();
                clients.into_iter().flat_map(|client| client.join().unwrap()).collect()
            });
            spent[place] += begun.elapsed();
            samples[place].extend(asked);
        }
    }
    let mut figures = samples.into_iter().zip(spent).map(|(mut samples, spent)| {
        samples.sort();
        let p99 = samples[samples.len() * 99 / 100];
        let a_second = samples.len() as f64 / spent.as_secs_f64();
        Figures { median: median(samples), p99, a_second }
    });
    std::array::from_fn(|_| figures.next().unwrap())
}

fn ask(server: &Server, path: &str, times: usize) -> Vec<Duration> {
    let mut client = Client::connect(server.address);
    // The first one finds caches cold and is not counted.
    client.get(path);
    let asked = (0..times).map(|_| {
        let begun = Instant::now();
        client.get(path);
        begun.elapsed()
    });
    asked.collect()
}
