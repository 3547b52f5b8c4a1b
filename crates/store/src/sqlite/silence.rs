//! Silence of a folder that was served: after a reboot, holders on other machines may come back within one session.
//!
//! The database of leases is made anew with each boot, and so has forgotten those holders. The file `served` stays: until the time that
//! it gives, nothing is granted.

use std::fs;
use std::path::Path;
use std::time::Duration;

use lockkeeper_core::time::{Moment, Ttl};

/// What the file begins with.
const HEADING: &str = "lockkeeper served 1";

/// What the file says. Times are in microseconds of the clock that begins with a boot.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Served {
    /// The boot in which the folder was last served.
    pub(super) boot: String,
    /// Until when nothing is granted in that boot.
    pub(super) until: i64,
    /// The length of a session: nothing is granted for this long after another boot.
    pub(super) session: i64,
}

impl Served {
    /// Reads the file. None if the folder was never served.
    pub(super) fn read(folder: &Path) -> Option<Self> {
        let text = fs::read_to_string(folder.join("served")).ok()?;
        let fields = text.trim_end().strip_prefix(HEADING)?.strip_prefix(" boot=")?;
        let (boot, fields) = fields.split_once(" until=")?;
        let (until, session) = fields.split_once(" session=")?;
        Some(Self { boot: boot.to_owned(), until: until.parse().ok()?, session: session.parse().ok()? })
    }

    /// Replaces the file.
    #[cfg(feature = "http")]
    pub(super) fn write(&self, folder: &Path) -> std::io::Result<()> {
        let Self { boot, until, session } = self;
        let aside = folder.join(format!("served.{}", std::process::id()));
        fs::write(&aside, format!("{HEADING} boot={boot} until={until} session={session}\n"))?;
        fs::rename(&aside, folder.join("served"))
    }
}

/// Whether other machines use the folder of this file, or have used it.
pub(crate) fn is_served(file: &Path) -> bool {
    file.with_file_name("served").exists()
}

/// The span of the sessions of other machines that use this folder; none if it was never served.
pub(crate) fn session_of(folder: &Path) -> Option<Ttl> {
    let span = Duration::from_micros(u64::try_from(Served::read(folder)?.session).ok()?);
    Ttl::new(span).ok()
}

/// Until when nothing is granted in this folder; none if it was never served.
pub(super) fn silent_until(folder: &Path, boot: &str) -> Option<Moment> {
    let served = Served::read(folder)?;
    // The last answer to a holder was given before the boot, and the clock begins with the boot: one session later all have ended.
    Some(Moment::from_micros(if served.boot == boot { served.until } else { served.session }))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn after_a_boot_it_is_silent_for_one_session() {
        let folder = tempfile::tempdir().unwrap();
        assert_eq!(silent_until(folder.path(), "one"), None);
        fs::write(folder.path().join("served"), format!("{HEADING} boot=one until=7 session=30\n")).unwrap();
        assert_eq!(silent_until(folder.path(), "one"), Some(Moment::from_micros(7)));
        assert_eq!(silent_until(folder.path(), "two"), Some(Moment::from_micros(30)));
    }
}
