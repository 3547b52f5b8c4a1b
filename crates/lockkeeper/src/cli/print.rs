//! What people and programs see: data on stdout, talk on stderr, one shape for each thing.

use std::io::{self, IsTerminal, Write};
use std::time::Duration;

use anstyle::{AnsiColor, Style};
use lockkeeper::clock::Dial;
use lockkeeper::core::alert::Alert;
use lockkeeper::core::deadlock::Link;
use lockkeeper::core::lease::NotCurrent;
use lockkeeper::core::liveness::Verdict;
use lockkeeper::core::record::{Claim, Lease, Ticket};
use lockkeeper::core::time::{Moment, format_span};
use lockkeeper::core::waiting::Jam;
use lockkeeper::encoding::resource_to_json;
use lockkeeper::exec::Ending;
use lockkeeper::platform::signal::Signal;
use lockkeeper::report::{Exit, Report};
use serde_json::{Value, json};

use super::obtain::reason;

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
    let dial = Dial::at(now);
    json!({
        "id": lease.id.to_string(),
        "token": lease.token.0,
        "owner": lease.claim.owner.as_str(),
        "resources": lease.claim.resources.iter().map(resource_to_json).collect::<Vec<_>>(),
        "acquired_at": dial.utc(lease.acquired_at),
        "heartbeat_at": dial.utc(lease.heartbeat_at),
        "expires_at": lease.expires_at().map(|end| dial.utc(end)),
        "pid": lease.claim.proof.process().map(|process| process.pid),
        "host": lease.claim.proof.origin.host,
        "proof": lease.claim.proof.voucher.to_string(),
        "reason": lease.claim.reason,
        "contract": lease.claim.contract.to_string(),
    })
}

/// A ticket in the shape that every interface gives it.
pub(super) fn ticket(ticket: &Ticket, jams: &[Jam], position: usize, now: Moment) -> Value {
    let dial = Dial::at(now);
    let leases = jams.iter().flat_map(|jam| &jam.leases);
    let waits_for: Vec<Value> = leases
        .map(|found| {
            json!({
                "lease": found.record.id.to_string(),
                "owner": found.record.claim.owner.as_str(),
                "witness": found.witness,
            })
        })
        .collect();
    let behind = jams.iter().flat_map(|jam| &jam.tickets).map(|found| found.record.id.as_ticket());
    json!({
        "ticket": ticket.claim.ticket.as_ref().map_or_else(|| ticket.id.as_ticket(), ToString::to_string),
        "owner": ticket.claim.owner.as_str(),
        "resources": ticket.claim.resources.iter().map(resource_to_json).collect::<Vec<_>>(),
        "priority": ticket.priority.get(),
        "position": position,
        "waiting_since": dial.utc(ticket.enqueued_at),
        "waits_for": waits_for,
        "behind": behind.collect::<Vec<_>>(),
        "pid": ticket.claim.proof.process().map(|process| process.pid),
        "reason": ticket.claim.reason,
    })
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
pub(super) fn held(jams: &[Jam], ticket: Option<&str>) -> Report {
    let hint = match (ticket, jams.iter().flat_map(|jam| &jam.leases).next()) {
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
        Report::new(Exit::Refused, "LOCK_HELD", format!("refused: {}", reason(jams))).with_hint(hint);
    let holders: Vec<Value> = jams
        .iter()
        .flat_map(|jam| &jam.leases)
        .map(|found| {
            let owner = found.record.claim.owner.as_str();
            json!({ "lease": found.record.id.to_string(), "owner": owner, "witness": found.witness })
        })
        .collect();
    report.with_context("holders", holders).with_context("ticket", ticket)
}

/// The wait would never end.
pub(super) fn deadlock(links: &[Link]) -> Report {
    let own_command = matches!(links, [link] if link.waiter == link.holder);
    let cycle: Vec<String> = links.iter().map(ToString::to_string).collect();
    let (message, hint) = if own_command {
        let wanted = &links[0].wanted;
        let message =
            format!("deadlock refused: this command runs under a lease that holds {wanted} already");
        (message, "leave the inner lock out, or give both the same --owner")
    } else {
        let message = format!("deadlock refused: {}", cycle.join(", and "));
        (message, "release what you hold and take everything in one call, or in one same order everywhere")
    };
    let links: Vec<Value> = links
        .iter()
        .map(|link| json!({ "waiter": link.waiter.as_str(), "wanted": link.wanted, "holder": link.holder.as_str() }))
        .collect();
    Report::new(Exit::Refused, "DEADLOCK", message).with_hint(hint).with_context("cycle", links)
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
