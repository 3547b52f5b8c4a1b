//! `status summary`: the latest state of every task and worker, and which tasks need help.

use lockkeeper_engine::report::{Exit, Report};
use lockkeeper_formats::status::{State, StatusLog, Summary};
use lockkeeper_platform::wall_clock::WallTime;
use serde_json::{Value, json};

use super::follow::style;
use crate::cli::context::Context;
use crate::cli::{print, table};

pub(super) fn run(context: &Context, log: &StatusLog) -> Result<Exit, Report> {
    let now = WallTime::now();
    let summary = log.summary(now)?;
    if context.json {
        print::json(&as_json(&summary, now));
    } else {
        print::out(&as_text(context, &summary, now));
    }
    Ok(Exit::Done)
}

fn as_json(summary: &Summary, now: WallTime) -> Value {
    let age = |at: WallTime| now.since(at).as_secs_f64();
    let tasks = summary.tasks.iter().map(|task| {
        json!({
            "task_id": task.task,
            "state": task.state.as_str(),
            "timestamp": task.at.to_string(),
            "age_seconds": age(task.at),
            "worker_id": task.worker,
            "message": task.message,
            "lines": task.lines,
        })
    });
    let workers = summary.workers.iter().map(|worker| {
        json!({
            "worker_id": worker.worker,
            "state": worker.state.as_str(),
            "task_id": worker.task,
            "timestamp": worker.at.to_string(),
            "age_seconds": age(worker.at),
            "lines": worker.lines,
        })
    });
    json!({
        "needs_help": summary.needs_help().map(|task| task.task.as_str()).collect::<Vec<_>>(),
        "tasks": tasks.collect::<Vec<_>>(),
        "workers": workers.collect::<Vec<_>>(),
        "lines": summary.lines,
        "bad_lines": summary.bad_lines,
    })
}

fn as_text(context: &Context, summary: &Summary, now: WallTime) -> String {
    let mut text = String::new();
    if summary.tasks.is_empty() {
        text.push_str(&context.say("status.empty", &[]));
        text.push('\n');
    } else {
        let help: Vec<String> = summary.needs_help().map(|task| table::plain(&task.task)).collect();
        if !help.is_empty() {
            text.push_str(&context.say("status.needs_help", &[("tasks", &help.join(", "))]));
            text.push_str("\n\n");
        }
        let tasks = summary.tasks.iter().map(|task| {
            let worker = task.worker.as_deref().map_or_else(|| "-".to_owned(), table::plain);
            let message = task.message.as_deref().map(table::plain).unwrap_or_default();
            vec![table::plain(&task.task), colored(task.state), ago(now, task.at), worker, message]
        });
        let heading = ["TASK", "STATE", "AGE", "WORKER", "MESSAGE"];
        text.push_str(&table::table(&heading, &tasks.collect::<Vec<_>>()));
    }
    if !summary.workers.is_empty() {
        let workers = summary.workers.iter().map(|worker| {
            let (id, task) = (table::plain(&worker.worker), table::plain(&worker.task));
            vec![id, colored(worker.state), ago(now, worker.at), task]
        });
        text.push('\n');
        text.push_str(&table::table(&["WORKER", "STATE", "AGE", "TASK"], &workers.collect::<Vec<_>>()));
    }
    if summary.bad_lines > 0 {
        let count = summary.bad_lines.to_string();
        text.push_str(&format!("\n{}\n", context.say("status.bad_lines", &[("count", &count)])));
    }
    text
}

fn ago(now: WallTime, at: WallTime) -> String {
    print::span(now.since(at))
}

fn colored(state: State) -> String {
    let style = style(state);
    format!("{style}{state}{style:#}")
}
