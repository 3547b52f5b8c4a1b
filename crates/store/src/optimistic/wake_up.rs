//! What a wake-up of a server says about a granted lease.

use lockkeeper_core::id::{LeaseId, Token};
use lockkeeper_core::time::Moment;

use crate::Granted;

/// The text that goes with a wake-up.
pub(crate) fn payload(granted: Option<Granted>) -> String {
    granted.map_or_else(String::new, |Granted { id, token, at }| {
        format!("{} {} {}", id.0, token.0, at.as_micros())
    })
}

/// Reads such a text.
pub(crate) fn granted_from(payload: &str) -> Option<Granted> {
    let mut parts = payload.split(' ');
    let mut part = || parts.next();
    let (id, token, at) = (part()?.parse().ok()?, part()?.parse().ok()?, part()?.parse().ok()?);
    Some(Granted { id: LeaseId(id), token: Token(token), at: Moment::from_micros(at) })
}
