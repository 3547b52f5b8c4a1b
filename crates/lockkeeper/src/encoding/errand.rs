//! Errands as bytes: what one process asks another to decide for it.

use std::time::Duration;

use lockkeeper_core::id::{BellId, LeaseId, Token};
use lockkeeper_core::lease::{Request, WaitTerms};
use lockkeeper_core::record::Priority;
use lockkeeper_core::time::Ttl;

use super::{Reader, claim_from_bytes, claim_to_bytes, lease_ids_from_bytes, lease_ids_to_bytes, put_number};

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
pub fn release_to_bytes(id: LeaseId, token: Token) -> Vec<u8> {
    let mut bytes = vec![b'r'];
    put_number(&mut bytes, id.0);
    put_number(&mut bytes, token.0);
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
        b'r' => Errand::Release { id: LeaseId(reader.number()?), token: Token(reader.number()?) },
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
