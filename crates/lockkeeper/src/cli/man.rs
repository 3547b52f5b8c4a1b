//! `man`: writes manual pages, generated from the command definitions.

mod markdown;

use std::fs;
use std::path::PathBuf;

use lockkeeper_engine::report::{Exit, Report};

use super::Verb;
use super::context::Globals;

/// Write the manual pages
#[derive(clap::Args)]
#[command(after_help = "Example:\n  lockkeeper man --out ~/.local/share/man/man1\n\n\
    Without --out the page of lockkeeper itself goes to stdout: lockkeeper man | man -l -")]
pub(super) struct Args {
    /// Write one page for each command into this folder
    #[arg(long, value_name = "DIR")]
    out: Option<PathBuf>,
    /// Print all commands as one page of Markdown, for the documentation
    #[arg(long, hide = true, conflicts_with = "out")]
    markdown: bool,
}

impl Verb for Args {
    const NAME: &'static str = "man";

    fn run(self, _: &Globals) -> Result<Exit, Report> {
        run(&self)
    }
}

fn run(args: &Args) -> Result<Exit, Report> {
    let command = super::command_line();
    if args.markdown {
        super::print::document(&markdown::page(command));
        return Ok(Exit::Done);
    }
    match &args.out {
        None => {
            let mut page = Vec::new();
            let rendered = clap_mangen::Man::new(command).render(&mut page);
            rendered.map_err(|error| Report::of(Exit::Failed, "INTERNAL", &error))?;
            super::print::out(&String::from_utf8_lossy(&page));
        }
        Some(folder) => {
            let written = fs::create_dir_all(folder).and_then(|()| clap_mangen::generate_to(command, folder));
            written.map_err(|error| {
                Report::new(
                    Exit::Failed,
                    "UNWRITABLE",
                    format!("cannot write to {}: {error}", folder.display()),
                )
                .with_hint("choose another folder with --out")
            })?;
        }
    }
    Ok(Exit::Done)
}
