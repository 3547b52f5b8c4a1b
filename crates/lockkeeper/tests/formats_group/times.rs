//! The times that the document allows, through the library. Medians of many, so that a busy machine does not matter;
//! `scripts/bench formats` has the same for the commands.

use std::time::{Duration, Instant};

use lockkeeper::clock::epoch_seconds;
use lockkeeper::core::overlap::relate;
use lockkeeper::core::pattern::Pattern;
use lockkeeper::lockfile::group::{self, Folders, GroupId, GroupLock, Survey};

use crate::site::Site;

const ROUNDS: usize = 51;

fn lap<T>(samples: &mut Vec<Duration>, work: impl FnOnce() -> T) -> T {
    let begun = Instant::now();
    let done = work();
    samples.push(begun.elapsed());
    done
}

/// Requirement 144. With eight groups held, as the document recommends at the most.
#[test]
fn acquire_release_and_checks_stay_within_their_times() {
    let site = Site::new();
    let folders = Folders::from_variables(&|name| (name == "LOCK_DIR").then(|| site.locks().into()));
    let (pid, now) = (std::process::id(), epoch_seconds());
    let take = |name: &str| {
        let group: GroupId = name.parse().unwrap();
        let mut lock = GroupLock::open(&folders, &group).unwrap();
        assert!(lock.try_acquire(&folders).unwrap());
        lock.register(pid, now).unwrap();
        lock
    };
    let held: Vec<GroupLock> = (0..7).map(|number| take(&format!("g{number}"))).collect();
    let texts =
        ["src/backend/**", "src/api/**", "**/*.ts", "package.json", ".workflow/*.yml", "src/frontend/**"];
    let patterns: Vec<Pattern> = texts.iter().map(|text| text.parse().unwrap()).collect();
    let [mut acquire, mut release, mut check, mut detect] = [const { Vec::new() }; 4];
    for _ in 0..ROUNDS {
        let lock = lap(&mut acquire, || take("timed"));
        assert!(lap(&mut release, || lock.release(pid, now)).unwrap().is_none());
        let circles = lap(&mut check, || {
            group::check(&folders, Duration::from_secs(600), now).unwrap();
            Survey::take(&folders, now).unwrap().circles()
        });
        assert!(circles.is_empty());
        lap(&mut detect, || {
            for (place, one) in patterns.iter().enumerate() {
                for other in &patterns[place + 1..] {
                    relate(one, other);
                }
            }
        });
    }
    drop(held);
    for (what, mut samples, allowed) in
        [("acquire", acquire, 10), ("release", release, 5), ("check", check, 50), ("detection", detect, 50)]
    {
        samples.sort();
        let median = samples[ROUNDS / 2];
        println!("{what}: {median:?} of {allowed} ms");
        assert!(median <= Duration::from_millis(allowed), "{what}: {median:?} of {allowed} ms");
    }
}
