//! `stages report`: summarizes the latest executions from their logs.

use std::path::PathBuf;

use lockkeeper_core::alert::{Counts, DOWNGRADE_SPAN, Limits, raise};
use lockkeeper_engine::conflicts::ConflictLog;
use lockkeeper_engine::report::{Exit, Report};
use lockkeeper_engine::stages::ExecutionLog;
use lockkeeper_engine::stages::report::{Report as Executions, Session};
use lockkeeper_engine::views::{AlertView, SessionView};
use lockkeeper_platform::wall_clock::WallTime;
use lockkeeper_stages::{picture, span_in_words};
use serde_json::json;

use crate::cli::context::Context;
use crate::cli::{print, table};

#[derive(clap::Args)]
pub(super) struct Args {
    /// The STAGES.yml whose logs are read
    #[arg(value_name = "FILE", default_value = "STAGES.yml")]
    file: PathBuf,
    /// How many executions to show, the latest last
    #[arg(long, short = 'n', value_name = "N", default_value_t = 10)]
    last: usize,
    /// Draw the latest execution over time, as an SVG picture
    #[arg(long, conflicts_with = "json")]
    svg: bool,
}

pub(super) fn run(context: &Context, args: &Args) -> Result<Exit, Report> {
    let path = ExecutionLog::path_beside(&args.file);
    let Some(report) = Executions::read(&path)? else {
        return Err(Report::usage(format!("nothing was run yet: there is no {}", path.display()))
            .with_hint("`lockkeeper stages run FILE` runs it"));
    };
    let skip = report.sessions.len().saturating_sub(args.last.max(1));
    let shown = &report.sessions[skip..];
    if args.svg {
        let latest = shown.last().filter(|session| !session.groups.is_empty());
        let latest = latest.ok_or_else(|| Report::usage("there is no execution to draw"))?;
        print::out(&draw(latest));
        return Ok(Exit::Done);
    }
    let downgrades = report.downgrades_since(WallTime::now().before(DOWNGRADE_SPAN));
    let counts = Counts { downgrades, ..Counts::default() };
    let alerts = raise(&counts, &Limits::default());
    let conflicts = ConflictLog::beside(&args.file).summary()?;
    let conflicts =
        conflicts.map_or(0, |summary| summary.pairs().iter().map(|(_, _, pair)| pair.lines).sum::<usize>());
    if context.json {
        print::json(&json!({
            "executions": shown.iter().map(SessionView::new).collect::<Vec<_>>(),
            "conflicts": conflicts,
            "downgrades_last_hour": counts.downgrades,
            "alerts": alerts.iter().map(AlertView::new).collect::<Vec<_>>(),
            "skipped_lines": report.skipped,
        }));
        return Ok(Exit::Done);
    }
    for session in shown {
        print::out(&text(session));
    }
    let count = |number: usize, what: &str| format!("{number} {what}{}", if number == 1 { "" } else { "s" });
    print::data(&format!(
        "{} in the log, {} within an hour",
        count(conflicts, "conflict"),
        count(counts.downgrades, "downgrade")
    ));
    if shown.iter().any(|session| session.wall.is_some() && session.one_by_one.is_none()) {
        print::talk(
            "some groups were never measured alone, so no speed-up is claimed: `stages run --jobs 1` measures them",
        );
    }
    for alert in &alerts {
        print::talk(&format!("alert: {alert}"));
    }
    if report.skipped > 0 {
        print::talk(&format!("{} lines of the log could not be parsed", report.skipped));
    }
    Ok(Exit::Done)
}

fn text(session: &Session) -> String {
    let mut text = format!("{}  {}", table::plain(&session.phase), table::plain(&session.id));
    if let (Some(wall), Some(serial), Some(waited)) = (session.wall, session.serial, session.waited) {
        text.push_str(&format!("  {}", span_in_words(wall)));
        match (session.speed_up(), session.one_by_one) {
            (Some(times), Some(one_by_one)) => text.push_str(&format!(
                " instead of the {} measured one by one: {times:.1} times as fast",
                span_in_words(one_by_one)
            )),
            _ => text.push_str(&format!(", its groups {} together", span_in_words(serial))),
        }
        text.push_str(&format!("; waited {}", span_in_words(waited)));
    }
    text.push('\n');
    let rows: Vec<Vec<String>> = session
        .groups
        .iter()
        .map(|bar| {
            let took =
                bar.ended_at.map_or_else(|| "-".to_owned(), |end| span_in_words(end.since(bar.began_at)));
            vec![
                table::plain(&bar.group),
                table::plain(&bar.status),
                bar.began_at.to_string(),
                took,
                table::plain(bar.reason.as_deref().unwrap_or("")),
            ]
        })
        .collect();
    text.push_str(&table::table(&["GROUP", "STATUS", "BEGAN", "TOOK", "WHY"], &rows));
    for (at, rule, what) in &session.downgrades {
        text.push_str(&format!("{at}  rule {}: {}\n", table::plain(rule), table::plain(what)));
    }
    text
}

fn draw(session: &Session) -> String {
    let bars = session.bars(None, |status| status);
    picture::gantt(&format!("{} {}", session.phase, session.id), &bars)
}
