//! Showing a page to the person at this machine.

use std::io;
use std::process::{Command, Stdio};

#[cfg(target_vendor = "apple")]
const OPENER: &str = "open";
#[cfg(not(target_vendor = "apple"))]
const OPENER: &str = "xdg-open";

/// Has the user's browser open an address; returns as soon as it was asked.
pub fn open(address: &str) -> io::Result<()> {
    let mut opener = Command::new(OPENER);
    opener.arg(address).stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
    opener.spawn().map(drop)
}
