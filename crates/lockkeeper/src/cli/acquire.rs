//! `acquire`: acquires a lease that outlives this command.

use std::path::Path;

use lockkeeper_core::id::{LeaseId, TicketName};
use lockkeeper_core::lease::{AcquireRequest, Grant, Resumer};
use lockkeeper_core::liveness::{Contract, Proof, Voucher};
use lockkeeper_core::record::{Claim, Lease};
use lockkeeper_core::time::Ttl;
use lockkeeper_engine::report::{Exit, Report};
use lockkeeper_engine::{Acquired, Engine};
use lockkeeper_platform::{holder_process, origin};
use serde_json::{Value, json};

use super::args::{LeaseArgs, NO_TIME, Waiting, wait};
use super::context::{Context, Globals};
use super::exec::leases_around;
use super::obtain::{Obtained, WaitSettings, obtain, ticket_ttl, wait as wait_in_line};
use super::{Verb, print, session_guardian};

/// Acquire a lease that outlives this command; does not wait without --wait
#[derive(clap::Args)]
#[command(after_help = "Examples:\n  lease=$(lockkeeper acquire db --reason migration) && ./migrate.sh; \
    lockkeeper release \"$lease\"\n  lockkeeper acquire --path 'src/**' --wait=30s --ticket my-turn --owner claude:S1\n\n\
    The lease is tied to a process that outlives this command (--pid, LOCKKEEPER_PID, CLAUDE_PID, else the nearest \
    ancestor that is not a shell started just for it, nor a subshell), or with --ttl only to its TTL. When the time of --wait is \
    over, nothing is left in line; with --ticket, the ticket keeps its position for a while: call again.")]
pub(super) struct Args {
    #[command(flatten)]
    lease: LeaseArgs,
    /// Wait for the lease, at most this long
    #[arg(long, value_name = "DUR", num_args = 0..=1, require_equals = true, default_missing_value = NO_TIME)]
    wait: Option<String>,
    /// The process that the lease is tied to
    #[arg(long, value_name = "PID", allow_negative_numbers = true)]
    pid: Option<String>,
    /// Continue the wait of this ticket, or give a new ticket this name
    #[arg(long, value_name = "TICKET")]
    ticket: Option<String>,
    /// Print nothing while waiting
    #[arg(long, short)]
    quiet: bool,
}

impl Verb for Args {
    const NAME: &'static str = "acquire";

    fn run(self, globals: &Globals) -> Result<Exit, Report> {
        run(&Context::new(globals)?, &self)
    }
}

fn run(context: &Context, args: &Args) -> Result<Exit, Report> {
    let waiting = wait(args.wait.as_deref())?.unwrap_or(Waiting::No);
    // Without a name no later command can continue with the ticket.
    let keep_ticket = args.ticket.is_some();
    let settings = WaitSettings { waiting, keep_ticket, signals_win: false, quiet: args.quiet };
    let name: Option<TicketName> = args.ticket.as_deref().map(str::parse).transpose()?;
    let nothing_named = args.lease.names.is_empty() && args.lease.paths.is_empty();
    if let Some(name) = &name {
        if let Some(engine) = context.existing_engine()?
            && let Some(id) = known_ticket(context, args, &engine, name)?
        {
            let resumed = resume_as(context, &engine, id, &resumer(context, args, &engine, id)?, &settings)?;
            match resumed.acquired {
                // The ticket was reaped. If the user gave names or paths, the command requests them again.
                Acquired::Gone if !nothing_named && !is_generated(name) => {}
                _ => return print_result(context, engine, resumed, &settings),
            }
        } else if nothing_named || is_generated(name) {
            return Err(Report::new(Exit::Refused, "TICKET_UNKNOWN", format!("there is no ticket `{name}`"))
                .with_hint("its lease was granted, or it expired: acquire again with the names"));
        }
    }
    let resources = args.lease.resources(context)?;
    if !args.quiet {
        args.lease.warn_of_paths(context);
    }
    let (priority, reason) = (args.lease.priority()?, args.lease.reason()?);
    let (owner, named) = context.owner(args.lease.owner()?.as_ref(), "acquire")?;
    let binding = Binding::choose(context, args)?;
    let engine = context.engine_to_lock(args.quiet)?;
    let proof = Proof { origin: engine.probe().origin().clone(), voucher: binding.voucher };
    let claim = Claim {
        owner,
        resources,
        proof,
        contract: binding.contract,
        ttl: binding.ttl,
        reason,
        ticket: name,
        agent: None,
    };
    let request = AcquireRequest { claim, priority, under: leases_around(context), wait: None, join: named };
    let obtained = obtain(context, &engine, request, &settings)?;
    if let Acquired::Granted(grant) = obtained.acquired {
        let (grant, because) = if grant.joined {
            let grant = extend(&engine, grant, binding.ttl)?;
            let because = terms(&grant.lease);
            (grant, because)
        } else {
            (grant, binding.because)
        };
        return print_granted(context, &engine, &grant, Some(&because));
    }
    print_result(context, engine, obtained, &settings)
}

