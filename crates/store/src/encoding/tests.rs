//! Tests of the encoding of claims and records.

use super::*;

fn claim(voucher: Voucher, ttl: Option<Duration>) -> Claim {
    let slots = NonZeroU32::new(3).unwrap();
    let origin =
        Origin { host: "host".to_owned(), boot: "b-1".to_owned(), pid_namespace: u64::MAX, session: None };
    Claim {
        owner: "worker:1".parse().unwrap(),
        resources: vec![
            Resource { target: Target::Name("git/index".parse().unwrap()), mode: Mode::Exclusive },
            Resource { target: Target::Path("src/{a,b}/**".parse().unwrap()), mode: Mode::Shared },
            Resource { target: Target::Name("数据库 \"x\"".parse().unwrap()), mode: Mode::Slots(slots) },
        ],
        proof: Proof { origin, voucher },
        contract: Contract::Kill,
        ttl: ttl.map(|span| Ttl::new(span).unwrap()),
        reason: ttl.map(|_| "a \\ reason\n".to_owned()),
        ticket: ttl.map(|_| "my turn".parse().unwrap()),
        agent: None,
    }
}

fn claims() -> Vec<Claim> {
    let process = ProcessRef { pid: 42, started: u64::MAX };
    let vouchers = [
        Voucher::KernelLock { holder: HolderId(7), process },
        Voucher::Process(process),
        Voucher::Time,
        Voucher::TimeFor(process),
    ];
    let spans = [None, Some(Duration::from_micros(1_500_001))];
    let trees = [None, Some(None), Some(Some("worktrees/x".into()))];
    let agents = trees.map(|agent| agent.map(|work_tree| Agent { work_tree }));
    let claims = vouchers.iter().flat_map(|voucher| spans.map(|span| claim(*voucher, span)));
    let sessions = [None, Some(Ttl::new(Duration::from_secs(30)).unwrap())];
    let claims = claims.flat_map(|claim| {
        sessions.map(|session| {
            let mut claim = claim.clone();
            claim.proof.origin.session = session;
            claim
        })
    });
    claims.flat_map(|claim| agents.clone().map(|agent| Claim { agent, ..claim.clone() })).collect()
}

#[test]
fn a_claim_is_read_as_it_was_written() {
    for claim in claims() {
        assert_eq!(claim_from_bytes(&claim_to_bytes(&claim)), Some(claim));
    }
}

/// Programs older than agents refuse every claim whose first byte has the highest bit.
#[test]
fn only_claims_of_agents_are_refused_by_older_programs() {
    for claim in claims() {
        let is_refused = claim_to_bytes(&claim)[0] >> 7 == 1;
        assert_eq!(is_refused, claim.agent.is_some());
    }
}

#[test]
fn ids_are_read_as_they_were_written() {
    for ids in [vec![], vec![0], vec![127, 128, 1 << 62, u64::MAX]] {
        let ids: Vec<LeaseId> = ids.into_iter().map(LeaseId).collect();
        assert_eq!(lease_ids_from_bytes(&lease_ids_to_bytes(&ids)), Some(ids));
    }
    for bad in [&[0x80][..], &[0xff; 10], &[0x80, 0x80, 0x80, 0x80, 0x80, 0x80, 0x80, 0x80, 0x80, 2]] {
        assert_eq!(lease_ids_from_bytes(bad), None, "{bad:?}");
    }
}

/// Invariant 12.
#[test]
fn a_claim_with_missing_or_extra_bytes_is_refused() {
    for claim in claims() {
        let mut bytes = claim_to_bytes(&claim);
        for length in 0..bytes.len() {
            assert_eq!(claim_from_bytes(&bytes[..length]), None, "{length} of {}", bytes.len());
        }
        bytes.push(0);
        assert_eq!(claim_from_bytes(&bytes), None);
    }
}

/// Invariant 12.
#[test]
fn bytes_that_are_no_claim_are_refused() {
    let good = claim_to_bytes(&claim(Voucher::Time, None));
    assert!(claim_from_bytes(&good).is_some());
    let at = |text: &[u8]| good.windows(text.len()).position(|part| part == text).unwrap();
    let changes = [
        ("a voucher", 0, good[0] | 3),
        ("a contract", 0, good[0] | 3 << CONTRACT),
        ("the flag of agents without their data", 0, good[0] | IS_OF_AGENT),
        ("an owner", at(b"worker:1") + 6, b'.'),
        ("the length of an owner", 1, 0xff),
        ("the number of resources", at(b"worker:1") + 8, 0),
        ("a name", at(b"git/index"), b'*'),
        ("a text", at(b"git/index"), 0xff),
        ("slots", at("数".as_bytes()) - 2, 0xff),
    ];
    for (what, place, byte) in changes {
        let mut bad = good.clone();
        bad[place] = byte;
        assert_ne!(bad, good, "{what}");
        assert_eq!(claim_from_bytes(&bad), None, "{what}");
    }
}
