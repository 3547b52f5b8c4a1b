//! How fast it is, as ratios against the bare thing measured side by side in the same run.
//!
//! `scripts/bench` builds what is needed and runs this; `scripts/bench NAME…` runs only some sections. Numbers
//! are medians; rounds of the two sides alternate, so that what else the machine does hits both.

mod commands;
mod contention;
mod floor;
mod handoff;
mod library;
#[expect(dead_code, reason = "other benches use the rest")]
mod measure;

use std::process::ExitCode;

use measure::Row;

type Section = (&'static str, fn() -> Vec<Row>);

const SECTIONS: [Section; 9] = [
    ("exec", commands::exec_against_flock),
    ("pairs", commands::twenty_thousand_pairs),
    ("library", library::acquire_and_release),
    ("listing", commands::listing_of_ten_thousand),
    ("handoff", handoff::between_commands),
    ("inprocess", handoff::between_threads),
    ("storm", contention::sixty_four_on_one_lock),
    ("groups", contention::fifty_over_five_groups),
    ("kill", handoff::after_kill),
];

fn main() -> ExitCode {
    // Workers of a section are this program, started again with a role.
    if let Ok(role) = std::env::var("BENCH_ROLE") {
        return contention::work(&role);
    }
    let wanted: Vec<String> = std::env::args().skip(1).filter(|arg| !arg.starts_with('-')).collect();
    let mut failed = false;
    println!("{:<52} {:>12} {:>12} {:>8} {:>8}", "", "ours", "bare", "ratio", "limit");
    for (name, section) in SECTIONS {
        if !wanted.is_empty() && !wanted.iter().any(|want| want == name) {
            continue;
        }
        for row in section() {
            failed |= !row.holds();
            println!("{row}");
        }
    }
    if failed { ExitCode::FAILURE } else { ExitCode::SUCCESS }
}
