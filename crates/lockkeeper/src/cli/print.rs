//! Output of the commands: data on stdout, messages for people on stderr, JSON as the views of the engine.

use std::io::{self, ErrorKind, IsTerminal, Write};
use std::sync::OnceLock;
use std::time::Duration;

use anstyle::{AnsiColor, Style};
use lockkeeper_core::alert::Alert;
use lockkeeper_core::lease::NotCurrent;
use lockkeeper_core::liveness::Verdict;
use lockkeeper_core::printable::{printable_json, printable_lines};
use lockkeeper_core::record::{Claim, Lease, Ticket};
use lockkeeper_core::time::{Moment, format_span};
use lockkeeper_core::waiting::Blocker;
use lockkeeper_engine::OwnerNames;
use lockkeeper_engine::messages::{Language, Messages, Phrases};
pub(super) use lockkeeper_engine::report::deadlock;
use lockkeeper_engine::report::{Exit, Report, plain, reason};
use lockkeeper_engine::views::{LeaseView, TicketView, obstacles};
use lockkeeper_platform::exec::{Ending, StartError};
use lockkeeper_platform::signal::Signal;
use serde::Serialize;
use serde_json::Value;

use super::args::Waiting;
use super::context::Context;

const ERROR: Style = AnsiColor::Red.on_default().bold();
const HINT: Style = AnsiColor::Cyan.on_default();

/// The first error of a write to stdout. It is kept for the end of the command, so that no command has to check each line.
static UNWRITTEN: OnceLock<io::Error> = OnceLock::new();

/// Notes how a write to stdout ended, and returns whether further output makes sense. A reader that closed the pipe, as `head` does,
/// is not an error.
pub(super) fn went_on(written: io::Result<()>) -> bool {
    written
        .map_err(|error| {
            if error.kind() != ErrorKind::BrokenPipe {
                let _ = UNWRITTEN.set(error);
            }
        })
        .is_ok()
}

/// Fails if something could not be written to stdout. `what_is_done` says what the command left behind.
pub(super) fn check_written(what_is_done: &str) -> Result<(), Report> {
    let Some(error) = UNWRITTEN.get() else { return Ok(()) };
    let message = format!("the output could not be written ({error}); {what_is_done}");
    Err(Report::new(Exit::Failed, "OUTPUT_NOT_WRITTEN", message)
        .with_hint("make room on the disk, or let the command write to another place"))
}

/// Prints one line of data.
pub(super) fn data(line: &str) {
    out(&format!("{line}\n"));
}

/// Prints a view as JSON on one line.
pub(super) fn json(view: &impl Serialize) {
    json_text(&to_json(view));
}

/// Prints JSON text on one line. It has no colours, so it goes to stdout unfiltered.
pub(super) fn json_text(text: &str) {
    let mut stdout = io::stdout().lock();
    let written = stdout.write_all(printable_json(text).as_bytes());
    went_on(written.and_then(|()| stdout.write_all(b"\n")).and_then(|()| stdout.flush()));
}

/// Writes views as a JSON list. Only one view is in memory at a time.
pub(super) fn json_list(views: impl Iterator<Item = impl Serialize>) -> String {
    let mut text = String::from("[");
    for (place, view) in views.enumerate() {
        text.push_str(if place == 0 { "" } else { "," });
        text.push_str(&to_json(&view));
    }
    text.push(']');
    text
}

fn to_json(view: &impl Serialize) -> String {
    serde_json::to_string(view).expect("strings and numbers can always be serialized")
}

/// Prints text for people on stdout.
pub(super) fn out(text: &str) {
    document(&for_terminal(text));
}

/// Prints text on stdout that programs read, as it is.
pub(super) fn document(text: &str) {
    let mut stdout = anstream::stdout().lock();
    went_on(stdout.write_all(text.as_bytes()).and_then(|()| stdout.flush()));
}

/// Prints one line for people on stderr.
pub(super) fn talk(line: &str) {
    let _ = writeln!(anstream::stderr(), "{}", for_terminal(line));
}

/// Escapes characters that steer a terminal or reverse text, except our own colours.
pub(super) fn for_terminal(text: &str) -> String {
    let mut parts = text.split("\x1b[");
    let mut shown = printable_lines(parts.next().unwrap_or_default()).into_owned();
    for part in parts {
        let end = part.find(|c: char| !c.is_ascii_digit() && c != ';');
        let is_colour = end.is_some_and(|end| part[end..].starts_with('m'));
        shown.push_str(if is_colour { "\x1b[" } else { "\\u{1b}[" });
        shown.push_str(&printable_lines(part));
    }
    shown
}

