//! `renew`, `release`, `upgrade`, `downgrade`: commands for a held lease.

use lockkeeper_core::id::{LeaseId, Owner};
use lockkeeper_core::lease::{Caller, NotCurrent};
use lockkeeper_core::liveness::{ProcessRef, Voucher};
use lockkeeper_core::record::Lease;
use lockkeeper_engine::report::{Exit, Report};
use lockkeeper_engine::{Acquired, Ended, Engine};
use lockkeeper_platform::holder_process;
use serde_json::{Value, json};

use super::args::{LeaseSelector, NO_TIME, Waiting, ttl, wait};
use super::context::{Context, Globals};
use super::exec::leases_around;
use super::obtain::{Obtained, WaitSettings, grace, ticket_ttl, wait as wait_in_line};
use super::{Verb, print};

/// Renew a lease: its TTL starts again
#[derive(clap::Args)]
#[command(after_help = "Example:\n  lockkeeper renew L42 --ttl 10m")]
pub(super) struct RenewArgs {
    #[command(flatten)]
    which: LeaseSelector,
    #[command(flatten)]
    who: OwnerArgs,
    /// A new TTL
    #[arg(long, value_name = "DUR")]
    ttl: Option<String>,
}

/// Release a lease, or leave the line with a ticket (T42)
#[derive(clap::Args)]
#[command(
    after_help = "Examples:\n  lockkeeper release L42\n  lockkeeper release db\n  lockkeeper release T43\n  \
    lockkeeper release --mine --owner worker:1"
)]
pub(super) struct ReleaseArgs {
    /// The lease, such as L42, or a name that you hold, such as db
    #[arg(value_name = "LEASE", required_unless_present = "mine")]
    lease: Option<String>,
    /// Refuse if this token is not current
    #[arg(long, value_name = "N")]
    token: Option<String>,
    /// Release every lease that is yours: those of --owner, else those of the process that acquired them
    #[arg(long, conflicts_with_all = ["lease", "token"])]
    mine: bool,
    #[command(flatten)]
    who: OwnerArgs,
}

/// Make an exclusive lease shared
#[derive(clap::Args)]
#[command(after_help = "Example:\n  lockkeeper downgrade L42")]
pub(super) struct DowngradeArgs {
    #[command(flatten)]
    which: LeaseSelector,
    #[command(flatten)]
    who: OwnerArgs,
}

/// Make a shared lease exclusive; it stays shared if that fails
#[derive(clap::Args)]
#[command(after_help = "Example:\n  lockkeeper upgrade L42 --wait=1m")]
pub(super) struct UpgradeArgs {
    #[command(flatten)]
    which: LeaseSelector,
    #[command(flatten)]
    who: OwnerArgs,
    /// Wait for the other shared holders, at most this long
    #[arg(long, value_name = "DUR", num_args = 0..=1, require_equals = true, default_missing_value = NO_TIME)]
    wait: Option<String>,
}

/// Whose lease it is.
#[derive(clap::Args)]
struct OwnerArgs {
    /// The owner of the lease; commands of the process that acquired it need not say so
    #[arg(long, value_name = "KIND:ID")]
    owner: Option<String>,
}

impl OwnerArgs {
    /// The owner that the flag or the settings name.
    fn named(&self, context: &Context) -> Result<Option<Owner>, Report> {
        let flag = self.owner.as_deref().map(str::parse).transpose()?;
        Ok(context.named_owner(flag.as_ref()))
    }
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
    let new_ttl = args.ttl.as_deref().map(ttl).transpose()?;
    let (engine, caller, id) = find(context, &args.which, &args.who)?;
    let renewed = engine.renew(id, caller, new_ttl)?.map_err(|error| refusal(&engine, &args.which, error))?;
    print_result(context, &engine, "renewed", &renewed)
}

/// Releases every lease of the caller. One that somebody else has ended meanwhile is left out.
fn release_all(context: &Context, who: &OwnerArgs) -> Result<Exit, Report> {
    let mut released = Vec::new();
    let mut kept = None;
    if let Some(engine) = context.existing_engine()? {
        let caller = engine.caller(None, who.named(context)?);
        for lease in engine.leases_of_caller(&caller, &leases_around(context))? {
            match engine.begin_end(lease.id, &caller)? {
                Ok((lease, true)) if !engine.wait_for_release(&lease, grace(context))? => {
                    kept = Some(still_working(&engine, &lease));
                }
                Ok((lease, _)) => released.push(lease),
                Err(_) => {}
            }
        }
        if context.json {
            let now = engine.now()?;
            let leases: Vec<Value> = released.iter().map(|lease| print::lease(lease, now)).collect();
            print::json(&json!({ "status": "released", "leases": leases }));
            let Some(report) = kept else { return Ok(Exit::Done) };
            print::report(&report, false, context.language());
            return Ok(report.exit());
        }
    } else if context.json {
        print::json(&json!({ "status": "released", "leases": [] }));
        return Ok(Exit::Done);
    }
    for lease in &released {
        print::data(&format!("{} ({})", lease.id, print::targets(&lease.claim)));
    }
    print::talk(&format!("{} released", released.len()));
    kept.map_or(Ok(Exit::Done), Err)
}

fn release(context: &Context, args: &ReleaseArgs) -> Result<Exit, Report> {
    let Some(lease) = args.lease.clone().filter(|_| !args.mine) else {
        return release_all(context, &args.who);
    };
    let which = LeaseSelector { lease, token: args.token.clone() };
    let (engine, caller, id) = find(context, &which, &args.who)?;
    let ended = engine.begin_end_of_any(id, &caller)?.map_err(|error| refusal(&engine, &which, error))?;
    let (lease, stays) = match ended {
        Ended::Lease(lease, stays) => (lease, stays),
        Ended::Ticket(ticket) => {
            let message =
                format!("released: {} ({}) left the line", id.as_ticket(), print::targets(&ticket.claim));
            if context.json {
                print::json(&json!({ "status": "released", "lease": null, "message": message }));
            } else {
                print::talk(&message);
            }
            return Ok(Exit::Done);
        }
    };
    if stays && !engine.wait_for_release(&lease, grace(context))? {
        return Err(still_working(&engine, &lease));
    }
    print_result(context, &engine, "released", &lease)
}

