//! `locks --format`: lists the lock files of a foreign format, each with its verdict.

use std::path::{Path, PathBuf};

use clap::ValueEnum;
use lockkeeper_engine::report::{Exit, Report};
use lockkeeper_formats::aiflow::{Aiflow, Subject};
use lockkeeper_formats::swarm::TaskRecord;
use lockkeeper_platform::wall_clock::WallTime;
use serde_json::{Map, Value};

use super::context::Context;
use super::{print, table, task};

/// The lock files to show.
#[derive(clap::Args)]
pub(super) struct FormatArgs {
    /// Show the lock files of a foreign format instead
    #[arg(long, value_enum, value_name = "FORMAT", conflicts_with = "watch")]
    pub(super) format: Option<Format>,
    /// The project whose lock files to show [default: this one]
    #[arg(long, value_name = "DIR", requires = "format")]
    project_root: Option<PathBuf>,
}

/// The formats that can be listed.
#[derive(Clone, Copy, ValueEnum)]
pub(super) enum Format {
    /// Requests and queue below .aiflow/locks
    Aiflow,
    /// Tasks below $AI_SWARM_DIR/locks
    Swarm,
}

/// One lock file.
struct Row {
    subject: String,
    path: PathBuf,
    holder: String,
    ends_at: Option<WallTime>,
    state: &'static str,
    reason: String,
    record: Option<Map<String, Value>>,
}

pub(super) fn run(context: &Context, format: Format, args: &FormatArgs) -> Result<Exit, Report> {
    let now = WallTime::now();
    let rows = match format {
        Format::Aiflow => {
            let root = args
                .project_root
                .as_ref()
                .map_or_else(|| context.location.root.clone(), |root| context.cwd.join(root));
            aiflow(&root, now)?
        }
        Format::Swarm => swarm(now)?,
    };
    if context.json {
        let locks: Vec<Value> = rows.iter().map(as_json).collect();
        print::json(&serde_json::json!({ "locks": locks }));
    } else if rows.is_empty() {
        print::talk("there are no lock files of that format");
    } else {
        print::out(&as_text(&rows, now));
    }
    Ok(Exit::Done)
}

fn aiflow(root: &Path, now: WallTime) -> Result<Vec<Row>, Report> {
    let project = Aiflow::new(root);
    let mut rows = Vec::new();
    for (subject, found) in project.list(now)? {
        let mut path = project.path(&subject)?;
        let name = match &subject {
            Subject::Queue => "queue".to_owned(),
            Subject::Request(id) => format!("request {id}"),
        };
        rows.push(match found {
            Ok(standing) => {
                let record = standing.record.as_ref();
                let process = record.and_then(|record| record.pid).map(|pid| format!("pid {pid}"));
                let run = standing.run_id().map(str::to_owned);
                // Only the file of the holder ends the lock, and is removed by hand.
                let plain = standing.plain_run.as_ref().and_then(|_| project.plain_path(&subject));
                path = plain.unwrap_or(path);
                Row {
                    subject: name,
                    path,
                    holder: run.into_iter().chain(process).collect::<Vec<_>>().join(", "),
                    ends_at: record.map(|record| record.expires_at),
                    state: standing.verdict.word(),
                    reason: standing.verdict.to_string(),
                    record: standing.record.map(|record| record.to_object()),
                }
            }
            Err(error) => unknown(name, path, &Report::from(error)),
        });
    }
    Ok(rows)
}

fn swarm(now: WallTime) -> Result<Vec<Row>, Report> {
    let swarm = task::swarm()?;
    let tasks = swarm.tasks().map_err(|error| {
        Report::of(Exit::Failed, "LOCK_FILE_FAILED", &error)
            .with_hint("check the permissions of AI_SWARM_DIR")
    })?;
    let mut rows = Vec::new();
    for name in tasks {
        let path = swarm.path(&name)?;
        match swarm.show(&name, now) {
            Ok(None) => {}
            Ok(Some(standing)) => rows.push(Row {
                subject: name,
                path,
                holder: standing.record.as_ref().map(|record| record.worker_id.clone()).unwrap_or_default(),
                ends_at: standing.record.as_ref().and_then(TaskRecord::expires_at),
                state: standing.verdict.word(),
                reason: standing.verdict.to_string(),
                record: standing.record.map(|record| record.to_object()),
            }),
            Err(error) => rows.push(unknown(name, path, &Report::from(error))),
        }
    }
    Ok(rows)
}

/// A lock file that cannot be judged counts as held.
fn unknown(subject: String, path: PathBuf, report: &Report) -> Row {
    let reason = report.to_string().replace("\n  caused by", "");
    Row { subject, path, holder: String::new(), ends_at: None, state: "unknown", reason, record: None }
}

fn as_json(row: &Row) -> Value {
    serde_json::json!({
        "subject": row.subject,
        "path": row.path.to_string_lossy(),
        "holder": row.holder,
        "state": row.state,
        "reason": row.reason,
        "expires_at": row.ends_at.map(|end| end.to_string()),
        "record": row.record,
    })
}

fn as_text(rows: &[Row], now: WallTime) -> String {
    let cells = rows.iter().map(|row| {
        let ends = match row.ends_at {
            Some(end) if end >= now => print::span(end.since(now)),
            Some(end) => format!("{} ago", print::span(now.since(end))),
            None => "-".to_owned(),
        };
        let holder = if row.holder.is_empty() { "-" } else { &row.holder };
        vec![
            table::plain(&row.subject),
            table::plain(holder),
            ends,
            row.state.to_owned(),
            table::plain(&row.reason),
        ]
    });
    table::table(&["LOCK", "HOLDER", "ENDS IN", "STATE", "REASON"], &cells.collect::<Vec<_>>())
}
