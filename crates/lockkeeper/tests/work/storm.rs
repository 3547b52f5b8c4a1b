//! Many workers on many requests, killed and frozen at random, while requests are called off.
//!
//! Every command checks by itself that nobody is where it must be alone: it leaves its number and its run at each place
//! that it holds, and complains when it finds one there that still lives.

use std::time::{Duration, Instant};

use lockkeeper_core::record::Priority;
use lockkeeper_core::request::Request;
use lockkeeper_core::retry::RetryPolicy;
use lockkeeper_core::run::{Reason, Status};
use lockkeeper_testing::{Dice, Signal};

use super::guardians::{guardian_of, kill};
use super::site::{PATIENCE, Site, Worker, until};

const REQUESTS: usize = 300;
const WORKERS: usize = 4;

/// What can be held: as locks and paths, and the places that it means.
const HOLDINGS: [(&[&str], &[&str], &[&str]); 7] = [
    (&[], &[], &[]),
    (&["db"], &[], &["db"]),
    (&["web"], &[], &["web"]),
    (&["db", "web"], &[], &["db", "web"]),
    (&[], &["src/**"], &["src", "api"]),
    (&[], &["src/api/**"], &["api"]),
    (&["web"], &["docs/**"], &["web", "docs"]),
];

/// `occupied PLACE MODE` complains about a process that lives there and must not, then takes the place.
const LIBRARY: &str = r#"
alive() { [ -n "$1" ] && tr '\0' '\n' < /proc/$1/environ 2>/dev/null | grep -qx "LOCKKEEPER_RUN_ID=$2"; }
meet() { [ -e "$1" ] || return 0; read -r pid run < "$1" || return 0
    [ "$pid" = $$ ] || ! alive "$pid" "$run" || echo "$LOCKKEEPER_RUN_ID met $run at $1" >> violations; }
occupy() {
    for file in "places/$1.x" $([ "$2" = x ] && echo places/$1.s.*); do meet "$file"; done
    if [ "$2" = x ]; then file="places/$1.x"; else file="places/$1.s.$$"; fi
    echo "$$ $LOCKKEEPER_RUN_ID" > "$file.$$.tmp"; mv "$file.$$.tmp" "$file"; }
"#;

fn request(site: &Site, dice: &mut Dice, number: usize) -> Request {
    let (locks, paths, places) = *dice.pick(&HOLDINGS);
    let shared = dice.below(4) == 0;
    let mode = if shared { "s" } else { "x" };
    let mut script = String::from(". ./library; echo $LOCKKEEPER_RUN_ID $LOCKKEEPER_ATTEMPT >> record; ");
    // No run is executed by two at once.
    script.push_str("occupy run-$LOCKKEEPER_RUN_ID x; ");
    for place in places {
        script.push_str(&format!("occupy {place} {mode}; "));
    }
    script.push_str(match dice.below(8) {
        0 => "exit 1",
        1 => "(setsid sleep 300 &); exit 0",
        2 => "trap '' TERM; sleep 0.2",
        3 => "sleep 0.3",
        4 => "exec sleep 300",
        5 => "[ $LOCKKEEPER_ATTEMPT -gt 1 ]",
        _ => "exit 0",
    });
    let endless = script.ends_with("exec sleep 300");
    let after = match number {
        0 => Vec::new(),
        _ if dice.below(5) > 0 => Vec::new(),
        _ => vec![format!("r{}", dice.below(number as u64)).parse().unwrap()],
    };
    Request {
        locks: locks.iter().map(|name| name.parse().unwrap()).collect(),
        paths: paths.iter().map(|path| path.parse().unwrap()).collect(),
        shared,
        priority: Priority::new(i32::try_from(dice.below(3)).unwrap()).unwrap(),
        after,
        timeout: (endless || dice.below(3) == 0).then(|| Duration::from_millis(200 + dice.below(400))),
        queue_timeout: (dice.below(20) == 0).then(|| Duration::from_millis(500 + dice.below(5000))),
        retry: RetryPolicy {
            limit: u32::try_from(dice.below(3)).unwrap(),
            base: Duration::from_millis(20),
            ..RetryPolicy::default()
        },
        ..site.script(&format!("r{number}"), &script)
    }
}

fn worker(site: &Site) -> Worker {
    site.worker(&["--jobs", "4", "--heartbeat", "150ms"])
}