/// Reports that a holder does not stop its work. Often its `exec` was killed, and the command goes on.
fn still_working(engine: &Engine, lease: &Lease) -> Report {
    let holder = match lease.claim.proof.voucher {
        Voucher::KernelLock { holder, .. } => Some(holder),
        Voucher::Process(_) | Voucher::Time | Voucher::TimeFor(_) => None,
    };
    let processes = holder.map(|holder| engine.probe().liveness_file().processes(holder)).unwrap_or_default();
    let pids: Vec<String> = processes.iter().map(|process| process.pid.to_string()).collect();
    let named =
        |process: &ProcessRef| format!("{} ({})", process.pid, holder_process::command_line(process.pid));
    let named: Vec<String> = processes.iter().map(named).collect();
    let (who, end) = match named.is_empty() {
        true => ("its holder".to_owned(), "end its processes".to_owned()),
        false => (format!("process {}", named.join(", ")), format!("end it with `kill {}`", pids.join(" "))),
    };
    let id = lease.id;
    let message = format!("{id} was not released: {who} still works under it, and does not stop");
    Report::new(Exit::Refused, "STILL_WORKING", message)
        .with_hint(format!(
            "{end}: then the lease passes on; `lockkeeper locks break {id} --yes` takes it away at once"
        ))
        .with_context("lease", id.to_string())
        .with_context("pids", pids)
}

fn downgrade(context: &Context, args: &DowngradeArgs) -> Result<Exit, Report> {
    let (engine, caller, id) = find(context, &args.which, &args.who)?;
    let weaker = engine.downgrade(id, caller)?.map_err(|error| refusal(&engine, &args.which, error))?;
    print_result(context, &engine, "downgraded", &weaker)
}

fn upgrade(context: &Context, args: &UpgradeArgs) -> Result<Exit, Report> {
    let waiting = wait(args.wait.as_deref())?.unwrap_or(Waiting::No);
    let (engine, caller, id) = find(context, &args.which, &args.who)?;
    let Obtained { acquired, signal } = if waiting == Waiting::No {
        let outcome = engine.upgrade(id, caller, None)?;
        let acquired = outcome.map_err(|error| refusal(&engine, &args.which, error))?.into();
        Obtained { acquired, signal: None }
    } else {
        let settings = WaitSettings { waiting, keep_ticket: false, signals_win: false, quiet: false };
        wait_in_line(context, &engine, &settings, |options, progress| {
            let upgraded = engine.upgrade_and_wait(id, caller, ticket_ttl(context), options, progress)?;
            upgraded.map_err(|error| refusal(&engine, &args.which, error))
        })?
    };
    if let Some(signal) = signal {
        drop(engine);
        return Ok(print::interrupted(signal));
    }
    match acquired {
        Acquired::Granted(grant) => print_result(context, &engine, "upgraded", &grant.lease),
        Acquired::Held(blockers) if waiting == Waiting::No => Err(print::held(&blockers, None)),
        Acquired::Held(blockers) => Err(print::still_held(context, &blockers, waiting)),
        Acquired::Waiting(line) | Acquired::Interrupted(line) => {
            Err(print::still_held(context, &line.blockers, waiting))
        }
        Acquired::Deadlock(links) => Err(print::deadlock(&links)),
        Acquired::Gone => Err(print::ticket_gone()),
    }
}

/// Opens the store, finds the lease, and describes the caller: its token, the owner that a flag or the settings name, and its
/// process with its ancestors.
fn find(
    context: &Context,
    which: &LeaseSelector,
    who: &OwnerArgs,
) -> Result<(Engine, Caller, LeaseId), Report> {
    let (token, owner) = (which.token()?, who.named(context)?);
    let id = which.find(context, owner.clone())?;
    let unknown = || if which.is_ticket() { NotCurrent::NotInLine(id) } else { NotCurrent::Unknown(id) };
    let engine = context.existing_engine()?.ok_or_else(|| Report::from(unknown()))?;
    let caller = engine.caller(token, owner);
    Ok((engine, caller, id))
}

/// Reports a refusal in the words of the caller: a ticket that it named is called a ticket.
fn refusal(engine: &Engine, which: &LeaseSelector, error: NotCurrent) -> Report {
    let NotCurrent::Unknown(id) = error else { return error.into() };
    match engine.claim(id) {
        // It is no lease, so it is a ticket.
        Ok(Some(_)) => {
            let ticket = id.as_ticket();
            Report::new(Exit::Refused, "NOT_CURRENT", format!("{ticket} waits in line, and has no lease yet"))
                .with_hint(format!("`lockkeeper release {ticket}` leaves the line"))
        }
        Ok(None) if which.is_ticket() => NotCurrent::NotInLine(id).into(),
        Ok(None) | Err(_) => error.into(),
    }
}

fn print_result(context: &Context, engine: &Engine, what: &str, lease: &Lease) -> Result<Exit, Report> {
    let message = format!("{what}: {} ({}), token {}", lease.id, print::targets(&lease.claim), lease.token);
    if context.json {
        let lease = print::lease(lease, engine.now()?);
        print::json(&json!({ "status": what, "lease": lease, "message": message }));
    } else {
        print::talk(&message);
    }
    Ok(Exit::Done)
}
