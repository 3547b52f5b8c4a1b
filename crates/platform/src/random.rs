//! Random numbers from the kernel.

use std::io;

use lockkeeper_core::id::HolderId;

/// Holder ids are offsets into a file. Offsets are signed 64-bit numbers, so ids use only 62 bits.
const HOLDER_ID_BITS: u32 = 62;

/// Draws the id of a new holder.
pub fn holder_id() -> io::Result<HolderId> {
    Ok(HolderId(number()? >> (u64::BITS - HOLDER_ID_BITS)))
}

/// Draws 64 random bits from the kernel.
#[cfg(target_os = "linux")]
pub fn number() -> io::Result<u64> {
    use rustix::rand::{GetRandomFlags, getrandom};

    let mut bytes = [0; 8];
    // The kernel never returns a part of eight bytes. A signal can only interrupt the wait for entropy after a boot.
    let filled = rustix::io::retry_on_intr(|| getrandom(&mut bytes[..], GetRandomFlags::empty()))?;
    debug_assert_eq!(filled, bytes.len());
    Ok(u64::from_ne_bytes(bytes))
}

/// Draws 64 random bits from the kernel.
#[cfg(not(target_os = "linux"))]
pub fn number() -> io::Result<u64> {
    use std::io::Read;

    let mut bytes = [0; 8];
    std::fs::File::open("/dev/urandom")?.read_exact(&mut bytes)?;
    Ok(u64::from_ne_bytes(bytes))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn holder_ids_fit_into_a_file_and_differ() {
        let ids: std::collections::HashSet<u64> = (0..1_000).map(|_| holder_id().unwrap().0).collect();
        assert_eq!(ids.len(), 1_000);
        assert!(ids.iter().all(|id| *id < 1 << HOLDER_ID_BITS));
    }
}
