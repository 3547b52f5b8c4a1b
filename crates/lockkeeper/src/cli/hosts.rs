//! `hosts`: the machines that have workers.

use std::time::Duration;

use lockkeeper_core::time::format_span;
use lockkeeper_engine::report::{Exit, Report};
use lockkeeper_engine::runs::Host;
use lockkeeper_engine::views::HostView;
use serde_json::json;

use super::context::{Context, Globals};
use super::table::{plain, table};
use super::{Verb, print};

/// Show the machines that have workers: when each was last heard of, and how many runs it executes
#[derive(clap::Args)]
#[command(after_help = "Example:\n  lockkeeper hosts\n\nSeveral machines share a queue in PostgreSQL: \
                        see docs/guide/teams.md.")]
pub(super) struct Args {}

impl Verb for Args {
    const NAME: &'static str = "hosts";

    fn run(self, globals: &Globals) -> Result<Exit, Report> {
        let context = Context::new(globals)?;
        let hosts = context.existing_runs()?.map(|runs| runs.hosts()).transpose()?.unwrap_or_default();
        if context.json {
            print::json(&json!({ "hosts": hosts.iter().map(HostView::new).collect::<Vec<_>>() }));
        } else if hosts.is_empty() {
            print::talk("no workers: start one with `lockkeeper work`");
        } else {
            let rows: Vec<Vec<String>> = hosts.iter().map(as_row).collect();
            print::out(&table(&["HOST", "WORKERS", "JOBS", "RUNS", "LAST HEARD OF"], &rows));
        }
        Ok(Exit::Done)
    }
}

fn as_row(host: &Host) -> Vec<String> {
    let silent = host.silent_for.map(|silent| Duration::from_secs(silent.as_secs()));
    vec![
        plain(&host.name),
        host.workers.to_string(),
        host.jobs.to_string(),
        host.running.to_string(),
        silent.map_or_else(|| "-".to_owned(), |silent| format!("{} ago", format_span(silent))),
    ]
}
