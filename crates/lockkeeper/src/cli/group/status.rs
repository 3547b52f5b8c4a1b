//! `group status`: lists holders and waiters, from the registry and from the kernel.

use lockkeeper_core::time::format_span;
use lockkeeper_engine::report::{Exit, Report};
use lockkeeper_formats::group::{Finding, Folders, Group, Liveness, MonitorLock, Survey};
use lockkeeper_platform::lock_holders::LockProcess;
use lockkeeper_platform::wall_clock::epoch_seconds;
use serde_json::{Value, json};

use crate::cli::context::Context;
use crate::cli::{print, table};

pub(super) fn run(context: &Context, folders: &Folders) -> Result<Exit, Report> {
    let survey = Survey::take(folders, epoch_seconds())?;
    let monitor = MonitorLock::holder(folders)?;
    if context.json {
        let odd = survey
            .malformed
            .iter()
            .map(|(file, line, text)| json!({ "file": file, "line": line, "text": text }));
        print::json(&json!({
            "folder": folders.first(),
            "groups": survey.groups.iter().map(as_json).collect::<Vec<_>>(),
            "odd_lines": odd.collect::<Vec<_>>(),
            "monitor": monitor.as_ref().map(locker),
        }));
        return Ok(Exit::Done);
    }
    print::out(&as_text(context, folders, &survey));
    warn_of_malformed(context, &survey);
    match monitor {
        Some(monitor) => {
            let pid = monitor.process.pid.to_string();
            print::talk(&context.say("group.monitor_runs", &[("pid", &pid)]));
        }
        None => print::talk(&context.say("group.no_monitor", &[])),
    }
    Ok(Exit::Done)
}

/// Warns about lines of the registry that cannot be parsed. They are never removed.
pub(super) fn warn_of_malformed(context: &Context, survey: &Survey) {
    for (file, line, text) in &survey.malformed {
        let (file, line) = (file.display().to_string(), line.to_string());
        print::talk(&context.say("group.bad_line", &[("file", &file), ("line", &line), ("text", text)]));
    }
}

/// A process as JSON.
pub(super) fn locker(locker: &LockProcess) -> Value {
    json!({ "pid": locker.process.pid, "command": locker.command })
}

/// An ACTIVE line of the registry as JSON.
pub(super) fn finding(finding: &Finding) -> Value {
    let Finding { entry, liveness, age } = finding;
    json!({
        "lock_id": entry.lock_id,
        "pid": entry.pid,
        "group": entry.group,
        "since": entry.since,
        "age_seconds": age.as_secs(),
        "life": word(*liveness),
    })
}

fn word(liveness: Liveness) -> &'static str {
    match liveness {
        Liveness::Alive => "alive",
        Liveness::Dead => "dead",
        Liveness::Unknown => "unknown",
    }
}

fn as_json(group: &Group) -> Value {
    json!({
        "group": group.id,
        "path": group.path,
        "locked": !group.lock.holders.is_empty(),
        "holders": group.lock.holders.iter().map(locker).collect::<Vec<_>>(),
        "waiters": group.lock.waiters.iter().map(locker).collect::<Vec<_>>(),
        "all_seen": group.lock.complete,
        "active": group.findings.iter().map(finding).collect::<Vec<_>>(),
    })
}

fn as_text(context: &Context, folders: &Folders, survey: &Survey) -> String {
    if survey.groups.is_empty() {
        let folder = folders.first().display().to_string();
        return context.say("group.none", &[("folder", &folder)]) + "\n";
    }
    let rows: Vec<Vec<String>> = survey.groups.iter().map(row).collect();
    table::table(&["GROUP", "STATE", "HELD BY", "FOR", "WAITING", "REGISTRY"], &rows)
}

fn row(group: &Group) -> Vec<String> {
    let (sight, newest) = (&group.lock, group.findings.last());
    let state = match (sight.holders.is_empty(), sight.complete) {
        (false, _) => "locked",
        (true, true) => "free",
        (true, false) => "free, as far as known",
    };
    let holder = sight.holders.first();
    let held_by = holder.map(|holder| format!("{} {}", holder.process.pid, table::plain(&holder.command)));
    let lines = group.findings.iter().map(|finding| {
        let note = match finding.liveness {
            Liveness::Alive if sight.holders.is_empty() => " (closed without release)",
            Liveness::Alive => "",
            Liveness::Dead => " (dead: `group cleanup` marks it)",
            Liveness::Unknown => " (cannot be seen)",
        };
        format!("ACTIVE {}{note}", finding.entry.pid)
    });
    vec![
        table::plain(&group.id),
        state.to_owned(),
        held_by.unwrap_or_else(|| "-".to_owned()),
        newest.map_or_else(|| "-".to_owned(), |finding| format_span(finding.age)),
        sight.waiters.len().to_string(),
        lines.collect::<Vec<_>>().join(", "),
    ]
}
