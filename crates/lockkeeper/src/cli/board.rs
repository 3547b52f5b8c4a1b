//! `board`: the agents of a repository, what each works on, and what each was denied.

use std::time::Duration;

use lockkeeper_agents::Board;
use lockkeeper_core::time::format_span;
use lockkeeper_engine::report::{Exit, Report};
use lockkeeper_engine::views::AgentView;
use lockkeeper_platform::wall_clock;

use super::context::{Context, Globals};
use super::table::{list, plain};
use super::{Verb, print};

/// How many files of an agent are shown.
const MAX_FILES: usize = 5;

/// Show the agents here: what each works on, waits for and was denied
#[derive(clap::Args)]
#[command(after_help = "Example:\n  lockkeeper board")]
pub(super) struct Args {}

impl Verb for Args {
    const NAME: &'static str = "board";

    fn run(self, globals: &Globals) -> Result<Exit, Report> {
        let context = Context::new(globals)?;
        let board = Board::read(&context.location.state)?.view();
        if context.json {
            print::json(&board);
            return Ok(Exit::Done);
        }
        let agents = &board.agents;
        if agents.is_empty() {
            print::talk("no agents");
        } else {
            // Notes and file names come from others, so they are not trusted.
            let safe = |row: Vec<String>| row.iter().map(|cell| plain(cell)).collect();
            let rows: Vec<Vec<String>> = agents.iter().map(to_row).map(safe).collect();
            print::out(&list(&["OWNER", "STATE", "WORKS ON", "NOTE", "DENIED"], &rows));
        }
        if let Some(last) = board.incidents.last() {
            print::talk(&format!(
                "files that others had claimed were changed; the last time: {}",
                plain(last)
            ));
        }
        if let Some(last) = board.failed_open.last() {
            print::talk(&format!(
                "some hook calls failed and let the edit pass; the last one: {}",
                plain(last)
            ));
        }
        Ok(Exit::Done)
    }
}

fn to_row(agent: &AgentView) -> Vec<String> {
    let or_dash = |text: String| if text.is_empty() { "-".to_owned() } else { text };
    let seen = match u64::try_from(wall_clock::epoch_seconds().saturating_sub(agent.last_seen)).unwrap_or(0) {
        0 => "0s".to_owned(),
        ago => format_span(Duration::from_secs(ago)),
    };
    let denied = agent.denied.iter().map(|(path, count)| format!("{path} ×{count}"));
    vec![
        agent.owner.clone(),
        format!("{}, {seen} ago", agent.state),
        or_dash(shortened(&agent.claims)),
        or_dash(agent.note.clone().unwrap_or_default()),
        or_dash(shortened(&denied.collect::<Vec<_>>())),
    ]
}

/// The first few of many. `--json` has all of them.
fn shortened(files: &[String]) -> String {
    let first = files.iter().take(MAX_FILES).cloned().collect::<Vec<_>>().join(", ");
    match files.len().saturating_sub(MAX_FILES) {
        0 => first,
        more => format!("{first} and {more} more"),
    }
}