/// What the lease is tied to: a process, or only its TTL.
struct Binding {
    voucher: Voucher,
    contract: Contract,
    ttl: Option<Ttl>,
    because: String,
}

impl Binding {
    fn choose(context: &Context, args: &Args) -> Result<Self, Report> {
        let ttl = args.lease.ttl()?;
        let contract = args.lease.contract.map(Contract::from);
        let pid = args.pid.as_deref().map(pid).transpose()?;
        if let (Some(ttl), None) = (ttl, pid) {
            let because = format!("until its TTL of {} ends", print::span(ttl.get()));
            let contract = contract.unwrap_or(Contract::Lease);
            // The process is recorded, but its death does not end the lease: only the TTL does. Later commands of the same
            // script may release the lease without its token.
            let family = holder_process::choose(None, &|name: &str| std::env::var(name).ok()).ok().flatten();
            let voucher = family.map_or(Voucher::Time, |found| Voucher::TimeFor(found.process));
            return Ok(Self { voucher, contract, ttl: Some(ttl), because });
        }
        let folder = &context.location.state;
        if ttl.is_none() && pid.is_none() && origin::is_older_than_pid_namespace(&folder.join("life")) {
            return Err(nobody_outside_can_judge(folder));
        }
        let variable = |name: &str| std::env::var(name).ok();
        let chosen = holder_process::choose(pid, &variable)?;
        let contract = contract.unwrap_or(Contract::Strict);
        if contract != Contract::Strict && ttl.is_none() {
            return Err(
                Report::usage(format!("the contract `{contract}` needs a TTL")).with_hint("add --ttl DUR")
            );
        }
        let chosen = chosen.ok_or_else(no_process_outlives)?;
        let because = format!("while process {} lives ({})", chosen.process.pid, chosen.reason);
        Ok(Self { voucher: Voucher::Process(chosen.process), contract, ttl, because })
    }
}

/// In a sandbox or container, a lease that is tied to a process would never end for those outside.
fn nobody_outside_can_judge(folder: &Path) -> Report {
    let message = format!(
        "this is a pid namespace of its own, and processes outside of it use {}, too: they cannot see whether a process in \
         here lives, so the lease might never end",
        folder.display()
    );
    Report::new(Exit::Usage, "OTHER_PID_NAMESPACE", message).with_hint(
        "hold by time with --ttl DUR, run the work under `lockkeeper exec NAME -- CMD`, or let a program outside acquire \
         it, such as the MCP tool of an agent",
    )
}

fn no_process_outlives() -> Report {
    let message = "no process here outlives this command, so nothing could hold the lease";
    Report::new(Exit::Usage, "NO_HOLDER_PROCESS", message).with_hint(
        "run the work under it with `lockkeeper exec NAME -- CMD`, name a process with --pid PID, or hold by time \
         alone with --ttl DUR",
    )
}

/// Extends the TTL of a lease that the owner already has to the TTL of this request, if that is longer.
fn extend(engine: &Engine, grant: Grant, wanted: Option<Ttl>) -> Result<Grant, Report> {
    let Grant { lease, joined } = grant;
    let longer = wanted.filter(|wanted| lease.claim.ttl.is_some_and(|ttl| ttl.get() < wanted.get()));
    let lease = match longer {
        Some(ttl) => engine.renew(lease.id, Some(lease.token), Some(ttl))??,
        None => lease,
    };
    Ok(Grant { lease, joined })
}

