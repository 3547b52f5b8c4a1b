//! `acquire`: acquires a lease that outlives this command.

use lockkeeper_core::id::{LeaseId, TicketName};
use lockkeeper_core::lease::{Request, WaitTerms};
use lockkeeper_core::liveness::{Contract, Proof, Voucher};
use lockkeeper_core::record::Claim;
use lockkeeper_core::time::Ttl;
use lockkeeper_engine::report::{Exit, Report};
use lockkeeper_engine::{Acquired, Engine};
use lockkeeper_platform::holder_process;
use serde_json::{Value, json};

use super::args::{LeaseArgs, Waiting, wait};
use super::context::{Context, Globals};
use super::exec::leases_around;
use super::obtain::{WaitSettings, obtain, reason, receive_signals, ticket_ttl, wait as wait_in_line};
use super::{Verb, print};

/// Acquire a lease that outlives this command; does not wait without --wait
#[derive(clap::Args)]
#[command(after_help = "Examples:\n  lease=$(lockkeeper acquire db --reason migration) && ./migrate.sh; \
    lockkeeper release \"$lease\"\n  lockkeeper acquire --path 'src/**' --wait=30s --ticket my-turn --owner claude:S1\n\n\
    The lease is tied to a process that outlives this command (--pid, LOCKKEEPER_PID, CLAUDE_PID, else the nearest \
    ancestor that is not a shell started just for it), or with --ttl only to its TTL. When the time of --wait is \
    over, the ticket keeps its position for a while: call again with --ticket.")]
pub(super) struct Args {
    #[command(flatten)]
    lease: LeaseArgs,
    /// Wait for the lease, at most this long
    #[arg(long, value_name = "DUR", num_args = 0..=1, require_equals = true, default_missing_value = "")]
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
    let settings = WaitSettings { waiting, keep_ticket: true, signals_win: false, quiet: args.quiet };
    let name: Option<TicketName> = args.ticket.as_deref().map(str::parse).transpose()?;
    let nothing_named = args.lease.names.is_empty() && args.lease.paths.is_empty();
    if let Some(name) = &name {
        if let Some(engine) = context.existing_engine()?
            && let Some(id) = known_ticket(context, args, &engine, name)?
        {
            match resume(context, &engine, id, &settings)? {
                // The ticket was reaped. If the user gave names or paths, the command requests them again.
                Acquired::Gone if !nothing_named && !is_generated(name) => {}
                acquired => return print_result(context, &engine, acquired, None),
            }
        } else if nothing_named || is_generated(name) {
            return Err(Report::new(Exit::Refused, "TICKET_UNKNOWN", format!("there is no ticket `{name}`"))
                .with_hint("its lease was granted, or it expired: acquire again with the names"));
        }
    }
    let resources = args.lease.resources(context)?;
    let (priority, reason) = (args.lease.priority()?, args.lease.reason()?);
    let (owner, named) = context.owner(args.lease.owner()?.as_ref(), "acquire")?;
    let binding = Binding::choose(context, args)?;
    let engine = context.engine()?;
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
    let request = Request { claim, priority, under: leases_around(context), wait: None, join: named };
    let acquired = obtain(context, &engine, request, &settings)?.acquired;
    print_result(context, &engine, acquired, Some(&binding.because))
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
            return Ok(Self { voucher: Voucher::Time, contract, ttl: Some(ttl), because });
        }
        let variable = |name: &str| std::env::var(name).ok();
        let chosen = holder_process::choose(pid, &variable)?;
        let contract = contract.unwrap_or(Contract::Strict);
        if contract != Contract::Strict && ttl.is_none() {
            return Err(
                Report::usage(format!("the contract `{contract}` needs a TTL")).with_hint("add --ttl DUR")
            );
        }
        Ok(match chosen {
            Some(chosen) => {
                let because = format!("while process {} lives ({})", chosen.process.pid, chosen.reason);
                Self { voucher: Voucher::Process(chosen.process), contract, ttl, because }
            }
            None => {
                let ttl = context.config.ttl("ttl");
                let because = "for the default TTL, since no process here outlives this command".to_owned();
                Self { voucher: Voucher::Time, contract: Contract::Lease, ttl, because }
            }
        })
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
        let mut found = engine.find_tickets(name)?;
        found.retain(|(_, claim)| own.as_ref().is_none_or(|own| claim.owner == *own));
        found
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

/// Continues the wait of an earlier command.
pub(super) fn resume(
    context: &Context,
    engine: &Engine,
    id: LeaseId,
    settings: &WaitSettings,
) -> Result<Acquired, Report> {
    let signals = receive_signals()?;
    let waker = if settings.waiting == Waiting::No { None } else { Some(engine.store().waker()?) };
    let terms = waker.as_ref().map(|waker| WaitTerms { waker: Some(waker.id()), stays: ticket_ttl(context) });
    let outcome = engine.check_ticket(id, terms)?;
    let sleep_on = waker.as_ref().map(|waker| (&**waker, &signals));
    Ok(wait_in_line(context, engine, outcome, sleep_on, settings)?.acquired)
}

fn print_result(
    context: &Context,
    engine: &Engine,
    acquired: Acquired,
    because: Option<&str>,
) -> Result<Exit, Report> {
    match acquired {
        Acquired::Granted(grant) => {
            let lease = &grant.lease;
            let what = if grant.joined { "already yours" } else { "acquired" };
            let held = because.map_or(String::new(), |because| format!(", held {because}"));
            let message = format!(
                "{what}: {} as {} (token {}){held}",
                print::targets(&lease.claim),
                lease.id,
                lease.token
            );
            if context.json {
                print::json(&json!({
                    "status": "acquired", "lease": print::lease(lease, engine.now()?), "holders": [], "witness": null,
                    "ticket": lease.claim.ticket.as_ref().map(|name| name.as_str()), "message": message, "hint": null,
                }));
            } else {
                print::data(&lease.id.to_string());
                print::talk(&message);
            }
            Ok(Exit::Done)
        }
        Acquired::Held(blockers) => blocked(context, engine, &blockers, None),
        Acquired::Waiting(waiting) | Acquired::Interrupted(waiting) => {
            let ticket = waiting.ticket.claim.ticket.as_ref().map(|name| name.as_str().to_owned());
            let ticket = ticket.unwrap_or_else(|| waiting.ticket.id.as_ticket());
            blocked(context, engine, &waiting.blockers, Some(&ticket))
        }
        Acquired::Deadlock(links) => Err(print::deadlock(&links)),
        Acquired::Gone => Err(print::ticket_gone()),
    }
}

fn blocked(
    context: &Context,
    engine: &Engine,
    blockers: &[lockkeeper_core::waiting::Blocker],
    ticket: Option<&str>,
) -> Result<Exit, Report> {
    let report = print::held(blockers, ticket);
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
        "message": format!("waiting for {}", reason(blockers)), "hint": report.hint(),
    }));
    Ok(Exit::Refused)
}
