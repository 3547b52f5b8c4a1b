//! `shell-init`: prints shell functions for group locks.

use lockkeeper_engine::report::{Exit, Report};

use super::context::Globals;
use super::{Verb, print};

/// The functions. `@PROGRAM@` is replaced by the path of this program.
const SCRIPT: &str = include_str!("shell_init.sh");

/// Print shell functions for group locks: acquire_lock, release_lock and others
#[derive(clap::Args)]
#[command(after_help = "Example: eval \"$(lockkeeper shell-init)\"")]
pub(super) struct Args {}

impl Verb for Args {
    const NAME: &'static str = "shell-init";

    fn run(self, _: &Globals) -> Result<Exit, Report> {
        run()
    }
}

fn run() -> Result<Exit, Report> {
    let program = std::env::current_exe().ok().and_then(|path| path.into_os_string().into_string().ok());
    let program = program.unwrap_or_else(|| "lockkeeper".to_owned());
    print::out(&SCRIPT.replace("@PROGRAM@", &quoted(&program)));
    Ok(Exit::Done)
}

/// Quotes a text for every shell.
fn quoted(text: &str) -> String {
    format!("'{}'", text.replace('\'', "'\\''"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn any_path_is_one_word() {
        assert_eq!(quoted("/a b/it's"), r"'/a b/it'\''s'");
        assert!(SCRIPT.contains("=@PROGRAM@\n"));
    }
}
