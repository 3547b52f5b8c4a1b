//! Getting a lease with the whole of waiting around it: bell, signals, progress.

use std::io::{IsTerminal, Write};
use std::os::fd::AsFd;
use std::time::{Duration, Instant};

use lockkeeper_core::lease::{Grant, Outcome, Request, WaitTerms, Waiting as InLine};
use lockkeeper_core::record::Ticket;
use lockkeeper_core::time::{Ttl, format_span};
use lockkeeper_core::waiting::Jam;
use lockkeeper_engine::report::Report;
pub(super) use lockkeeper_engine::report::reason;
use lockkeeper_engine::{Engine, Patience, Waited};
use lockkeeper_platform::signal::{Signal, Signals};
use lockkeeper_platform::terminal::Size;
use lockkeeper_store::Bell;

use super::args::Waiting;
use super::context::Context;
use super::table;

/// What became of it.
pub(super) enum Obtained {
    Granted(Grant),
    /// Others hold it, or held it all the time.
    Held(Vec<Jam>),
    /// The time was up; the ticket is still in line.
    StillInLine(InLine),
    Deadlock(Vec<lockkeeper_core::deadlock::Link>),
    /// A signal came while waiting.
    Interrupted(InLine, Signal),
    /// The ticket is gone.
    Gone,
}

/// How to go about it.
pub(super) struct Manner {
    pub(super) waiting: Waiting,
    /// Whether the ticket stays in line when the time is up.
    pub(super) keep_ticket: bool,
    /// Whether a lease that is granted when a signal has come is given back.
    pub(super) signals_win: bool,
    pub(super) quiet: bool,
}

/// Asks for a lease, and waits for it if told to.
pub(super) fn obtain(
    context: &Context,
    engine: &Engine,
    mut request: Request,
    manner: &Manner,
) -> Result<Obtained, Report> {
    match engine.acquire(&request)? {
        Outcome::Granted(grant) => return Ok(Obtained::Granted(grant)),
        Outcome::Deadlock(links) => return Ok(Obtained::Deadlock(links)),
        Outcome::Gone => return Ok(Obtained::Gone),
        Outcome::Waiting(waiting) => return Ok(Obtained::StillInLine(waiting)),
        Outcome::Held(jams) => {
            if stop_overdue(context, engine, &jams)?
                && let Outcome::Granted(grant) = engine.acquire(&request)?
            {
                return Ok(Obtained::Granted(grant));
            }
            if manner.waiting == Waiting::No {
                return Ok(Obtained::Held(jams));
            }
        }
    }
    let signals = receive_signals()?;
    let bell = engine.store().bell()?;
    request.wait = Some(WaitTerms { bell: Some(bell.id()), stays: stays(context) });
    match engine.acquire(&request)? {
        Outcome::Granted(grant) => Ok(Obtained::Granted(grant)),
        Outcome::Waiting(waiting) => wait(context, engine, waiting, (&*bell, &signals), manner),
        Outcome::Held(jams) => Ok(Obtained::Held(jams)),
        Outcome::Deadlock(links) => Ok(Obtained::Deadlock(links)),
        Outcome::Gone => Ok(Obtained::Gone),
    }
}

/// Begins to receive the signals that end a wait. Do it before there is a ticket, which would be left behind.
pub(super) fn receive_signals() -> Result<Signals, Report> {
    let received = Signals::receive(&[Signal::INT, Signal::TERM, Signal::HUP, Signal::QUIT]);
    received.map_err(|error| lockkeeper::KeeperError::Machine(error).into())
}

/// How long a ticket stays in line while its owner is away.
pub(super) fn stays(context: &Context) -> Ttl {
    let fallback = Duration::from_secs(120);
    context.config.ttl("ticket_ttl").or_else(|| Ttl::new(fallback).ok()).expect("two minutes are a TTL")
}

/// How long a command may take to stop.
pub(super) fn grace(context: &Context) -> Duration {
    context.config.span("grace").unwrap_or(Duration::from_secs(10))
}

fn stop_overdue(context: &Context, engine: &Engine, jams: &[Jam]) -> Result<bool, Report> {
    let mut stopped = false;
    for found in jams.iter().flat_map(|jam| &jam.leases) {
        stopped |= engine.stop_if_overdue(&found.record, grace(context))?;
    }
    Ok(stopped)
}

/// Sleeps in line until the lease is granted, the time is up or a signal comes.
pub(super) fn wait(
    context: &Context,
    engine: &Engine,
    waiting: InLine,
    (bell, signals): (&dyn Bell, &Signals),
    manner: &Manner,
) -> Result<Obtained, Report> {
    let (asked, ticket) = (waiting.clone(), waiting.ticket.clone());
    let until = match manner.waiting {
        Waiting::For(span) => Instant::now().checked_add(span),
        Waiting::No => Some(Instant::now()),
        Waiting::Forever => None,
    };
    let mut teller = Teller::new(manner.quiet || context.json);
    let interrupts = [signals.as_fd()];
    let tick = teller.is_live.then_some(Duration::from_secs(1));
    let patience = Patience { until, interrupts: &interrupts, grace: grace(context), tick };
    let waited = engine.wait(waiting, bell, &patience, &mut |waiting| teller.tell(waiting));
    teller.clear();
    let came = || signals.take().ok().and_then(|taken| taken.first().copied());
    match waited {
        Ok(Waited::Granted(grant)) => match came().filter(|_| manner.signals_win) {
            // Ctrl-C often ends the holder as well, and so hands the lease to a waiter that is to end too.
            Some(signal) => {
                engine.give_up(&ticket)?;
                Ok(Obtained::Interrupted(asked, signal))
            }
            None => Ok(Obtained::Granted(grant)),
        },
        Ok(Waited::Gone) => Ok(Obtained::Gone),
        Ok(Waited::TimedOut(waiting)) => Ok(match leave(engine, manner, &ticket)? {
            Some(grant) => Obtained::Granted(grant),
            None if manner.keep_ticket => Obtained::StillInLine(waiting),
            None => Obtained::Held(waiting.jams),
        }),
        Ok(Waited::Interrupted(waiting)) => Ok(match leave(engine, manner, &ticket)? {
            Some(grant) => Obtained::Granted(grant),
            None => Obtained::Interrupted(waiting, came().unwrap_or(Signal::TERM)),
        }),
        Err(error) => {
            // What went wrong counts; the place in line is given back as well as can be.
            let _ = engine.give_up(&ticket);
            Err(error.into())
        }
    }
}

/// Leaves the line; an upgrade that was granted in the last moment is held.
fn leave(engine: &Engine, manner: &Manner, ticket: &Ticket) -> Result<Option<Grant>, Report> {
    if manner.keep_ticket {
        engine.walk_away(ticket.id)?;
        return Ok(None);
    }
    Ok(engine.give_up(ticket)?)
}

/// Tells a person what is waited for: a line with a clock on a terminal, a line at each change elsewhere.
struct Teller {
    quiet: bool,
    is_live: bool,
    since: Instant,
    last: String,
}

impl Teller {
    fn new(quiet: bool) -> Self {
        let dumb = std::env::var_os("TERM").is_some_and(|term| term == "dumb");
        let is_live = !quiet && std::io::stderr().is_terminal() && !dumb;
        Self { quiet, is_live, since: Instant::now(), last: String::new() }
    }

    fn tell(&mut self, waiting: &InLine) {
        let reason = reason(&waiting.jams);
        if self.quiet || (!self.is_live && reason == self.last) {
            return;
        }
        let mut stderr = std::io::stderr().lock();
        // Talk that cannot be printed is not worth failing for.
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
