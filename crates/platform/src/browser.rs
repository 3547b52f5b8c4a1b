//! Opens a web page in the user's browser.

use std::io;
use std::process::{Command, Stdio};

#[cfg(target_vendor = "apple")]
const OPENER: &str = "open";
#[cfg(not(target_vendor = "apple"))]
const OPENER: &str = "xdg-open";

/// Starts the system's opener with a URL. Does not wait for the browser.
pub fn open(address: &str) -> io::Result<()> {
    let mut opener = Command::new(OPENER);
    opener.arg(address).stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
    opener.spawn().map(drop)
}
