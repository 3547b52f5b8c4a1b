//! Acquiring and waiting on the command line: signals, progress display, and what happens to the ticket.

use std::io::{IsTerminal, Write};
use std::os::fd::AsFd;
use std::time::{Duration, Instant};

use lockkeeper_core::lease::{AcquireRequest, Outcome, Waiting as InLine};
use lockkeeper_core::time::{Ttl, format_span};
use lockkeeper_engine::open::OpenError;
use lockkeeper_engine::report::Report;
pub(super) use lockkeeper_engine::report::reason;
use lockkeeper_engine::{Acquired, AtEnd, Engine, OwnerNames, Progress, WaitOptions};
use lockkeeper_platform::signal::{Signal, Signals};
use lockkeeper_platform::terminal::Size;

use super::args::Waiting;
use super::context::Context;
use super::table;

/// A wait that ends within this time prints nothing, like flock(1). After that, the clock on a terminal is updated at this
/// interval.
const SILENT: Duration = Duration::from_secs(1);

/// How an attempt to get a lease ended.
pub(super) struct Obtained {
    pub(super) acquired: Acquired,
    /// The signal that ended the wait, if one did.
    pub(super) signal: Option<Signal>,
}

/// How a command waits for a lease.
pub(super) struct WaitSettings {
    pub(super) waiting: Waiting,
    /// Whether the ticket stays in line when the time is up.
    pub(super) keep_ticket: bool,
    /// Whether a lease that is granted after a signal came is released again.
    pub(super) signals_win: bool,
    pub(super) quiet: bool,
}

/// Acquires a lease, and waits for it if the settings say so.
pub(super) fn obtain(
    context: &Context,
    engine: &Engine,
    mut request: AcquireRequest,
    settings: &WaitSettings,
) -> Result<Obtained, Report> {
    // Signal handlers cost time. They are installed only if the lease is held.
    let blockers = match engine.acquire_now(&request, grace(context))? {
        Outcome::Held(blockers) if settings.waiting != Waiting::No => blockers,
        outcome => return Ok(Obtained { acquired: outcome.into(), signal: None }),
    };
    request.under.extend(engine.held_above(&blockers));
    let at_end = if settings.keep_ticket { AtEnd::Detach } else { AtEnd::GiveUp };
    wait(context, engine, settings, |options, progress| {
        Ok(engine.acquire_and_wait(request, ticket_ttl(context), options, at_end, progress)?)
    })
}

/// Starts to receive the signals that end a wait. Call it before there is a ticket, which a signal would leave behind.
pub(super) fn receive_signals() -> Result<Signals, Report> {
    let received = Signals::receive(&[Signal::INT, Signal::TERM, Signal::HUP, Signal::QUIT]);
    received.map_err(|error| OpenError::Machine(error).into())
}

/// How long a ticket stays in line while no command waits with it.
pub(super) fn ticket_ttl(context: &Context) -> Ttl {
    let fallback = Duration::from_secs(120);
    context.config.ttl("ticket_ttl").or_else(|| Ttl::new(fallback).ok()).expect("two minutes are a TTL")
}

/// How long a command may take to stop after TERM.
pub(super) fn grace(context: &Context) -> Duration {
    context.config.span("grace").unwrap_or(lockkeeper_engine::config::GRACE)
}

/// Runs a use case that waits in line, until the lease is granted, the time is up or a signal comes.
pub(super) fn wait(
    context: &Context,
    engine: &Engine,
    settings: &WaitSettings,
    use_case: impl FnOnce(&WaitOptions<'_>, Progress<'_>) -> Result<Acquired, Report>,
) -> Result<Obtained, Report> {
    let signals = receive_signals()?;
    let until = match settings.waiting {
        Waiting::For(span) => Instant::now().checked_add(span),
        Waiting::No => Some(Instant::now()),
        Waiting::Forever => None,
    };
    let mut display = ProgressDisplay::new(context, settings.quiet || context.json);
    let tick = (!display.quiet).then_some(SILENT);
    let options = WaitOptions { until, interrupts: &[signals.as_fd()], grace: grace(context), tick };
    let acquired = use_case(&options, &mut |waiting| display.show(waiting));
    display.clear();
    let came = || signals.take().ok()?.first().copied();
    Ok(match acquired? {
        // Ctrl-C often ends the holder, too. Then this waiter gets the lease although it has to end.
        Acquired::Granted(grant) if settings.signals_win => match came() {
            Some(signal) => {
                let _ = engine.release(grant.lease.id, Some(grant.lease.token))?;
                Obtained { acquired: Acquired::Gone, signal: Some(signal) }
            }
            None => Obtained { acquired: Acquired::Granted(grant), signal: None },
        },
        acquired @ Acquired::Interrupted(_) => {
            Obtained { acquired, signal: Some(came().unwrap_or(Signal::TERM)) }
        }
        acquired => Obtained { acquired, signal: None },
    })
}

/// Shows what the command waits for: one line with a clock on a terminal, one line for each change elsewhere.
struct ProgressDisplay<'c> {
    context: &'c Context,
    quiet: bool,
    is_live: bool,
    since: Instant,
    last: String,
}

impl<'c> ProgressDisplay<'c> {
    fn new(context: &'c Context, quiet: bool) -> Self {
        let dumb = std::env::var_os("TERM").is_some_and(|term| term == "dumb");
        let is_live = !quiet && std::io::stderr().is_terminal() && !dumb;
        Self { context, quiet, is_live, since: Instant::now(), last: String::new() }
    }

    fn show(&mut self, waiting: &InLine) {
        if self.quiet || self.since.elapsed() < SILENT {
            return;
        }
        let reason = reason(&waiting.blockers);
        if !self.is_live && reason == self.last {
            return;
        }
        let shown = OwnerNames::of_blockers(&waiting.blockers, &self.context.location.root).in_text(&reason);
        let mut stderr = std::io::stderr().lock();
        // A message that cannot be printed is no reason to fail.
        let _ = if self.is_live {
            let span = format_span(self.since.elapsed());
            let line = self.context.say("wait.live", &[("span", &span), ("reason", &shown)]);
            let line = Size::of(&stderr).map_or(line.clone(), |size| table::cut(&line, size.columns));
            write!(stderr, "\r\x1b[K{line}").and_then(|()| stderr.flush())
        } else {
            let ticket = waiting.ticket.id.as_ticket();
            let line = self.context.say("wait.line", &[("reason", &shown), ("ticket", &ticket)]);
            writeln!(stderr, "{line}")
        };
        self.last = reason;
    }

    fn clear(&self) {
        if self.is_live && !self.last.is_empty() {
            let mut stderr = std::io::stderr().lock();
            let _ = write!(stderr, "\r\x1b[K").and_then(|()| stderr.flush());
        }
    }
}
