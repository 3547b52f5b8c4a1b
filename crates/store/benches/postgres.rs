//! What leases and runs in PostgreSQL cost, against bare statements on the same server with the same durability.
//!
//! `scripts/bench postgres` starts a private server and runs this. Numbers are medians of alternating rounds, so that other
//! load on the machine slows both sides.
#![expect(clippy::expect_used, clippy::unwrap_used, reason = "a measurement may fail by panicking")]

#[path = "postgres/bare.rs"]
mod bare;
#[path = "postgres/leases.rs"]
mod leases;
#[path = "../../lockkeeper/benches/speed/measure.rs"]
#[expect(dead_code, reason = "other benches use the rest")]
mod measure;
#[path = "support/one_lease.rs"]
#[expect(dead_code, reason = "other benches use the rest")]
mod one_lease;
#[path = "postgres/programs.rs"]
mod programs;
#[path = "postgres/runs.rs"]
mod runs;
#[path = "postgres/user.rs"]
mod user;

use std::process::ExitCode;

use measure::Row;

/// A part of the bench: its name, and what it measures on a server.
type Section = (&'static str, fn(&str) -> Vec<Row>);

const SECTIONS: [Section; 10] = [
    ("lease", leases::acquire_and_release),
    ("many", |server| vec![leases::among_many(server), runs::claim_among_many(server)]),
    ("handoff", leases::hand_off),
    ("names", |server| vec![programs::on_their_own_names(server)]),
    ("storm", programs::on_one_name),
    ("trips", leases::round_trips),
    ("trips", runs::round_trips),
    ("runs", |server| runs::claim_and_end(server, 1, [0.35, 0.5])),
    ("runs", |server| runs::claim_and_end(server, 8, [0.2, 0.25])),
    ("runs", |server| runs::claim_and_end(server, 32, [0.07, 0.1])),
];

fn main() -> ExitCode {
    let Ok(server) = std::env::var("LOCKKEEPER_TEST_POSTGRES") else {
        println!("SKIPPED: needs a PostgreSQL server (scripts/bench postgres)");
        return ExitCode::SUCCESS;
    };
    // Cargo adds options of its own.
    let wanted: Vec<String> =
        std::env::args().skip(1).filter(|argument| !argument.starts_with('-')).collect();
    println!("{:<52} {:>12} {:>12} {:>8} {:>8}", "", "ours", "bare", "ratio", "limit");
    let mut holds = true;
    for (_, section) in
        SECTIONS.iter().filter(|(name, _)| wanted.is_empty() || wanted.iter().any(|want| want == name))
    {
        for row in section(&server) {
            println!("{row}");
            holds &= row.holds();
        }
    }
    if holds { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}
