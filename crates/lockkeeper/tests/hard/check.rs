//! Judges the recorded history of a storm: who held what together, in which order, and who waited in vain.

use std::collections::BTreeMap;
use std::time::Duration;

use crate::history::{Entry, Event, Mode, Want};

/// One stay inside, from the first moment that is certainly inside to the last.
#[derive(Clone, Debug)]
#[expect(dead_code, reason = "the worker is for messages")]
pub struct Hold {
    pub worker: u64,
    pub token: u64,
    pub asked_at: u64,
    pub from: u64,
    pub to: u64,
    pub wants: Vec<Want>,
}

impl Hold {
    fn excludes(&self, other: &Self) -> bool {
        self.wants.iter().any(|want| other.wants.iter().any(|theirs| want.excludes(theirs)))
    }
}

/// What a storm came to.
#[derive(Debug, Default)]
pub struct Findings {
    pub holds: Vec<Hold>,
    pub violations: Vec<String>,
}

/// Checks a whole history; `deaths` has the moment before each worker was sent its SIGKILL.
pub fn check(entries: &[Entry], deaths: &BTreeMap<u64, u64>) -> Findings {
    let mut findings = Findings::default();
    let mut by_worker: BTreeMap<u64, Vec<&Entry>> = BTreeMap::new();
    for entry in entries {
        by_worker.entry(entry.worker).or_default().push(entry);
    }
    for (worker, entries) in by_worker {
        findings.follow(worker, &entries, deaths);
    }
    findings.holds.sort_by_key(|hold| hold.from);
    findings.check_tokens();
    findings.check_overlaps();
    findings.check_slots();
    findings
}

impl Findings {
    fn complain(&mut self, text: String) {
        self.violations.push(text);
    }

    /// Turns one worker's lines into holds.
    fn follow(&mut self, worker: u64, entries: &[&Entry], deaths: &BTreeMap<u64, u64>) {
        let death = deaths.get(&worker).copied();
        let mut asked_at = None;
        let mut inside: Option<Hold> = None;
        for entry in entries {
            match entry.event {
                Event::Ask => asked_at = Some(entry.at),
                Event::Enter => {
                    let asked_at = asked_at.take().unwrap_or(entry.at);
                    let (token, from, to) = (entry.number, entry.at, entry.at);
                    inside = Some(Hold { worker, token, asked_at, from, to, wants: entry.wants.clone() });
                }
                Event::Leave => match inside.take() {
                    Some(hold) => self.holds.push(Hold { to: entry.at, ..hold }),
                    None => self.complain(format!("worker {worker} left what it had not entered")),
                },
                Event::Clash => {
                    let (other, at) = (entry.number, entry.at);
                    if deaths.get(&other).is_none_or(|death| *death > at) {
                        self.complain(format!("worker {worker} found {other} inside {:?}", entry.wants));
                    }
                }
                Event::Stale => {
                    self.complain(format!("worker {worker} wrote after token {} did", entry.number));
                }
            }
        }
        match (inside, death) {
            // The dead write nothing more: the hold ended with the worker.
            (Some(hold), Some(death)) => self.holds.push(Hold { to: death.max(hold.from), ..hold }),
            (Some(_), None) => self.complain(format!("worker {worker} never left and was not killed")),
            (None, None) if asked_at.is_some() => self.complain(format!("worker {worker} waited in vain")),
            (None, _) => {}
        }
    }

    fn check_tokens(&mut self) {
        let mut tokens: Vec<u64> = self.holds.iter().map(|hold| hold.token).collect();
        tokens.sort_unstable();
        for pair in tokens.windows(2).filter(|pair| pair[0] == pair[1]) {
            self.violations.push(format!("token {} was given twice", pair[0]));
        }
    }

    fn check_overlaps(&mut self) {
        let mut violations = Vec::new();
        for (place, later) in self.holds.iter().enumerate() {
            for earlier in self.holds[..place].iter().filter(|earlier| earlier.excludes(later)) {
                if earlier.to > later.from {
                    violations.push(format!("two holders at once: {earlier:?} and {later:?}"));
                }
                if earlier.token > later.token {
                    violations.push(format!("tokens went back: {earlier:?}, then {later:?}"));
                }
            }
        }
        self.violations.extend(violations);
    }

    fn check_slots(&mut self) {
        let mut changes: BTreeMap<&str, Vec<(u64, i64, i64)>> = BTreeMap::new();
        for hold in &self.holds {
            for want in &hold.wants {
                if let Mode::Slots(slots) = want.mode {
                    let line = changes.entry(&want.target).or_default();
                    line.push((hold.from, 1, i64::from(slots)));
                    line.push((hold.to, -1, i64::from(slots)));
                }
            }
        }
        let mut violations = Vec::new();
        for (target, mut line) in changes {
            // Who leaves at the same moment leaves first.
            line.sort_unstable();
            let mut inside = 0;
            for (at, change, slots) in line {
                inside += change;
                if inside > slots {
                    violations.push(format!("{inside} holders in {slots} slots of {target} at {at}"));
                }
            }
        }
        self.violations.extend(violations);
    }

    /// The longest time after `since` that a resource was free although somebody had been waiting for it, in a storm
    /// with exclusive holds on one name only.
    pub fn longest_idle(&self, since: u64) -> Duration {
        let mut longest = 0;
        for pair in self.holds.windows(2) {
            let (free_from, taken_at) = (pair[0].to.max(since), pair[1].from);
            let somebody_waited = pair[1].asked_at < free_from;
            if somebody_waited {
                longest = longest.max(taken_at.saturating_sub(free_from));
            }
        }
        Duration::from_nanos(longest)
    }

