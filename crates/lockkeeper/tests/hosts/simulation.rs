//! One simulation: hosts on the servers of one store, faults by dice, and the judge after each of them.

use std::io::Write;
use std::thread;
use std::time::{Duration, Instant};

use lockkeeper_testing::{Dice, LIMIT, Signal, until};

use super::fault::Fault;
use super::history::History;
use super::host::Host;
use super::network;
use super::server::{HOSTS, Server};
use super::workers::Workers;

/// Runs the hosts of one store while faults come for this long.
pub(crate) fn simulate<S: Server>(name: &str, mut dice: Dice, span: Duration) {
    network::ip("link set lo up");
    let history = History::new();
    let Some(mut server) = S::start(&history) else { return };
    let start = |host| Host::start(host, &server.url(host), server.token_file(), &history);
    let hosts: Vec<Host> = (0..HOSTS).map(start).collect();
    until("the store can be used", || hosts[0].run(&["exec", "db", "--", "true"]).succeeded());
    let workers = Workers::start(&hosts, dice.number());
    until("all hosts have had their turn", || (0..HOSTS).all(|host| history.begins_of(host) > 0));

    let begun = Instant::now();
    let (mut of_server, mut of_hosts, mut faults) = (Vec::new(), Vec::new(), 0);
    while begun.elapsed() < span {
        let victim = until_somebody_is_inside(&history);
        let seen = history.len();
        let shown = |fault: &dyn std::fmt::Debug| {
            say(&format!("{:>6.1}s {name}: {fault:?} at host {victim}", begun.elapsed().as_secs_f64()));
        };
        let excused = if faults % 2 == 0 {
            let fault = next(&mut of_server, S::FAULTS, &mut dice);
            shown(&fault);
            workers.may_lose_their_places(S::lets_two_in(fault));
            server.fail(fault, victim, &mut dice);
            if S::lets_two_in(fault) { history.all_tokens_since(seen) } else { Vec::new() }
        } else {
            let fault = next(&mut of_hosts, Fault::ALL, &mut dice);
            shown(&fault);
            fault.happen(&server, &hosts[victim], &history, &mut dice)
        };
        faults += 1;
        history.excuse(&excused);
        let seen = history.len();
        until_progress(&hosts, || history.begins_after(seen));
        for token in excused.iter().filter(|token| history.is_succeeded(**token)) {
            let healthy = &hosts[(victim + 1) % HOSTS];
            healthy.run(&["fence", "db", &token.to_string()]).code(75);
        }
        workers.may_lose_their_places(false);
        workers.check();
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
    let (commands, besides, refused) = (history.begins(), history.besides(), history.refused());
    say(&format!(
        "{name}: {faults} faults, {commands} commands, {besides} of them beside an excused one, {refused} writes refused"
    ));
    for host in &hosts {
        host.signal_all(Signal::KILL);
    }
}

/// Waits until somebody gets the lease after a fault. Otherwise it shows what the store says, and which processes there are.
#[track_caller]
fn until_progress(hosts: &[Host], is_there: impl Fn() -> bool) {
    let limit = Instant::now() + LIMIT;
    while !is_there() {
        if Instant::now() > limit {
            let listed = hosts[0].run(&["locks", "--json"]);
            let why = hosts[0].run(&["why", "db"]);
            let running =
                std::process::Command::new("ps").arg("-eo").arg("pid,ppid,stat,etimes,args").output();
            let running = String::from_utf8_lossy(&running.unwrap().stdout).into_owned();
            let [listed, why] = [listed, why].map(|it| format!("{}{}", it.stdout(), it.stderr()));
            panic!("nobody got the lease within {LIMIT:?}: {listed}\n{why}\n{running}");
        }
        thread::sleep(Duration::from_millis(20));
    }
}

/// All faults come once before one comes again.
fn next<F: Copy>(left: &mut Vec<F>, all: &[F], dice: &mut Dice) -> F {
    if left.is_empty() {
        left.extend(all);
    }
    left.swap_remove(dice.index(left.len()))
}

/// The host whose command is inside now.
fn until_somebody_is_inside(history: &History) -> usize {
    let mut inside = None;
    until("somebody is inside", || {
        inside = history.inside();
        inside.is_some_and(|(_, host)| host < HOSTS)
    });
    inside.unwrap().1
}

/// One line, at once: simulations run side by side.
fn say(line: &str) {
    let _ = std::io::stderr().write_all(format!("{line}\n").as_bytes());
}
