//! Errands as bytes: what one process asks another to decide for it.

use std::time::Duration;

use lockkeeper_core::id::{BellId, LeaseId, Token};
use lockkeeper_core::lease::{Request, WaitTerms};
use lockkeeper_core::record::{Lease, Priority};
use lockkeeper_core::resource::{Mode, Resource, Target};
use lockkeeper_core::time::Ttl;

use super::{
    Reader, claim_from_bytes, claim_to_bytes, lease_ids_from_bytes, lease_ids_to_bytes, put_number, put_text,
};

/// What somebody wants done.
#[derive(Clone, Debug)]
pub enum Errand {
    /// To take a lease, or a place in line on which somebody sleeps.
    Acquire(Box<Request>),
    /// To end a lease.
    Release {
        /// Which one.
        id: LeaseId,
        /// Under which token.
        token: Token,
        /// What it holds, when that is one whole name.
        name: Option<Target>,
    },
}

/// A request as bytes; none when nobody would sleep on its ticket, or when it may be a lease that there is already.
pub fn request_to_bytes(request: &Request) -> Option<Vec<u8>> {
    let WaitTerms { bell: Some(bell), stays } = request.wait? else { return None };
    if request.join {
        return None;
    }
    let mut bytes = vec![b'a'];
    put_bytes(&mut bytes, &claim_to_bytes(&request.claim));
    // A byte is enough for a priority.
    put_number(&mut bytes, (i64::from(request.priority.get()) + 128).cast_unsigned());
    put_bytes(&mut bytes, &lease_ids_to_bytes(&request.under));
    put_number(&mut bytes, bell.0);
    put_number(&mut bytes, u64::try_from(stays.get().as_micros()).ok()?);
    Some(bytes)
}

/// The end of a lease as bytes.
pub fn release_to_bytes(lease: &Lease) -> Vec<u8> {
    let mut bytes = vec![b'r'];
    put_number(&mut bytes, lease.id.0);
    put_number(&mut bytes, lease.token.0);
    if let [Resource { target: Target::Name(name), mode: Mode::Exclusive }] = lease.claim.resources.as_slice()
    {
        put_text(&mut bytes, name.as_str());
    }
    bytes
}

/// Reads an errand; nothing else is taken for one.
pub fn errand_from_bytes(bytes: &[u8]) -> Option<Errand> {
    let (&kind, rest) = bytes.split_first()?;
    let mut reader = Reader(rest);
    let errand = match kind {
        b'a' => {
            let claim = claim_from_bytes(reader.bytes()?)?;
            let level = i32::try_from(reader.number()?).ok()?.checked_sub(128)?;
            let priority = Priority::new(level).ok()?;
            let under = lease_ids_from_bytes(reader.bytes()?)?;
            let bell = Some(BellId(reader.number()?));
            let stays = Ttl::new(Duration::from_micros(reader.number()?)).ok()?;
            let wait = Some(WaitTerms { bell, stays });
            Errand::Acquire(Box::new(Request { claim, priority, under, wait, join: false }))
        }
        b'r' => {
            let (id, token) = (LeaseId(reader.number()?), Token(reader.number()?));
            let name = match reader.0.is_empty() {
                true => None,
                false => Some(Target::Name(reader.text()?.parse().ok()?)),
            };
            Errand::Release { id, token, name }
        }
        _ => return None,
    };
    reader.0.is_empty().then_some(errand)
}

fn put_bytes(bytes: &mut Vec<u8>, more: &[u8]) {
    put_number(bytes, more.len() as u64);
    bytes.extend_from_slice(more);
}

impl<'b> Reader<'b> {
    fn bytes(&mut self) -> Option<&'b [u8]> {
        let length = usize::try_from(self.number()?).ok()?;
        let (bytes, rest) = self.0.split_at_checked(length)?;
        self.0 = rest;
        Some(bytes)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use lockkeeper_core::liveness::{Contract, Origin, ProcessRef, Proof, Voucher};
    use lockkeeper_core::record::Claim;

    fn lease(mode: Mode) -> Lease {
        let claim = Claim {
            resources: vec![Resource { target: Target::Name("db".parse().unwrap()), mode }],
            ..request(0).claim
        };
        let at = lockkeeper_core::time::Moment::from_micros(1);
        let (id, token) = (LeaseId(300), Token(u64::MAX));
        let claim = std::sync::Arc::new(claim);
        Lease { id, token, claim, acquired_at: at, heartbeat_at: at, pickup_by: None, revoked: false }
    }

    fn request(level: i32) -> Request {
        let process = ProcessRef { pid: 42, started: 7 };
        let origin = Origin { host: "host".to_owned(), boot: "b-1".to_owned(), pid_namespace: 1 };
        let claim = Claim {
            owner: "worker:1".parse().unwrap(),
            resources: vec![Resource { target: Target::Name("db".parse().unwrap()), mode: Mode::Shared }],
            proof: Proof {
                origin,
                voucher: Voucher::KernelLock { holder: lockkeeper_core::id::HolderId(9), process },
            },
            contract: Contract::Strict,
            ttl: None,
            reason: Some("why".to_owned()),
            ticket: None,
        };
        let wait = WaitTerms { bell: Some(BellId(5)), stays: Ttl::new(Duration::from_secs(60)).unwrap() };
        let under = vec![LeaseId(1), LeaseId(1 << 40)];
        Request { claim, priority: Priority::new(level).unwrap(), under, wait: Some(wait), join: false }
    }

    #[test]
    fn errands_come_back_as_they_went() {
        for level in [-100, 0, 100] {
            let asked = request(level);
            let read = errand_from_bytes(&request_to_bytes(&asked).unwrap());
            let Some(Errand::Acquire(read)) = read else { panic!("{read:?}") };
            assert_eq!(format!("{read:?}"), format!("{asked:?}"));
        }
        for (mode, whole) in [(Mode::Exclusive, Some("db")), (Mode::Shared, None)] {
            let lease = lease(mode);
            let read = errand_from_bytes(&release_to_bytes(&lease));
            let Some(Errand::Release { id, token, name }) = read else { panic!("{read:?}") };
            assert_eq!((id, token, name.as_ref().map(Target::as_str)), (lease.id, lease.token, whole));
        }
    }

    #[test]
    fn requests_that_others_cannot_make_stay_where_they_are() {
        let asked = request(0);
        assert!(request_to_bytes(&Request { join: true, ..asked.clone() }).is_none());
        assert!(request_to_bytes(&Request { wait: None, ..asked.clone() }).is_none());
        let unattended = asked.wait.map(|terms| WaitTerms { bell: None, ..terms });
        assert!(request_to_bytes(&Request { wait: unattended, ..asked }).is_none());
    }

    /// Invariant 12.
    #[test]
    fn an_errand_that_was_cut_or_has_a_tail_is_none() {
        for errand in [request_to_bytes(&request(1)).unwrap(), release_to_bytes(&lease(Mode::Shared))] {
            for length in 0..errand.len() {
                assert!(errand_from_bytes(&errand[..length]).is_none(), "{length} of {}", errand.len());
            }
            assert!(errand_from_bytes(&[&errand[..], &[0]].concat()).is_none());
            assert!(errand_from_bytes(&[b"x", &errand[1..]].concat()).is_none());
        }
    }
}
