//! `conflicts report`: summary of the conflict log.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use lockkeeper_engine::conflicts::{ConflictLog, Summary};
use lockkeeper_engine::report::{Exit, Report};
use serde_json::{Value, json};

use super::unreadable;
use crate::cli::context::Context;
use crate::cli::{print, table};

/// Default paths of the STAGES file, relative to the root of the repository.
const STAGES: [&str; 4] = [".workflow/STAGES.yml", "STAGES.yml", ".workflow/STAGES.yaml", "STAGES.yaml"];

#[derive(clap::Args)]
#[command(
    after_help = "The log is logs/conflicts.log beside the file of stages, JSON Lines. Lines that are none of it \
    are counted and passed over.\nExample: lockkeeper conflicts report --log .workflow/logs/conflicts.log"
)]
pub(super) struct Args {
    /// The STAGES file beside the log [default: .workflow/STAGES.yml, else STAGES.yml]
    #[arg(value_name = "STAGES", conflicts_with = "log")]
    stages: Option<PathBuf>,
    /// The log file
    #[arg(long, value_name = "FILE")]
    log: Option<PathBuf>,
}

pub(super) fn run(context: &Context, args: &Args) -> Result<Exit, Report> {
    let (log, named) = find(context, args);
    let summary = match log.summary()? {
        Some(summary) => summary,
        None if named => {
            let missing = std::io::Error::from(std::io::ErrorKind::NotFound);
            return Err(unreadable(&log.path().display().to_string(), &missing));
        }
        None => Summary::default(),
    };
    if context.json {
        print::json(&as_json(log.path(), &summary));
    } else {
        print::out(&as_text(&summary));
        if summary.lines == 0 {
            print::talk(&format!("no conflict is logged in {}", log.path().display()));
        }
        if summary.bad_lines > 0 {
            print::talk(&format!(
                "{} of the lines are no conflicts, and were passed over",
                summary.bad_lines
            ));
        }
    }
    Ok(Exit::Done)
}

/// The log, and whether the user named it.
fn find(context: &Context, args: &Args) -> (ConflictLog, bool) {
    if let Some(path) = &args.log {
        return (ConflictLog::at(context.cwd.join(path)), true);
    }
    if let Some(stages) = &args.stages {
        return (ConflictLog::beside(&context.cwd.join(stages)), false);
    }
    let root: &Path = &context.location.root;
    let there = |stages: &&PathBuf| stages.exists() || ConflictLog::beside(stages).path().exists();
    let usual = STAGES.map(|name| root.join(name));
    (ConflictLog::beside(usual.iter().find(there).unwrap_or(&usual[0])), false)
}

fn as_json(log: &Path, summary: &Summary) -> Value {
    let pairs = summary.pairs().into_iter().map(|(group1, group2, found)| {
        json!({
            "group1": group1,
            "group2": group2,
            "lines": found.lines,
            "types": found.types,
            "last": found.last,
        })
    });
    let rules = summary.rules.iter().map(|(rule, lines)| json!({ "rule": rule, "lines": lines }));
    let (first, last) = summary.span.clone().unzip();
    json!({
        "log": log.display().to_string(),
        "lines": summary.lines,
        "bad_lines": summary.bad_lines,
        "first_at": first,
        "last_at": last,
        "types": summary.types,
        "rules": rules.collect::<Vec<_>>(),
        "phases": summary.phases,
        "pairs": pairs.collect::<Vec<_>>(),
    })
}

fn as_text(summary: &Summary) -> String {
    if summary.lines == 0 {
        return String::new();
    }
    let types = |types: &BTreeMap<String, usize>| {
        types
            .iter()
            .map(|(name, lines)| format!("{} {lines}", table::plain(name)))
            .collect::<Vec<_>>()
            .join(", ")
    };
    let pairs: Vec<Vec<String>> = summary
        .pairs()
        .into_iter()
        .map(|(group1, group2, found)| {
            let last = &found.last;
            vec![
                table::plain(group1),
                table::plain(group2),
                found.lines.to_string(),
                types(&found.types),
                table::plain(&last.timestamp),
                table::plain(&format!("{} {}", last.path1, last.path2)),
            ]
        })
        .collect();
    let rules: Vec<Vec<String>> = summary
        .rules
        .iter()
        .map(|(rule, lines)| {
            vec![rule.as_deref().map_or_else(|| "-".to_owned(), table::plain), lines.to_string()]
        })
        .collect();
    let kinds = types(&summary.types);
    let pairs = table::table(&["GROUP", "GROUP", "LINES", "TYPES", "LAST", "PATHS"], &pairs);
    let rules = table::table(&["RULE", "LINES"], &rules);
    format!("{pairs}\n{rules}\n{} lines: {kinds}\n", summary.lines)
}
