//! Simulated hosts on one PostgreSQL server, faults by dice, and a judge over the history.
//!
//! A host is a network, pid, mount and uts namespace with a boot id and a runtime folder of its own. The whole test runs in
//! namespaces, too, so that nothing of it is left behind, and nothing of the machine's network is touched. `LOCKKEEPER_SOAK` says for how many
//! seconds faults come (80 without it), and `LOCKKEEPER_SEED` repeats their order.

#![cfg(target_os = "linux")]
#![expect(clippy::unwrap_used, reason = "a test that cannot go on fails")]

mod fault;
mod history;
mod host;
mod workers;

use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use lockkeeper_testing::{Dice, PostgresServer, Signal, is_installed, is_root, skip, this_test, until};

use fault::Fault;
use history::History;
use host::{Host, address};
use workers::Workers;

const HOSTS: usize = 3;
/// How long faults come, if nobody says otherwise.
const SPAN: Duration = Duration::from_secs(80);

/// Invariants 1, 2, 4 and 7. Requirement 157.
#[test]
fn faults_never_let_two_in_at_once() {
    let missing =
        ["unshare", "nsenter", "ip", "openssl", "flock"].into_iter().find(|tool| !is_installed(tool));
    let can_unshare = || {
        let mut tried = Command::new("unshare");
        tried.args(["--net", "--pid", "--mount", "--fork", "true"]).stderr(Stdio::null());
        tried.status().is_ok_and(|status| status.success())
    };
    if missing.is_some() || !is_root() || !can_unshare() {
        let needs =
            missing.map_or_else(|| "root, and the right to make namespaces".to_owned(), str::to_owned);
        assert!(std::env::var("CI").is_err(), "simulated hosts need {needs}");
        return skip(&needs);
    }
    let inside = this_test("the_test_itself");
    let mut unshare = Command::new("unshare");
    unshare.args(["--net", "--pid", "--mount", "--uts", "--fork", "--kill-child", "--mount-proc"]);
    let ended = unshare.arg(inside.get_program()).args(inside.get_args()).status().unwrap();
    assert!(ended.success(), "{ended}");
}

#[test]
#[ignore = "faults_never_let_two_in_at_once starts it in namespaces of its own"]
fn the_test_itself() {
    let mut dice = Dice::from_environment();
    let addresses: Vec<String> = (0..HOSTS).map(address).collect();
    host::ip(&["link", "set", "lo", "up"]);
    let Some(mut server) = PostgresServer::start_on(&addresses) else { return };
    let history = History::new();
    let hosts: Vec<Host> = (0..HOSTS).map(|number| Host::start(number, &server, &history)).collect();
    hosts[0].run(&["exec", "db", "--", "true"]).code(0);
    let workers = Workers::start(&hosts, dice.number());
    until("all hosts have had their turn", || (0..HOSTS).all(|host| history.begins_of(host) > 0));

    let span =
        std::env::var("LOCKKEEPER_SOAK").map_or(SPAN, |text| Duration::from_secs(text.parse().unwrap()));
    let (begun, mut left) = (Instant::now(), Vec::new());
    while begun.elapsed() < span {
        if left.is_empty() {
            left = Fault::ALL.to_vec();
        }
        let fault = left.swap_remove(dice.index(left.len()));
        let victim = until_somebody_is_inside(&history);
        eprintln!("{:>5.1}s {fault:?} at host {victim}", begun.elapsed().as_secs_f64());
        let excused = fault.happen(&mut server, &hosts, victim, &history, &mut dice);
        history.excuse(&excused);
        let seen = history.len();
        until("somebody gets the lease after the fault", || history.begins_after(seen));
        for token in excused.iter().filter(|token| history.is_succeeded(**token)) {
            let healthy = &hosts[(victim + 1) % HOSTS];
            healthy.run(&["fence", "db", &token.to_string()]).code(75);
        }
        history.judge();
    }
    // Nobody waits in vain: each host gets the lease once more.
    workers.finish();
    until("nothing is held at the end", || {
        let listed = hosts[0].run(&["locks", "--json"]);
        let listed: serde_json::Value = serde_json::from_str(&listed.stdout()).unwrap_or_default();
        let is_empty = |part: &str| listed[part].as_array().is_some_and(Vec::is_empty);
        is_empty("leases") && is_empty("waiters")
    });
    history.judge();
    eprintln!(
        "{} commands ran, {} of them beside a frozen or orphaned one",
        history.begins(),
        history.besides()
    );
    for host in &hosts {
        host.signal_all(Signal::KILL);
    }
}

/// The host whose command is inside now.
fn until_somebody_is_inside(history: &History) -> usize {
    let mut inside = None;
    until("somebody is inside", || {
        inside = history.inside();
        inside.is_some()
    });
    inside.unwrap().1
}
