//! `note`: what an agent says that it does. Others read it on the board and in their deny messages.

use std::io;

use lockkeeper_engine::report::{Exit, Report};
use serde_json::json;

use super::agent_owner;
use super::context::{Context, Globals};
use super::{Verb, print};

/// The longest note, in characters.
const MAX_NOTE: usize = 200;

/// Tell others what you work on, as an agent
#[derive(clap::Args)]
#[command(after_help = "Example:\n  lockkeeper note 'split the parser'\n\nAn empty text removes the note.")]
pub(super) struct Args {
    /// The note, at most 200 characters
    #[arg(value_name = "TEXT")]
    text: String,
    /// The agent [default: the agent whose process runs this command]
    #[arg(long, value_name = "OWNER")]
    owner: Option<String>,
}

impl Verb for Args {
    const NAME: &'static str = "note";

    fn run(self, globals: &Globals) -> Result<Exit, Report> {
        let context = Context::new(globals)?;
        let length = self.text.chars().count();
        if length > MAX_NOTE {
            return Err(Report::usage(format!("the note has {length} characters, more than {MAX_NOTE}"))
                .with_hint("write it shorter"));
        }
        let sessions = agent_owner::sessions(&context)?;
        let owner = agent_owner::find(&context, &sessions, self.owner.as_deref())?.owner;
        let note = Some(self.text.trim().to_owned()).filter(|text| !text.is_empty());
        let noted = sessions.update(&owner, |session| session.note = note);
        let session = noted.map_err(|error| not_written(&error))?;
        if context.json {
            print::json(&json!({ "owner": owner.as_str(), "note": session.note }));
        } else {
            print::talk(&format!("noted for {owner}"));
        }
        Ok(Exit::Done)
    }
}

fn not_written(error: &io::Error) -> Report {
    let report = Report::machine(error);
    match error.kind() {
        io::ErrorKind::ReadOnlyFilesystem | io::ErrorKind::PermissionDenied => report.with_hint(
            "nothing was changed; this process may not write to the state folder: let the sandbox write there, or use the MCP tool \
             `note`, which runs outside of it",
        ),
        _ => report,
    }
}
