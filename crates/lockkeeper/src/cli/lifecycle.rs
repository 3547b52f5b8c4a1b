//! `renew`, `release`, `upgrade`, `downgrade`: commands for a held lease.

use lockkeeper_core::lease::{Caller, NotCurrent, WaitTerms};
use lockkeeper_core::record::Lease;
use lockkeeper_engine::report::{Exit, Report};
use lockkeeper_engine::{Acquired, Engine};
use serde_json::json;

use super::args::{LeaseSelector, Waiting, ttl, wait};
use super::context::{Context, Globals};
use super::obtain::{WaitSettings, grace, receive_signals, ticket_ttl, wait as wait_in_line};
use super::{Verb, print};

/// Renew a lease: its TTL starts again
#[derive(clap::Args)]
pub(super) struct RenewArgs {
    #[command(flatten)]
    which: LeaseSelector,
    #[command(flatten)]
    who: OwnerArgs,
    /// A new TTL
    #[arg(long, value_name = "DUR")]
    ttl: Option<String>,
}

/// Release a lease
#[derive(clap::Args)]
pub(super) struct ReleaseArgs {
    #[command(flatten)]
    which: LeaseSelector,
    #[command(flatten)]
    who: OwnerArgs,
}

/// Make an exclusive lease shared
#[derive(clap::Args)]
pub(super) struct DowngradeArgs {
    #[command(flatten)]
    which: LeaseSelector,
    #[command(flatten)]
    who: OwnerArgs,
}

/// Make a shared lease exclusive; it stays shared if that fails
#[derive(clap::Args)]
pub(super) struct UpgradeArgs {
    #[command(flatten)]
    which: LeaseSelector,
    #[command(flatten)]
    who: OwnerArgs,
    /// Wait for the other shared holders, at most this long
    #[arg(long, value_name = "DUR", num_args = 0..=1, require_equals = true, default_missing_value = "")]
    wait: Option<String>,
}

/// Whose lease it is.
#[derive(clap::Args)]
struct OwnerArgs {
    /// The owner of the lease; commands of the process that acquired it need not say so
    #[arg(long, value_name = "KIND:ID")]
    owner: Option<String>,
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
    let id = args.which.id()?;
    let new_ttl = args.ttl.as_deref().map(ttl).transpose()?;
    let (engine, caller) = engine_and_caller(context, &args.which, &args.who)?;
    let renewed = engine.renew(id, caller, new_ttl)?;
    print_result(context, &engine, "renewed", renewed)
}

fn release(context: &Context, args: &ReleaseArgs) -> Result<Exit, Report> {
    let id = args.which.id()?;
    let (engine, caller) = engine_and_caller(context, &args.which, &args.who)?;
    let ended = engine.end(id, &caller, grace(context))?;
    if ended.as_ref().is_ok_and(|ended| ended.by_force) {
        print::talk("its holder did not stop in time, and may still work");
    }
    print_result(context, &engine, "released", ended.map(|ended| ended.lease))
}

fn downgrade(context: &Context, args: &DowngradeArgs) -> Result<Exit, Report> {
    let id = args.which.id()?;
    let (engine, caller) = engine_and_caller(context, &args.which, &args.who)?;
    let weaker = engine.downgrade(id, caller)?;
    print_result(context, &engine, "downgraded", weaker)
}

fn upgrade(context: &Context, args: &UpgradeArgs) -> Result<Exit, Report> {
    let id = args.which.id()?;
    let waiting = wait(args.wait.as_deref())?.unwrap_or(Waiting::No);
    let (engine, caller) = engine_and_caller(context, &args.which, &args.who)?;
    let signals = receive_signals()?;
    let waker = if waiting == Waiting::No { None } else { Some(engine.store().waker()?) };
    let terms = waker.as_ref().map(|waker| WaitTerms { waker: Some(waker.id()), stays: ticket_ttl(context) });
    let settings = WaitSettings { waiting, keep_ticket: false, signals_win: false, quiet: false };
    let outcome = engine.upgrade(id, caller, terms)?.map_err(Report::from)?;
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

/// Opens the store, and finds out who calls: the token, the owner that a flag or the settings name, and the processes around.
fn engine_and_caller(
    context: &Context,
    which: &LeaseSelector,
    who: &OwnerArgs,
) -> Result<(Engine, Caller), Report> {
    let (id, token) = (which.id()?, which.token()?);
    let owner = who.owner.as_deref().map(str::parse).transpose()?;
    let engine = context.existing_engine()?.ok_or_else(|| Report::from(NotCurrent::Unknown(id)))?;
    let caller = engine.caller(token, context.named_owner(owner.as_ref()));
    Ok((engine, caller))
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
