//! The whole table of observations, contracts and times.

use super::*;
use std::time::Duration;

const NOW: Moment = Moment::from_micros(1_000_000_000);

fn dates(ttl_seconds: Option<u64>, renewed_seconds_ago: i64) -> Dates {
    Dates {
        heartbeat_at: Moment::from_micros(NOW.as_micros() - renewed_seconds_ago * 1_000_000),
        ttl: ttl_seconds.map(|seconds| Ttl::new(Duration::from_secs(seconds)).unwrap()),
        pickup_by: None,
        session: None,
        remembered_since: None,
    }
}

const ALL_OBSERVATIONS: [Observation; 11] = [
    Observation::OtherHost,
    Observation::OtherBoot,
    Observation::OtherPidNamespace,
    Observation::Lock(LockState::Held),
    Observation::Lock(LockState::Free),
    Observation::Lock(LockState::Unreadable),
    Observation::Process(ProcessState::Running),
    Observation::Process(ProcessState::Gone),
    Observation::Process(ProcessState::Reused),
    Observation::Process(ProcessState::Unreadable),
    Observation::Nothing,
];
const ALL_CONTRACTS: [Contract; 3] = [Contract::Strict, Contract::Lease, Contract::Kill];

fn proves_death(observation: Observation) -> bool {
    matches!(
        observation,
        Observation::OtherBoot
            | Observation::Lock(LockState::Free)
            | Observation::Process(ProcessState::Gone | ProcessState::Reused)
    )
}

fn proves_life(observation: Observation) -> bool {
    matches!(observation, Observation::Lock(LockState::Held) | Observation::Process(ProcessState::Running))
}

#[test]
fn each_voucher_says_whose_life_counts_and_whose_descendants_may_end_the_claim() {
    let process = ProcessRef { pid: 7, started: 1 };
    let lock = Voucher::KernelLock { holder: HolderId(1), process };
    for (voucher, time_alone, lives, made_for) in [
        (lock, false, Some(process), Some(process)),
        (Voucher::Process(process), false, Some(process), Some(process)),
        (Voucher::Time, true, None, None),
        (Voucher::TimeFor(process), true, None, Some(process)),
    ] {
        let origin =
            Origin { host: "host".to_owned(), boot: "boot".to_owned(), pid_namespace: 1, session: None };
        let proof = Proof { origin, voucher };
        assert_eq!(
            (voucher.is_time_alone(), proof.process(), proof.made_for()),
            (time_alone, lives, made_for)
        );
    }
}

/// Invariant 4. The whole table of observations, contracts and dates is tested.
#[test]
fn proof_of_death_needs_no_ttl() {
    for contract in ALL_CONTRACTS {
        for dates in [dates(None, 0), dates(Some(10), 0), dates(Some(10), 11)] {
            for observation in ALL_OBSERVATIONS.into_iter().filter(|observation| proves_death(*observation)) {
                assert!(matches!(judge(contract, &dates, observation, NOW), Verdict::Dead(_)));
            }
        }
    }
}

/// Invariant 3.
#[test]
fn a_live_holder_is_never_free_under_the_strict_contract() {
    for dates in [dates(None, 0), dates(Some(10), 0), dates(Some(10), 11)] {
        for observation in ALL_OBSERVATIONS.into_iter().filter(|observation| proves_life(*observation)) {
            assert_eq!(judge(Contract::Strict, &dates, observation, NOW), Verdict::Alive);
        }
    }
}

/// Invariant 5.
#[test]
fn a_holder_that_cannot_be_judged_holds_until_its_ttl_and_for_good_without_one() {
    for contract in ALL_CONTRACTS {
        for observation in ALL_OBSERVATIONS.into_iter().filter(|s| !proves_life(*s) && !proves_death(*s)) {
            assert_eq!(judge(contract, &dates(None, 1_000_000), observation, NOW), Verdict::Unknown);
            assert_eq!(judge(contract, &dates(Some(10), 9), observation, NOW), Verdict::Unknown);
            assert_eq!(judge(contract, &dates(Some(10), 10), observation, NOW), Verdict::Unknown);
            assert_eq!(judge(contract, &dates(Some(10), 11), observation, NOW), Verdict::Expired);
        }
    }
}

/// Invariants 3, 5. A session ends what cannot be observed, and nothing that can.
#[test]
fn a_session_counts_where_the_kernel_shows_nothing() {
    let session = Some(Ttl::new(Duration::from_secs(30)).unwrap());
    let silent_for = |seconds| Dates { session, ..dates(None, seconds) };
    for contract in ALL_CONTRACTS {
        for observation in ALL_OBSERVATIONS {
            let (kept, ended) = (silent_for(30), silent_for(31));
            let verdicts = [kept, ended].map(|dates| judge(contract, &dates, observation, NOW));
            if proves_life(observation) {
                assert_eq!(verdicts, [Verdict::Alive; 2]);
            } else if proves_death(observation) {
                assert!(verdicts.iter().all(|verdict| matches!(verdict, Verdict::Dead(_))));
            } else {
                assert_eq!(verdicts, [Verdict::Unknown, Verdict::Expired]);
            }
        }
    }
}

/// Invariant 3. A store that was restored may have forgotten that a holder renewed its session.
#[test]
fn no_session_ends_within_its_span_after_the_store_came_back() {
    let session = Some(Ttl::new(Duration::from_secs(30)).unwrap());
    let back_for = |seconds| {
        let remembered_since = Some(NOW.before(Duration::from_secs(seconds)));
        Dates { session, remembered_since, ..dates(None, 1_000) }
    };
    let verdicts = [30, 31].map(|back| judge(Contract::Strict, &back_for(back), Observation::OtherHost, NOW));
    assert_eq!(verdicts, [Verdict::Unknown, Verdict::Expired]);
}

#[test]
fn an_expired_live_holder_follows_its_contract() {
    let expired = dates(Some(10), 11);
    let seen = Observation::Process(ProcessState::Running);
    assert_eq!(judge(Contract::Strict, &expired, seen, NOW), Verdict::Alive);
    assert_eq!(judge(Contract::Lease, &expired, seen, NOW), Verdict::Expired);
    assert_eq!(judge(Contract::Kill, &expired, seen, NOW), Verdict::Overdue);
}

#[test]
fn a_grant_that_is_not_picked_up_expires_under_every_contract() {
    let alive = Observation::Process(ProcessState::Running);
    let picked_up_by = |micros| Dates { pickup_by: Some(Moment::from_micros(micros)), ..dates(None, 0) };
    for contract in ALL_CONTRACTS {
        let (in_time, late) = (picked_up_by(NOW.as_micros()), picked_up_by(NOW.as_micros() - 1));
        assert_eq!(judge(contract, &in_time, alive, NOW), Verdict::Alive);
        assert_eq!(judge(contract, &late, alive, NOW), Verdict::Expired);
    }
}
