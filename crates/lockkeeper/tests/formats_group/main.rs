//! Group locks as other programs meet them: `flock(1)`, shells, `sed -i`, and the registry between them.
#![expect(clippy::unwrap_used, reason = "a test may fail by panicking, in its helpers too")]

mod care;
mod groups;
mod hostile;
mod locks;
mod monitor;
mod registry;
mod shell_signals;
mod shells;