    /// The longest time by which anybody was overtaken: by how much later the one who went first had asked, in a
    /// storm with exclusive holds on one name only, among those who asked after `since`.
    pub fn worst_overtaking(&self, since: u64) -> Duration {
        let mut latest_ask = 0;
        let mut worst = 0;
        for hold in self.holds.iter().filter(|hold| hold.asked_at > since) {
            worst = worst.max(u64::saturating_sub(latest_ask, hold.asked_at));
            latest_ask = latest_ask.max(hold.asked_at);
        }
        Duration::from_nanos(worst)
    }

    /// Fails with everything that is wrong, if anything is.
    pub fn assert_clean(&self, about: &str) {
        let shown: Vec<&String> = self.violations.iter().take(5).collect();
        assert!(self.violations.is_empty(), "{about}: {} violations: {shown:#?}", self.violations.len());
    }
}

/// The checker itself: a history that it finds nothing in proves something only if it finds what is there.
mod tests {
    use super::{Entry, Findings, check};
    use std::collections::BTreeMap;

    fn judge(lines: &[&str], deaths: &[(u64, u64)]) -> Findings {
        let entries: Vec<Entry> = lines.iter().map(|line| line.parse().unwrap()).collect();
        check(&entries, &deaths.iter().copied().collect::<BTreeMap<_, _>>())
    }

    fn found(lines: &[&str], deaths: &[(u64, u64)]) -> String {
        judge(lines, deaths).violations.join("; ")
    }

    #[test]
    fn holds_after_each_other_are_clean() {
        let lines = ["1 1 enter 5 x:a", "2 1 leave 5 x:a", "3 2 enter 6 x:a", "4 2 leave 6 x:a"];
        assert_eq!(found(&lines, &[]), "");
        assert_eq!(found(&lines[..3], &[(2, 9)]), "");
    }

    #[test]
    fn two_holders_are_found() {
        let lines = ["1 1 enter 5 x:a", "3 1 leave 5 x:a", "2 2 enter 6 x:a", "4 2 leave 6 x:a"];
        assert!(found(&lines, &[]).contains("two holders at once"));
        let killed = ["1 1 enter 5 x:a", "2 2 enter 6 x:a", "4 2 leave 6 x:a"];
        assert!(found(&killed, &[(1, 3)]).contains("two holders at once"));
        assert_eq!(found(&killed, &[(1, 2)]), "");
        let paths =
            ["1 1 enter 5 x:src/**", "3 1 leave 5 x:src/**", "2 2 enter 6 s:src/a", "4 2 leave 6 s:src/a"];
        assert!(found(&paths, &[]).contains("two holders at once"));
    }

    #[test]
    fn sharers_may_be_together() {
        let lines = ["1 1 enter 5 s:a", "3 1 leave 5 s:a", "2 2 enter 6 s:a", "4 2 leave 6 s:a"];
        assert_eq!(found(&lines, &[]), "");
    }

    #[test]
    fn too_many_in_the_slots_are_found() {
        let lines = ["1 1 enter 5 1:a", "3 1 leave 5 1:a", "2 2 enter 6 1:a", "4 2 leave 6 1:a"];
        assert!(found(&lines, &[]).contains("2 holders in 1 slots"));
    }

    #[test]
    fn repeated_and_falling_tokens_are_found() {
        let twice = ["1 1 enter 5 x:a", "2 1 leave 5 x:a", "3 2 enter 5 x:b", "4 2 leave 5 x:b"];
        assert!(found(&twice, &[]).contains("given twice"));
        let back = ["1 1 enter 6 x:a", "2 1 leave 6 x:a", "3 2 enter 5 x:a", "4 2 leave 5 x:a"];
        assert!(found(&back, &[]).contains("tokens went back"));
    }

    #[test]
    fn clashes_count_unless_the_other_was_dead() {
        assert!(found(&["5 1 clash 2 x:a"], &[]).contains("found 2 inside"));
        assert!(found(&["5 1 clash 2 x:a"], &[(2, 6)]).contains("found 2 inside"));
        assert_eq!(found(&["5 1 clash 2 x:a"], &[(2, 4)]), "");
        assert!(found(&["5 1 stale 9 x:a"], &[]).contains("after token 9"));
    }

    #[test]
    fn a_survivor_who_waited_in_vain_is_found() {
        assert!(found(&["1 1 ask 0 x:a"], &[]).contains("in vain"));
        assert_eq!(found(&["1 1 ask 0 x:a"], &[(1, 3)]), "");
        assert!(found(&["1 1 enter 2 x:a"], &[]).contains("never left"));
    }

    #[test]
    fn idle_time_and_overtaking_are_measured() {
        let lines = [
            "1 1 ask 0 x:a",
            "2 1 enter 5 x:a",
            "10 1 leave 5 x:a",
            "4 2 ask 0 x:a",
            "40 2 enter 9 x:a",
            "50 2 leave 9 x:a",
            "20 3 ask 0 x:a",
            "30 3 enter 8 x:a",
            "35 3 leave 8 x:a",
        ];
        let findings = judge(&lines, &[]);
        assert_eq!(findings.longest_idle(0).as_nanos(), 5);
        assert_eq!(findings.worst_overtaking(0).as_nanos(), 16);
    }
}