/// Prints an error report: as JSON on stdout, or as a sentence, its causes and a hint on stderr. In another language than
/// English, the sentence and the hints are those of the message tables, and what happened in detail follows in English.
pub(super) fn report(report: &Report, as_json: bool, language: Language) {
    let messages = Messages::load();
    if as_json && UNWRITTEN.get().is_none() {
        json(&report.to_json_in(language, &messages));
        return;
    }
    let mut stderr = anstream::stderr().lock();
    let message = report.message_in(language, &messages).filter(|_| language != Language::En);
    let phrases = Phrases::load(language);
    let [error, detail, hint] = ["error", "detail", "hint"].map(|key| phrases.fill(key, &[]));
    let written: io::Result<()> = (|| {
        let Some(message) = message else {
            writeln!(stderr, "{ERROR}error{ERROR:#}: {}", for_terminal(&report.to_string()))?;
            return match report.hint() {
                Some(hint) => writeln!(stderr, "{HINT}hint{HINT:#}: {}", for_terminal(hint)),
                None => Ok(()),
            };
        };
        writeln!(stderr, "{ERROR}{error}{ERROR:#}: {}", message.title)?;
        // The causes are a part of the English line.
        let cause = report.to_string().replace("\n  caused by: ", ": ");
        writeln!(stderr, "  {detail}: {}", for_terminal(&cause))?;
        if let Some(hint) = report.hint() {
            writeln!(stderr, "  {detail}: {}", for_terminal(hint))?;
        }
        message.actions.iter().try_for_each(|action| writeln!(stderr, "{HINT}{hint}{HINT:#}: {action}"))
    })();
    let _ = written;
}

/// Ends this program as its command ended.
///
/// After Ctrl-C at a terminal this process ends by the signal, too. After an exit code alone, the shell of a script would
/// assume that the interrupt was handled, and go on. Call it last.
pub(super) fn pass_on(ending: Ending) -> Exit {
    if io::stdin().is_terminal() || io::stderr().is_terminal() {
        // If that fails, the exit code is still right.
        let _ = ending.pass_on_interrupt();
    }
    Exit::Command(ending.exit_code())
}

/// Ends a waiting command by the signal that interrupted it.
pub(super) fn interrupted(signal: Signal) -> Exit {
    pass_on(Ending::Signaled(u8::try_from(signal.as_raw()).unwrap_or(u8::MAX)))
}

/// A duration as people read it.
pub(super) fn span(span: Duration) -> String {
    format_span(span)
}

/// The targets of a claim, as people read them.
pub(super) fn targets(claim: &Claim) -> String {
    claim.targets().map(|target| plain(&target.to_string())).collect::<Vec<_>>().join(", ")
}

/// The view of a lease as JSON.
pub(super) fn lease(lease: &Lease, now: Moment) -> Value {
    to_value(LeaseView::new(lease, now))
}

/// The view of a ticket as JSON.
pub(super) fn ticket(ticket: &Ticket, blockers: &[Blocker], position: usize, now: Moment) -> Value {
    to_value(TicketView::new(ticket, blockers, position, now))
}

fn to_value(view: impl Serialize) -> Value {
    serde_json::to_value(view).expect("strings and numbers can always be serialized")
}

/// "alert LOCK_WAIT: …", in its colour, and what to do about it.
pub(super) fn alert(context: &Context, alert: &Alert) -> String {
    let style = AnsiColor::Yellow.on_default().bold();
    let value = match alert {
        Alert::LongWait { waited, .. } => span(*waited),
        Alert::Deadlocks { .. } | Alert::Orphans { .. } | Alert::Downgrades { .. } => {
            alert.value().to_string()
        }
    };
    let (code, limit) = (alert.code(), alert.limit().to_string());
    let what = context.say(&format!("alert.{code}"), &[("value", &value), ("limit", &limit)]);
    let hint = context.say(&format!("alert.hint.{code}"), &[]);
    let text = context.say("alert", &[("code", code), ("what", &what)]);
    let (word, rest) = text.split_once(' ').unwrap_or((&text, ""));
    format!("{style}{word}{style:#} {rest}\n  {hint}")
}

/// "alive", in its colour.
pub(super) fn verdict(verdict: Verdict) -> String {
    let (word, color) = match verdict {
        Verdict::Alive => ("alive", AnsiColor::Green),
        Verdict::Unknown => ("unknown", AnsiColor::Yellow),
        Verdict::Dead(_) => ("dead", AnsiColor::Red),
        Verdict::Expired => ("expired", AnsiColor::Red),
        Verdict::Overdue => ("overdue", AnsiColor::Magenta),
    };
    let style = color.on_default();
    format!("{style}{word}{style:#}")
}