/// Requirements 83, 85, 87, 88, 89, 90, 91, 92. Invariants 1, 4, 9, 10.
#[test]
fn a_storm_of_workers_executes_everything_once_and_nothing_together_that_must_not_be() {
    let mut dice = Dice::from_environment();
    let seed = dice.seed();
    let site = Site::new();
    std::fs::create_dir(site.dir().join("places")).unwrap();
    std::fs::write(site.dir().join("library"), LIBRARY).unwrap();
    let mut workers: Vec<Worker> = (0..WORKERS).map(|_| worker(&site)).collect();
    let mut runs = Vec::new();
    let (mut kills, mut guardians) = (0, 0);
    for number in 0..REQUESTS {
        runs.push(site.submit(&request(&site, &mut dice, number)));
        match dice.below(12) {
            0 => {
                let place = dice.index(WORKERS);
                // Those that it handles let what it executes come to its end.
                let signals = [Signal::KILL, Signal::KILL, Signal::QUIT, Signal::TERM, Signal::HUP];
                workers[place].signal(signals[dice.index(5)]);
                workers[place].wait();
                workers[place] = worker(&site);
                kills += 1;
            }
            4 => {
                let place = dice.index(WORKERS);
                if let Some(guardian) = guardian_of(workers[place].pid()) {
                    kill(guardian, Signal::KILL);
                    guardians += 1;
                }
            }
            1 => {
                let place = dice.index(WORKERS);
                workers[place].signal(Signal::STOP);
                // Long enough to be replaced, at times.
                std::thread::sleep(Duration::from_millis(dice.below(900)));
                workers[place].signal(Signal::CONT);
            }
            2..4 => {
                let place = dice.index(runs.len());
                // It may have ended, which is an answer as well.
                let _ = site.runs.cancel(&runs[place], None);
            }
            _ => {}
        }
    }
    eprintln!("{kills} workers and {guardians} guardians were ended");
    let limit = Instant::now() + PATIENCE * 3;
    let stuck = || {
        let unfinished = runs.iter().filter(|id| {
            let view = site.runs.show(id).unwrap();
            // What comes after something that failed is not begun.
            !(view.run.status().is_terminal()
                || view.run.status() == Status::Queued && view.request.unmet > 0)
        });
        unfinished.count()
    };
    while stuck() > 0 {
        assert!(Instant::now() < limit, "seed {seed}: {} runs do not end", stuck());
        std::thread::sleep(Duration::from_millis(50));
    }
    for worker in &mut workers {
        worker.signal(Signal::TERM);
        assert_eq!(worker.wait(), Some(0), "seed {seed}");
    }
    until("all is settled", || site.runs.store().snapshot().unwrap().active_runs().unwrap().is_empty());
    check(&site, seed, &runs);
}

fn check(site: &Site, seed: u64, runs: &[lockkeeper_core::id::RunId]) {
    let violations = std::fs::read_to_string(site.dir().join("violations")).unwrap_or_default();
    assert_eq!(violations, "", "seed {seed}");
    let record = site.record();
    let mut once = record.clone();
    once.sort();
    once.dedup();
    assert_eq!(once.len(), record.len(), "seed {seed}: an attempt was executed twice");
    let mut counts = std::collections::BTreeMap::new();
    for id in runs {
        let view = site.runs.show(id).unwrap();
        let run = &view.run;
        let about = format!("seed {seed}: {run:#?}");
        *counts.entry((run.status(), run.reason())).or_insert(0) += 1;
        assert!(run.attempt() <= view.request.request.retry.limit + 1, "{about}");
        let executed = record.iter().filter(|line| line.starts_with(id.as_str())).count();
        assert!(executed <= run.attempt() as usize, "{about}");
        if run.status() == Status::Succeeded {
            assert!(record.contains(&format!("{id} {}", run.attempt())), "{about}");
        }
        // One event after the other, each from where the last one led, and one end.
        let mut before: Option<String> = None;
        for (place, event) in view.events.iter().enumerate() {
            assert_eq!(event.id.seq as usize, place + 1, "{about}");
            assert_eq!(event.from, before, "{about}");
            before = Some(event.to.clone());
        }
        let ends = view.events.iter().filter(|event| event.kind == "ended").count();
        assert_eq!(ends, usize::from(run.status().is_terminal()), "{about}");
    }
    eprintln!("{counts:?}, {} executed", record.len());
    assert!(counts.contains_key(&(Status::Succeeded, None)));
    assert!(!counts.contains_key(&(Status::Failed, Some(Reason::LeaseLost))), "{counts:?}");
    site.assert_settled(&format!("seed {seed}"));
}
