//! Acquiring and waiting on the command line: signals, progress display, and what happens to the ticket.

use std::io::{IsTerminal, Write};
use std::os::fd::{AsFd, BorrowedFd};
use std::time::{Duration, Instant};

use lockkeeper_core::lease::{Outcome, Request, WaitTerms, Waiting as InLine};
use lockkeeper_core::time::{Ttl, format_span};
use lockkeeper_engine::open::OpenError;
use lockkeeper_engine::report::Report;
pub(super) use lockkeeper_engine::report::reason;
use lockkeeper_engine::{Acquired, AtEnd, Engine, WaitOptions};
use lockkeeper_platform::signal::{Signal, Signals};
use lockkeeper_platform::terminal::Size;
use lockkeeper_store::Waker;

use super::args::Waiting;
use super::context::Context;
use super::table;

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
    mut request: Request,
    settings: &WaitSettings,
) -> Result<Obtained, Report> {
    // A waker and signal handlers cost time. They are created only if the lease is held.
    let outcome = engine.acquire_now(&request, grace(context))?;
    if settings.waiting == Waiting::No || !matches!(outcome, Outcome::Held(_)) {
        return wait(context, engine, outcome, None, settings);
    }
    let signals = receive_signals()?;
    let waker = engine.store().waker()?;
    request.wait = Some(WaitTerms { waker: Some(waker.id()), stays: ticket_ttl(context) });
    let outcome = engine.acquire(&request)?;
    wait(context, engine, outcome, Some((&*waker, &signals)), settings)
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
    context.config.span("grace").unwrap_or(Duration::from_secs(10))
}

/// If the ticket waits in line, sleeps until the lease is granted, the time is up or a signal comes.
pub(super) fn wait(
    context: &Context,
    engine: &Engine,
    outcome: Outcome,
    sleep_on: Option<(&dyn Waker, &Signals)>,
    settings: &WaitSettings,
) -> Result<Obtained, Report> {
    let until = match settings.waiting {
        Waiting::For(span) => Instant::now().checked_add(span),
        Waiting::No => Some(Instant::now()),
        Waiting::Forever => None,
    };
    let mut display = ProgressDisplay::new(settings.quiet || context.json);
    let (waker, signals) = (sleep_on.map(|(waker, _)| waker), sleep_on.map(|(_, signals)| signals));
    let interrupts: Vec<BorrowedFd<'_>> = signals.iter().map(|signals| signals.as_fd()).collect();
    let tick = display.is_live.then_some(Duration::from_secs(1));
    let options = WaitOptions { until, interrupts: &interrupts, grace: grace(context), tick };
    let at_end = if settings.keep_ticket { AtEnd::Detach } else { AtEnd::GiveUp };
    let followed = engine.follow(outcome, waker, &options, at_end, &mut |waiting| display.show(waiting));
    display.clear();
    let came = || signals?.take().ok()?.first().copied();
    Ok(match followed? {
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

/// Shows what is waited for: one line with a clock on a terminal, one line for each change elsewhere.
struct ProgressDisplay {
    quiet: bool,
    is_live: bool,
    since: Instant,
    last: String,
}

impl ProgressDisplay {
    fn new(quiet: bool) -> Self {
        let dumb = std::env::var_os("TERM").is_some_and(|term| term == "dumb");
        let is_live = !quiet && std::io::stderr().is_terminal() && !dumb;
        Self { quiet, is_live, since: Instant::now(), last: String::new() }
    }

    fn show(&mut self, waiting: &InLine) {
        let reason = reason(&waiting.blockers);
        if self.quiet || (!self.is_live && reason == self.last) {
            return;
        }
        let mut stderr = std::io::stderr().lock();
        // A message that cannot be printed is no reason to fail.
        let _ = if self.is_live {
            let line = format!("waiting {} for {reason}", format_span(self.since.elapsed()));
            let line = Size::of(&stderr).map_or(line.clone(), |size| table::cut(&line, size.columns));
            write!(stderr, "\r\x1b[K{line}").and_then(|()| stderr.flush())
        } else {
            writeln!(stderr, "waiting for {reason} (ticket {})", waiting.ticket.id.as_ticket())
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
