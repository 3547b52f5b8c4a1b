//! Many workers on many requests, killed and frozen at random, while requests are called off.
//!
//! Every command checks by itself that nobody is where it must be alone: it leaves its number and its run at each place
//! that it holds, and complains when it finds one there that still lives.

use std::time::{Duration, Instant};

use lockkeeper_core::record::Priority;
use lockkeeper_core::request::Request;
use lockkeeper_core::retry::RetryPolicy;
use lockkeeper_core::run::{Reason, Status};
use rustix::process::Signal;

use super::site::{PATIENCE, Site, Worker, until};

const REQUESTS: usize = 300;
const WORKERS: usize = 4;

/// A small generator, so that a seed gives the same storm again.
struct Dice(u64);

impl Dice {
    fn roll(&mut self, sides: u64) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0 % sides
    }
}

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
    let (locks, paths, places) = HOLDINGS[usize::try_from(dice.roll(HOLDINGS.len() as u64)).unwrap()];
    let shared = dice.roll(4) == 0;
    let mode = if shared { "s" } else { "x" };
    let mut script = String::from(". ./library; echo $LOCKKEEPER_RUN_ID $LOCKKEEPER_ATTEMPT >> record; ");
    // No run is executed by two at once.
    script.push_str("occupy run-$LOCKKEEPER_RUN_ID x; ");
    for place in places {
        script.push_str(&format!("occupy {place} {mode}; "));
    }
    script.push_str(match dice.roll(8) {
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
        _ if dice.roll(5) > 0 => Vec::new(),
        _ => vec![format!("r{}", dice.roll(number as u64)).parse().unwrap()],
    };
    Request {
        locks: locks.iter().map(|name| name.parse().unwrap()).collect(),
        paths: paths.iter().map(|path| path.parse().unwrap()).collect(),
        shared,
        priority: Priority::new(i32::try_from(dice.roll(3)).unwrap()).unwrap(),
        after,
        timeout: (endless || dice.roll(3) == 0).then(|| Duration::from_millis(200 + dice.roll(400))),
        queue_timeout: (dice.roll(20) == 0).then(|| Duration::from_millis(500 + dice.roll(5000))),
        retry: RetryPolicy {
            limit: u32::try_from(dice.roll(3)).unwrap(),
            base: Duration::from_millis(20),
            ..RetryPolicy::default()
        },
        ..site.script(&format!("r{number}"), &script)
    }
}

fn worker(site: &Site) -> Worker {
    site.unheard_worker(&["--jobs", "4", "--heartbeat", "150ms"])
}

/// Requirements 83, 85, 87, 88, 89, 90, 91, 92. Invariants 1, 4, 9, 10.
#[test]
fn a_storm_of_workers_executes_everything_once_and_nothing_together_that_must_not_be() {
    let seed = std::env::var("LOCKKEEPER_SEED").ok().and_then(|seed| seed.parse().ok());
    let seed: u64 = seed.unwrap_or_else(|| u64::from(std::process::id()) * 7919 + 1);
    eprintln!("LOCKKEEPER_SEED={seed}");
    let mut dice = Dice(seed);
    let site = Site::new();
    std::fs::create_dir(site.dir().join("places")).unwrap();
    std::fs::write(site.dir().join("library"), LIBRARY).unwrap();
    let mut crew: Vec<Worker> = (0..WORKERS).map(|_| worker(&site)).collect();
    let mut runs = Vec::new();
    for number in 0..REQUESTS {
        runs.push(site.submit(&request(&site, &mut dice, number)));
        match dice.roll(12) {
            0 => {
                let place = usize::try_from(dice.roll(WORKERS as u64)).unwrap();
                crew[place].kill();
                crew[place] = worker(&site);
            }
            1 => {
                let place = usize::try_from(dice.roll(WORKERS as u64)).unwrap();
                crew[place].signal(Signal::STOP);
                // Long enough to be replaced, at times.
                std::thread::sleep(Duration::from_millis(dice.roll(900)));
                crew[place].signal(Signal::CONT);
            }
            2..4 => {
                let place = usize::try_from(dice.roll(runs.len() as u64)).unwrap();
                // It may have ended, which is an answer as well.
                let _ = site.runs.cancel(&runs[place], None);
            }
            _ => {}
        }
    }
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
    for worker in &mut crew {
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
