//! The `lockkeeper` command.

mod cli;
mod config;

use std::process::ExitCode;

fn main() -> ExitCode {
    ExitCode::from(cli::run().code())
}