/// How long a lease is held, as it is in the store.
fn terms(lease: &Lease) -> String {
    let ttl = lease.claim.ttl.map(|ttl| print::span(ttl.get()));
    match (lease.claim.proof.process(), ttl) {
        (Some(process), Some(ttl)) => format!("while process {} lives, with a TTL of {ttl}", process.pid),
        (Some(process), None) => format!("while process {} lives", process.pid),
        (None, Some(ttl)) => format!("until its TTL of {ttl} ends"),
        (None, None) => "until it is released".to_owned(),
    }
}

fn pid(text: &str) -> Result<u32, Report> {
    text.parse().map_err(|_| {
        Report::usage(format!("`{text}` is not a process id"))
            .with_hint("give a process id between 1 and 4194304, such as $$")
    })
}

/// `T42` is an id that the store gave. Anything else is a name that a user chose.
fn is_generated(name: &TicketName) -> bool {
    name.as_str()
        .strip_prefix('T')
        .is_some_and(|rest| !rest.is_empty() && rest.bytes().all(|b| b.is_ascii_digit()))
}

/// Finds the ticket of this name. Each owner has ticket names of its own, so two owners may use the same name.
fn known_ticket(
    context: &Context,
    args: &Args,
    engine: &Engine,
    name: &TicketName,
) -> Result<Option<LeaseId>, Report> {
    let own = context.named_owner(args.lease.owner()?.as_ref());
    let found = if is_generated(name) {
        let id: LeaseId = name.as_str().parse()?;
        engine.claim(id)?.map(|claim| (id, claim)).into_iter().collect()
    } else {
        engine.find_tickets(name, &engine.caller(None, own.clone()))?
    };
    let Some((id, claim)) = found.first() else { return Ok(None) };
    if found.iter().any(|(_, other)| other.owner != claim.owner) {
        let message = format!("several owners have a ticket `{name}`");
        return Err(
            Report::new(Exit::Refused, "TICKET_AMBIGUOUS", message).with_hint("say whose it is with --owner")
        );
    }
    let of_another = own.is_some_and(|own| own != claim.owner);
    // The process of a resident claim holds or waits by itself. Two processes would believe that the lease is theirs.
    let of_a_resident = matches!(claim.proof.voucher, Voucher::KernelLock { .. });
    if of_another || of_a_resident {
        let message = format!("the ticket `{name}` belongs to {}", claim.owner);
        return Err(Report::new(Exit::Refused, "TICKET_OF_ANOTHER", message)
            .with_hint("wait with a ticket of your own: leave --ticket out, or choose another name"));
    }
    let something_named = !args.lease.names.is_empty() || !args.lease.paths.is_empty();
    if something_named && !claim.satisfies(&args.lease.resources(context)?) {
        let message = format!("the ticket `{name}` is for {}", print::targets(claim));
        return Err(Report::new(Exit::Usage, "TICKET_FOR_OTHERS", message).with_hint(
            "leave the names out to continue with this ticket, or choose another name for the ticket",
        ));
    }
    Ok(Some(*id))
}

/// The process that continues the wait. If the claim is tied to a process, the lease is tied to this one.
fn resumer(context: &Context, args: &Args, engine: &Engine, id: LeaseId) -> Result<Resumer, Report> {
    let pid = args.pid.as_deref().map(pid).transpose()?;
    let caller = engine.caller(None, context.named_owner(args.lease.owner()?.as_ref()));
    let chosen = holder_process::choose(pid, &|name: &str| std::env::var(name).ok())?;
    let needs_process =
        engine.claim(id)?.is_some_and(|claim| matches!(claim.proof.voucher, Voucher::Process(_)));
    if needs_process && chosen.is_none() {
        return Err(no_process_outlives());
    }
    let made_for = chosen.map(|chosen| (engine.probe().origin().clone(), chosen.process));
    Ok(Resumer { caller, made_for })
}

/// Continues the wait of an earlier command with the same ticket.
fn resume_as(
    context: &Context,
    engine: &Engine,
    id: LeaseId,
    resumer: &Resumer,
    settings: &WaitSettings,
) -> Result<Obtained, Report> {
    if settings.waiting == Waiting::No {
        let acquired = engine.resume_now(id, resumer, None)?.into();
        return Ok(Obtained { acquired, signal: None });
    }
    wait_in_line(context, engine, settings, |options, progress| {
        Ok(engine.resume_as(id, resumer, ticket_ttl(context), options, progress)?)
    })
}

