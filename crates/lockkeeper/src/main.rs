//! The `lockkeeper` command.

mod cli;

use std::process::ExitCode;

fn main() -> ExitCode {
    ExitCode::from(cli::run().code())
}
