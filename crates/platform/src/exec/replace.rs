//! Process replacement: this process becomes a command, and keeps its pid.

use std::ffi::OsString;
use std::os::unix::process::CommandExt;
use std::process::Command;

use super::spec::StartError;

/// Replaces this process by a command (`execvp(3)`). Returns only if that fails.
pub fn replace_process(program: OsString, args: impl IntoIterator<Item = OsString>) -> StartError {
    let error = Command::new(&program).args(args).exec();
    StartError::new(program, error)
}
