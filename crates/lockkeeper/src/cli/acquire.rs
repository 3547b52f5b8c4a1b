//! `acquire`: take a lease and leave it.

use lockkeeper_core::id::{LeaseId, TicketName};
use lockkeeper_core::lease::{Outcome, Request, WaitTerms};
use lockkeeper_core::liveness::{Contract, Proof, Voucher};
use lockkeeper_core::record::Claim;
use lockkeeper_core::time::Ttl;
use lockkeeper_engine::Engine;
use lockkeeper_engine::report::{Exit, Report};
use lockkeeper_platform::holder_process;
use serde_json::{Value, json};

use super::args::{Waiting, Wanted, wait};
use super::context::{Context, Globals};
use super::exec::leases_around;
use super::obtain::{Manner, Obtained, obtain, reason, receive_signals, stays};
use super::{Verb, print};

/// Take a lease and leave it; does not wait unless told
#[derive(clap::Args)]
#[command(after_help = "Examples:\n  lease=$(lockkeeper acquire db --reason migration) && ./migrate.sh; \
    lockkeeper release \"$lease\"\n  lockkeeper acquire --path 'src/**' --wait=30s --ticket my-turn --owner claude:S1\n\n\
    The lease is tied to a process that outlives this command (--pid, LOCKKEEPER_PID, CLAUDE_PID, else the nearest \
    ancestor that is not a shell started just for it), or with --ttl to its time alone. When --wait runs out, the \
    ticket keeps its place for a while: call again with --ticket.")]
pub(super) struct Args {
    #[command(flatten)]
    wanted: Wanted,
    /// Wait for it, at most this long
    #[arg(long, value_name = "DUR", num_args = 0..=1, require_equals = true, default_missing_value = "")]
    wait: Option<String>,
    /// The process that the lease is tied to
    #[arg(long, value_name = "PID", allow_negative_numbers = true)]
    pid: Option<String>,
    /// Come back to this ticket, or give the wait this name
    #[arg(long, value_name = "TICKET")]
    ticket: Option<String>,
    /// Say nothing while waiting
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
    let manner = Manner { waiting, keep_ticket: true, signals_win: false, quiet: args.quiet };
    let name: Option<TicketName> = args.ticket.as_deref().map(str::parse).transpose()?;
    let nothing_named = args.wanted.names.is_empty() && args.wanted.paths.is_empty();
    if let Some(name) = &name {
        if let Some(keeper) = context.existing_keeper()?
            && let Some(id) = known_ticket(context, args, keeper.engine(), name)?
        {
            match resume(context, keeper.engine(), id, &manner)? {
                // Its time was over; who says what is wanted gets in line again.
                Obtained::Gone if !nothing_named && !is_generated(name) => {}
                obtained => return answer(context, keeper.engine(), obtained, None),
            }
        } else if nothing_named || is_generated(name) {
            return Err(Report::new(Exit::Refused, "TICKET_UNKNOWN", format!("there is no ticket `{name}`"))
                .with_hint("it was served, or waited too long: ask again with the names"));
        }
    }
    let resources = args.wanted.resources(context)?;
    let (priority, reason) = (args.wanted.priority()?, args.wanted.reason()?);
    let (owner, named) = context.owner(args.wanted.owner()?.as_ref(), "acquire")?;
    let stand = Stand::choose(context, args)?;
    let keeper = context.keeper()?;
    let proof = Proof { origin: keeper.engine().senses().origin().clone(), voucher: stand.voucher };
    let claim =
        Claim { owner, resources, proof, contract: stand.contract, ttl: stand.ttl, reason, ticket: name };
    let request = Request { claim, priority, under: leases_around(context), wait: None, join: named };
    let obtained = obtain(context, keeper.engine(), request, &manner)?;
    answer(context, keeper.engine(), obtained, Some(&stand.because))
}

/// Who stands for the lease, and why.
struct Stand {
    voucher: Voucher,
    contract: Contract,
    ttl: Option<Ttl>,
    because: String,
}

impl Stand {
    fn choose(context: &Context, args: &Args) -> Result<Self, Report> {
        let ttl = args.wanted.ttl()?;
        let contract = args.wanted.contract.map(Contract::from);
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
        Report::usage(format!("`{text}` is not the number of a process"))
            .with_hint("give a process number between 1 and 4194304, such as $$")
    })
}