/// Reports that another owner holds it. People see the command of an owner that nobody chose.
pub(super) fn held_here(context: &Context, blockers: &[Blocker], ticket: Option<&str>) -> Report {
    if context.json {
        return held(blockers, ticket);
    }
    let names = OwnerNames::of_blockers(blockers, &context.location.root);
    held_because(&names.in_text(&reason(blockers)), blockers, ticket)
}

/// Reports that another owner holds it.
pub(super) fn held(blockers: &[Blocker], ticket: Option<&str>) -> Report {
    held_because(&reason(blockers), blockers, ticket)
}

fn held_because(reason: &str, blockers: &[Blocker], ticket: Option<&str>) -> Report {
    let hint = match (ticket, blockers.iter().flat_map(|blocker| &blocker.leases).next()) {
        (Some(ticket), _) => {
            format!("your place is kept for a while: call again with --ticket {ticket} --wait")
        }
        (None, Some(found)) => {
            let question = found.witness.escape_debug();
            format!("wait for it with --wait, or ask `lockkeeper why {question}`")
        }
        (None, None) if blockers.iter().any(|blocker| blocker.silent_until.is_some()) => {
            "this takes one session (setting `session`, 30s): wait with --wait".to_owned()
        }
        (None, None) => "others are in line before you: wait with --wait".to_owned(),
    };
    refused(&format!("refused: {reason}"), blockers, ticket).with_hint(hint)
}

fn refused(sentence: &str, blockers: &[Blocker], ticket: Option<&str>) -> Report {
    let report = Report::new(Exit::Refused, "LOCK_HELD", sentence);
    report.with_context("holders", to_value(obstacles(blockers))).with_context("ticket", ticket)
}

/// Reports that another owner still holds it after a wait.
pub(super) fn still_held(context: &Context, blockers: &[Blocker], waiting: Waiting) -> Report {
    let found = blockers.iter().flat_map(|blocker| &blocker.leases).next();
    let hint = match found {
        Some(found) => format!("`lockkeeper why {}` says more", found.witness.escape_debug()),
        None => "`lockkeeper locks` shows who is in line".to_owned(),
    };
    let names = if context.json {
        OwnerNames::default()
    } else {
        OwnerNames::of_blockers(blockers, &context.location.root)
    };
    let waited = match waiting {
        Waiting::For(limit) => format!(" after {}", span(limit)),
        Waiting::No | Waiting::Forever => String::new(),
    };
    refused(&format!("refused{waited}: {}", names.in_text(&reason(blockers))), blockers, None).with_hint(hint)
}

/// Reports that the ticket was removed.
pub(super) fn ticket_gone() -> Report {
    Report::new(Exit::Refused, "TICKET_REMOVED", "the ticket is not in line any more")
        .with_hint("it waited too long without its owner, or was cleaned up: ask again with the names")
}

/// Reports that the lease was lost while its command ran.
pub(super) fn lease_lost(lease: &Lease, loss: &NotCurrent, stopped: Option<Ending>) -> Report {
    let what = match stopped {
        Some(ending) => format!("the command was stopped and {ending}"),
        None => "the command had ended by itself".to_owned(),
    };
    Report::new(Exit::LeaseLost, "LEASE_LOST", format!("lease {} was lost ({loss}); {what}", lease.id))
        .with_hint("what it protects may have been changed by another since: check before you try again")
        .with_context("lease", lease.id.to_string())
        .with_context("token", lease.token.0)
}

/// A command that could not be started. `otherwise` is the hint where nothing better is known.
pub(super) fn not_started(error: &StartError, otherwise: &'static str) -> Report {
    let hint = match error {
        StartError::NotFound { .. } => "check the spelling and PATH; the command comes after `--`",
        StartError::CannotExecute { .. } => "is it executable? try: chmod +x",
        StartError::Lost { .. } | StartError::Other { .. } => otherwise,
    };
    Report::of(Exit::Command(error.exit_code()), "COMMAND_NOT_STARTED", error).with_hint(hint)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_colours_reach_the_terminal() {
        let style = AnsiColor::Red.on_default().bold();
        let ours = format!("{style}dead{style:#}\n\tdb");
        assert_eq!(for_terminal(&ours), ours);
        assert_eq!(for_terminal("a\x1b[2Jb\x1b]0;t\x07\u{202e}"), "a\\u{1b}[2Jb\\u{1b}]0;t\\u{7}\\u{202e}");
        assert_eq!(for_terminal("\x1b["), "\\u{1b}[");
    }
}
