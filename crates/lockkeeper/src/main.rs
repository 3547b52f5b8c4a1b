//! The `lockkeeper` command.

mod cli;

use std::process::ExitCode;

fn main() -> ExitCode {
    let guardian = lockkeeper_platform::exec::run_guardian_if_asked();
    ExitCode::from(guardian.unwrap_or_else(|| cli::run().code()))
}