/// `T42` is a number that the store gave; anything else is a name that a user chose.
fn is_generated(name: &TicketName) -> bool {
    name.as_str()
        .strip_prefix('T')
        .is_some_and(|rest| !rest.is_empty() && rest.bytes().all(|b| b.is_ascii_digit()))
}

/// Finds the ticket that is meant. The names that users choose belong to their owners: two may use the same.
fn known_ticket(
    context: &Context,
    args: &Args,
    engine: &Engine,
    name: &TicketName,
) -> Result<Option<LeaseId>, Report> {
    let own = context.named_owner(args.wanted.owner()?.as_ref());
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
    // A process that sleeps in line, or holds, by itself: two would believe that the lease is theirs.
    let of_a_resident = matches!(claim.proof.voucher, Voucher::KernelLock { .. });
    if of_another || of_a_resident {
        let message = format!("the ticket `{name}` belongs to {}", claim.owner);
        return Err(Report::new(Exit::Refused, "TICKET_OF_ANOTHER", message)
            .with_hint("wait with a ticket of your own: leave --ticket out, or choose another name"));
    }
    let something_named = !args.wanted.names.is_empty() || !args.wanted.paths.is_empty();
    if something_named && !claim.satisfies(&args.wanted.resources(context)?) {
        let message = format!("the ticket `{name}` is for {}", print::targets(claim));
        return Err(Report::new(Exit::Usage, "TICKET_FOR_OTHERS", message)
            .with_hint("leave the names out to go on with it, or choose another name for the ticket"));
    }
    Ok(Some(*id))
}

/// Goes on with a ticket where an earlier command left it.
fn resume(context: &Context, engine: &Engine, id: LeaseId, manner: &Manner) -> Result<Obtained, Report> {
    let signals = receive_signals()?;
    let bell = if manner.waiting == Waiting::No { None } else { Some(engine.store().bell()?) };
    let terms = bell.as_ref().map(|bell| WaitTerms { bell: Some(bell.id()), stays: stays(context) });
    Ok(match (engine.attend(id, terms)?, &bell) {
        (Outcome::Granted(grant), _) => Obtained::Granted(grant),
        (Outcome::Waiting(waiting), Some(bell)) => {
            super::obtain::wait(context, engine, waiting, (&**bell, &signals), manner)?
        }
        (Outcome::Waiting(waiting), None) => Obtained::StillInLine(waiting),
        (Outcome::Held(_) | Outcome::Deadlock(_) | Outcome::Gone, _) => Obtained::Gone,
    })
}

fn answer(
    context: &Context,
    engine: &Engine,
    obtained: Obtained,
    because: Option<&str>,
) -> Result<Exit, Report> {
    match obtained {
        Obtained::Granted(grant) => {
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
        Obtained::Held(jams) => blocked(context, engine, &jams, None),
        Obtained::StillInLine(waiting) | Obtained::Interrupted(waiting, _) => {
            let ticket = waiting.ticket.claim.ticket.as_ref().map(|name| name.as_str().to_owned());
            let ticket = ticket.unwrap_or_else(|| waiting.ticket.id.as_ticket());
            blocked(context, engine, &waiting.jams, Some(&ticket))
        }
        Obtained::Deadlock(links) => Err(print::deadlock(&links)),
        Obtained::Gone => Err(print::ticket_gone()),
    }
}

fn blocked(
    context: &Context,
    engine: &Engine,
    jams: &[lockkeeper_core::waiting::Jam],
    ticket: Option<&str>,
) -> Result<Exit, Report> {
    let report = print::held(jams, ticket);
    if !context.json {
        return Err(report);
    }
    let now = engine.now()?;
    let holders: Vec<Value> =
        jams.iter().flat_map(|jam| &jam.leases).map(|found| print::lease(&found.record, now)).collect();
    let witness = jams.iter().flat_map(|jam| &jam.leases).map(|found| found.witness.clone()).next();
    print::json(&json!({
        "status": "blocked", "lease": null, "holders": holders, "witness": witness, "ticket": ticket,
        "message": format!("waiting for {}", reason(jams)), "hint": report.hint(),
    }));
    Ok(Exit::Refused)
}