/// Waits with a ticket of this owner that stands in line already.
pub(super) fn resume(
    context: &Context,
    engine: &Engine,
    id: LeaseId,
    settings: &WaitSettings,
) -> Result<Obtained, Report> {
    if settings.waiting == Waiting::No {
        return Ok(Obtained { acquired: engine.check_ticket(id, None)?.into(), signal: None });
    }
    wait_in_line(context, engine, settings, |options, progress| {
        Ok(engine.resume(id, ticket_ttl(context), options, progress)?)
    })
}

fn print_result(
    context: &Context,
    engine: Engine,
    obtained: Obtained,
    settings: &WaitSettings,
) -> Result<Exit, Report> {
    match obtained.acquired {
        Acquired::Granted(grant) => print_granted(context, &engine, &grant, None),
        Acquired::Held(blockers) => {
            let report = match settings.waiting {
                Waiting::No => print::held_here(context, &blockers, None),
                Waiting::For(_) | Waiting::Forever => print::still_held(context, &blockers, settings.waiting),
            };
            blocked(context, &engine, &blockers, report, None)
        }
        Acquired::Waiting(waiting) | Acquired::Interrupted(waiting) => {
            let name = waiting.ticket.claim.ticket.as_ref().map(|name| name.as_str().to_owned());
            let ticket = name.unwrap_or_else(|| waiting.ticket.id.as_ticket());
            let ticket = settings.keep_ticket.then_some(ticket.as_str());
            let report = match ticket {
                Some(_) => print::held_here(context, &waiting.blockers, ticket),
                None => print::still_held(context, &waiting.blockers, settings.waiting),
            };
            let Some(signal) = obtained.signal else {
                return blocked(context, &engine, &waiting.blockers, report, ticket);
            };
            if context.json {
                blocked(context, &engine, &waiting.blockers, report, ticket)?;
            } else if let (Some(_), Some(hint)) = (ticket, report.hint()) {
                print::talk(hint);
            }
            // This process may end by the signal.
            drop(engine);
            Ok(print::interrupted(signal))
        }
        Acquired::Deadlock(links) => Err(print::deadlock(&links)),
        Acquired::Gone => Err(print::ticket_gone()),
    }
}

fn print_granted(
    context: &Context,
    engine: &Engine,
    grant: &Grant,
    because: Option<&str>,
) -> Result<Exit, Report> {
    let lease = &grant.lease;
    if !grant.joined {
        session_guardian::keep_for_its_process(context, lease).inspect_err(|_| {
            // Nobody would renew it.
            let _ = engine.release(lease.id, Some(lease.token));
        })?;
    }
    let what = if grant.joined { "already yours" } else { "acquired" };
    let held = because.map_or(String::new(), |because| format!(", held {because}"));
    let message =
        format!("{what}: {} as {} (token {}){held}", print::targets(&lease.claim), lease.id, lease.token);
    if context.json {
        print::json(&json!({
            "status": "acquired", "lease": print::lease(lease, engine.now()?), "holders": [], "witness": null,
            "ticket": lease.claim.ticket.as_ref().map(|name| name.as_str()), "message": message, "hint": null,
        }));
    } else {
        print::data(&lease.id.to_string());
    }
    let (id, joined) = (lease.id, grant.joined);
    let kept =
        if joined { format!("{id} was yours before, and stays") } else { format!("{id} was released") };
    print::check_written(&kept).inspect_err(|_| {
        // The caller does not know of it.
        let _ = (!joined).then(|| engine.release(id, Some(lease.token)));
    })?;
    if !context.json {
        print::talk(&message);
    }
    Ok(Exit::Done)
}

fn blocked(
    context: &Context,
    engine: &Engine,
    blockers: &[lockkeeper_core::waiting::Blocker],
    report: Report,
    ticket: Option<&str>,
) -> Result<Exit, Report> {
    if !context.json {
        return Err(report);
    }
    let now = engine.now()?;
    let holders: Vec<Value> = blockers
        .iter()
        .flat_map(|blocker| &blocker.leases)
        .map(|found| print::lease(&found.record, now))
        .collect();
    let witness =
        blockers.iter().flat_map(|blocker| &blocker.leases).map(|found| found.witness.clone()).next();
    print::json(&json!({
        "status": "blocked", "lease": null, "holders": holders, "witness": witness, "ticket": ticket,
        "message": report.to_string(), "hint": report.hint(),
    }));
    Ok(Exit::Refused)
}
