//! `renew`, `release`, `upgrade`, `downgrade`: commands for a held lease.

use lockkeeper_core::lease::{NotCurrent, WaitTerms};
use lockkeeper_core::record::Lease;
use lockkeeper_engine::report::{Exit, Report};
use lockkeeper_engine::{Acquired, Engine};
use serde_json::json;

use super::args::{LeaseSelector, Waiting, ttl, wait};
use super::context::{Context, Globals};
use super::obtain::{WaitSettings, receive_signals, ticket_ttl, wait as wait_in_line};
use super::{Verb, print};

/// Renew a lease: its TTL starts again
#[derive(clap::Args)]
pub(super) struct RenewArgs {
    #[command(flatten)]
    which: LeaseSelector,
    /// A new TTL
    #[arg(long, value_name = "DUR")]
    ttl: Option<String>,
}

/// Release a lease
#[derive(clap::Args)]
pub(super) struct ReleaseArgs {
    #[command(flatten)]
    which: LeaseSelector,
}

/// Make an exclusive lease shared
#[derive(clap::Args)]
pub(super) struct DowngradeArgs {
    #[command(flatten)]
    which: LeaseSelector,
}

/// Make a shared lease exclusive; it stays shared if that fails
#[derive(clap::Args)]
pub(super) struct UpgradeArgs {
    #[command(flatten)]
    which: LeaseSelector,
    /// Wait for the other shared holders, at most this long
    #[arg(long, value_name = "DUR", num_args = 0..=1, require_equals = true, default_missing_value = "")]
    wait: Option<String>,
}

impl Verb for RenewArgs {
    const NAME: &'static str = "renew";

    fn run(self, globals: &Globals) -> Result<Exit, Report> {
        renew(&Context::new(globals)?, &self)
    }
}

impl Verb for ReleaseArgs {
    const NAME: &'static str = "release";

    fn run(self, globals: &Globals) -> Result<Exit, Report> {
        release(&Context::new(globals)?, &self)
    }
}

impl Verb for UpgradeArgs {
    const NAME: &'static str = "upgrade";

    fn run(self, globals: &Globals) -> Result<Exit, Report> {
        upgrade(&Context::new(globals)?, &self)
    }
}

impl Verb for DowngradeArgs {
    const NAME: &'static str = "downgrade";

    fn run(self, globals: &Globals) -> Result<Exit, Report> {
        downgrade(&Context::new(globals)?, &self)
    }
}

fn renew(context: &Context, args: &RenewArgs) -> Result<Exit, Report> {
    let (id, token) = (args.which.id()?, args.which.token()?);
    let new_ttl = args.ttl.as_deref().map(ttl).transpose()?;
    let engine = engine(context, &args.which)?;
    let renewed = engine.renew(id, token, new_ttl)?;
    print_result(context, &engine, "renewed", renewed)
}

fn release(context: &Context, args: &ReleaseArgs) -> Result<Exit, Report> {
    let (id, token) = (args.which.id()?, args.which.token()?);
    let engine = engine(context, &args.which)?;
    check_owner(context, &engine, id)?;
    let released = engine.release(id, token)?;
    print_result(context, &engine, "released", released)
}

fn downgrade(context: &Context, args: &DowngradeArgs) -> Result<Exit, Report> {
    let (id, token) = (args.which.id()?, args.which.token()?);
    let engine = engine(context, &args.which)?;
    check_owner(context, &engine, id)?;
    let weaker = engine.downgrade(id, token)?;
    print_result(context, &engine, "downgraded", weaker)
}

fn upgrade(context: &Context, args: &UpgradeArgs) -> Result<Exit, Report> {
    let (id, token) = (args.which.id()?, args.which.token()?);
    let waiting = wait(args.wait.as_deref())?.unwrap_or(Waiting::No);
    let engine = engine(context, &args.which)?;
    check_owner(context, &engine, id)?;
    let signals = receive_signals()?;
    let waker = if waiting == Waiting::No { None } else { Some(engine.store().waker()?) };
    let terms = waker.as_ref().map(|waker| WaitTerms { waker: Some(waker.id()), stays: ticket_ttl(context) });
    let settings = WaitSettings { waiting, keep_ticket: false, signals_win: false, quiet: false };
    let outcome = engine.upgrade(id, token, terms)?.map_err(Report::from)?;
    let sleep_on = waker.as_ref().map(|waker| (&**waker, &signals));
    match wait_in_line(context, &engine, outcome, sleep_on, &settings)?.acquired {
        Acquired::Granted(grant) => print_result(context, &engine, "upgraded", Ok(grant.lease)),
        Acquired::Held(blockers) => Err(print::held(&blockers, None)),
        Acquired::Waiting(waiting) | Acquired::Interrupted(waiting) => {
            Err(print::held(&waiting.blockers, None))
        }
        Acquired::Deadlock(links) => Err(print::deadlock(&links)),
        Acquired::Gone => Err(print::ticket_gone()),
    }
}

/// If the settings name an owner, refuses the lease of another owner.
fn check_owner(context: &Context, engine: &Engine, id: lockkeeper_core::id::LeaseId) -> Result<(), Report> {
    let Some(own) = context.config.text("owner") else { return Ok(()) };
    match engine.owner_of(id)? {
        Some(owner) if owner.as_str() != own => {
            Err(Report::new(Exit::Refused, "NOT_THE_OWNER", format!("{id} belongs to {owner}, not to {own}"))
                .with_hint(format!("to force it: lockkeeper locks break {id} --yes")))
        }
        Some(_) | None => Ok(()),
    }
}

fn engine(context: &Context, which: &LeaseSelector) -> Result<Engine, Report> {
    let id = which.id()?;
    context.existing_engine()?.ok_or_else(|| Report::from(NotCurrent::Unknown(id)))
}

fn print_result(
    context: &Context,
    engine: &Engine,
    what: &str,
    outcome: Result<Lease, NotCurrent>,
) -> Result<Exit, Report> {
    let lease = outcome.map_err(Report::from)?;
    let message = format!("{what}: {} ({}), token {}", lease.id, print::targets(&lease.claim), lease.token);
    if context.json {
        let lease = print::lease(&lease, engine.now()?);
        print::json(&json!({ "status": what, "lease": lease, "message": message }));
    } else {
        print::talk(&message);
    }
    Ok(Exit::Done)
}
