//! What people and programs see: data on stdout, talk on stderr, one shape for each thing.

use std::io::{self, IsTerminal, Write};
use std::time::Duration;

use anstyle::{AnsiColor, Style};
use lockkeeper_core::alert::Alert;
use lockkeeper_core::lease::NotCurrent;
use lockkeeper_core::liveness::Verdict;
use lockkeeper_core::record::{Claim, Lease, Ticket};
use lockkeeper_core::time::{Moment, format_span};
use lockkeeper_core::waiting::Blocker;
use lockkeeper_engine::report::{Exit, Report};
pub(super) use lockkeeper_engine::shape::deadlock;
use lockkeeper_engine::shape::{LeaseShape, TicketShape, obstacles, reason};
use lockkeeper_platform::exec::{Ending, StartError};
use lockkeeper_platform::signal::Signal;
use serde_json::Value;

const ERROR: Style = AnsiColor::Red.on_default().bold();
const HINT: Style = AnsiColor::Cyan.on_default();

/// One line of data.
pub(super) fn data(line: &str) {
    out(&format!("{line}\n"));
}

/// One JSON value on one line.
pub(super) fn json(value: &Value) {
    json_text(&value.to_string());
}

/// JSON that is text already, on one line. It has no colour that a terminal could be spared.
pub(super) fn json_text(text: &str) {
    let mut stdout = io::stdout().lock();
    let _ = stdout
        .write_all(text.as_bytes())
        .and_then(|()| stdout.write_all(b"\n"))
        .and_then(|()| stdout.flush());
}

/// Values as a JSON list, without keeping all of them in memory.
pub(super) fn json_list(values: impl Iterator<Item = Value>) -> String {
    let mut text = String::from("[");
    for (place, value) in values.enumerate() {
        text.push_str(if place == 0 { "" } else { "," });
        text.push_str(&value.to_string());
    }
    text.push(']');
    text
}

/// Text on stdout. A reader that went away, as `head` does, is not an error.
pub(super) fn out(text: &str) {
    let mut stdout = anstream::stdout().lock();
    let _ = stdout.write_all(text.as_bytes()).and_then(|()| stdout.flush());
}

/// One line for the person at the terminal.
pub(super) fn talk(line: &str) {
    let _ = writeln!(anstream::stderr(), "{line}");
}

/// A failure: as JSON on stdout, or as a sentence, its causes and a hint on stderr.
pub(super) fn report(report: &Report, as_json: bool) {
    if as_json {
        json(&report.to_json());
        return;
    }
    let mut stderr = anstream::stderr().lock();
    let told: io::Result<()> = (|| {
        writeln!(stderr, "{ERROR}error{ERROR:#}: {report}")?;
        match report.hint() {
            Some(hint) => writeln!(stderr, "{HINT}hint{HINT:#}: {hint}"),
            None => Ok(()),
        }
    })();
    let _ = told;
}

/// How a command ended, as this program's own ending.
///
/// Ctrl-C at a terminal ends this process by the signal too: the shell of a script goes on after a mere exit code,
/// since it takes it that the interrupt was dealt with. Call it last.
pub(super) fn pass_on(ending: Ending) -> Exit {
    if io::stdin().is_terminal() || io::stderr().is_terminal() {
        // What remains if it cannot be passed on is the exit code.
        let _ = ending.pass_on_interrupt();
    }
    Exit::Command(ending.exit_code())
}

/// The end of a command that was to wait, by a signal.
pub(super) fn interrupted(signal: Signal) -> Exit {
    pass_on(Ending::Signaled(u8::try_from(signal.as_raw()).unwrap_or(u8::MAX)))
}

/// A span as people read it.
pub(super) fn span(span: Duration) -> String {
    format_span(span)
}

/// The targets of a claim, as people read them.
pub(super) fn targets(claim: &Claim) -> String {
    claim.targets().map(ToString::to_string).collect::<Vec<_>>().join(", ")
}

/// A lease in the shape that every interface gives it.
pub(super) fn lease(lease: &Lease, now: Moment) -> Value {
    shaped(LeaseShape::of(lease, now))
}

/// A ticket in the shape that every interface gives it.
pub(super) fn ticket(ticket: &Ticket, blockers: &[Blocker], position: usize, now: Moment) -> Value {
    shaped(TicketShape::of(ticket, blockers, position, now))
}

fn shaped(shape: impl serde::Serialize) -> Value {
    serde_json::to_value(shape).expect("texts and numbers can always be written")
}

/// "alert LOCK_WAIT: …", in its colour.
pub(super) fn alert(alert: &Alert) -> String {
    let style = AnsiColor::Yellow.on_default().bold();
    format!("{style}alert{style:#} {}: {alert}", alert.code())
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

/// Somebody else has it.
pub(super) fn held(blockers: &[Blocker], ticket: Option<&str>) -> Report {
    let hint = match (ticket, blockers.iter().flat_map(|blocker| &blocker.leases).next()) {
        (Some(ticket), _) => {
            format!("your place is kept for a while: call again with --ticket {ticket} --wait")
        }
        (None, Some(found)) => {
            let question = found.witness.escape_debug();
            format!("wait for it with --wait, or ask `lockkeeper why {question}`")
        }
        (None, None) => "others are in line before you: wait with --wait".to_owned(),
    };
    let report =
        Report::new(Exit::Refused, "LOCK_HELD", format!("refused: {}", reason(blockers))).with_hint(hint);
    report.with_context("holders", shaped(obstacles(blockers))).with_context("ticket", ticket)
}

/// The ticket was taken away.
pub(super) fn ticket_gone() -> Report {
    Report::new(Exit::Refused, "TICKET_REMOVED", "the ticket is not in line any more")
        .with_hint("it waited too long without its owner, or was cleaned up: ask again with the names")
}

/// The lease was lost while its command ran.
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
        StartError::Other { .. } => otherwise,
    };
    Report::of(Exit::Command(error.exit_code()), "COMMAND_NOT_STARTED", error).with_hint(hint)
}
