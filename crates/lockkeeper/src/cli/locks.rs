//! `locks`: lists holders and waiters, finds deadlocks, reaps dead records, breaks leases.

use std::time::Duration;

use clap::Subcommand;
use lockkeeper_core::alert::Alert;
use lockkeeper_core::id::LeaseId;
use lockkeeper_core::liveness::{Proof, Verdict};
use lockkeeper_engine::foreign_locks::{ForeignLocks, ForeignPlaces};
use lockkeeper_engine::overview::Locks;
use lockkeeper_engine::report::{Exit, Report};
use lockkeeper_engine::views::{AlertView, LeaseView, TicketView};
use lockkeeper_engine::{Broken, Listing, OwnerNames};
use lockkeeper_formats::group::Folders;
use serde_json::{Value, json};

use super::args::find_lease;
use super::context::{Context, Globals};
use super::obtain::{grace, reason};
use super::watch::Frame;
use super::{Verb, lockfiles, print, table, task, watch};

/// Show holders and waiters; find deadlocks, clean up, break leases
#[derive(clap::Args)]
#[command(
    args_conflicts_with_subcommands = true,
    after_help = "Examples:\n  lockkeeper locks\n  lockkeeper locks --watch\n  lockkeeper locks break L42 --yes"
)]
pub(super) struct Args {
    /// Update the list live, until Ctrl-C
    #[arg(long, short)]
    watch: bool,
    /// Only leases and tickets of this owner, or of all owners below it: `claude` has claude:S1
    #[arg(long, value_name = "OWNER", conflicts_with = "format")]
    owner: Option<String>,
    #[command(flatten)]
    files: lockfiles::FormatArgs,
    #[command(subcommand)]
    command: Option<Command>,
}

#[derive(Subcommand)]
enum Command {
    /// Find deadlocks; exit 75 if there are any
    CheckDeadlock,
    /// Remove leases and tickets of dead holders
    Cleanup,
    /// Take a lease from its holder; the holder is informed first and may stop its work
    Break(BreakArgs),
    /// Break every lease
    ForceReleaseAll(ForceArgs),
}

#[derive(clap::Args)]
struct BreakArgs {
    /// The lease, such as L42, or a name that it holds, such as db
    #[arg(value_name = "LEASE")]
    lease: String,
    #[command(flatten)]
    force: ForceArgs,
}

#[derive(clap::Args)]
struct ForceArgs {
    /// Yes, really
    #[arg(long)]
    yes: bool,
}

impl Verb for Args {
    const NAME: &'static str = "locks";

    fn run(self, globals: &Globals) -> Result<Exit, Report> {
        run(&Context::new(globals)?, &self)
    }
}

fn run(context: &Context, args: &Args) -> Result<Exit, Report> {
    if let Some(format) = args.files.format {
        return lockfiles::run(context, format, &args.files);
    }
    match &args.command {
        None if args.watch => watch::run(context, || {
            Snapshot::read(context).map(|snapshot| snapshot.only_of(args.owner.as_deref()).frame(context))
        }),
        None => show(context, args.owner.as_deref()),
        Some(Command::CheckDeadlock) => check_deadlock(context),
        Some(Command::Cleanup) => clean_up(context),
        Some(Command::Break(args)) => {
            let id = find_lease(context, &args.lease, |_| None)?;
            confirm(&args.force, &format!("break {}", args.lease))?;
            break_one(context, id)
        }
        Some(Command::ForceReleaseAll(args)) => {
            confirm(args, "force-release-all")?;
            break_all(context)
        }
    }
}

/// A listing and its alerts.
pub(super) struct Snapshot {
    pub(super) listing: Listing,
    alerts: Vec<Alert>,
    foreign: ForeignLocks,
    /// What people see instead of owners that nobody chose.
    names: OwnerNames,
    /// The pid namespace of this process, if there is a store.
    pid_namespace: Option<u64>,
}

impl Snapshot {
    /// Reads the store. Empty if there is no store yet.
    pub(super) fn read(context: &Context) -> Result<Self, Report> {
        let (swarm, groups) = (task::swarm()?, Folders::from_variables(&|name| std::env::var_os(name)));
        let places = ForeignPlaces { root: &context.location.root, swarm: &swarm, groups: &groups };
        let engine = context.engine_to_read()?;
        let Locks { listing, foreign, alerts } =
            Locks::read(engine.as_ref(), &context.location.state, places)?;
        let pid_namespace = engine.map(|engine| engine.probe().origin().pid_namespace);
        // Programs get the owners themselves.
        let names = if context.json {
            OwnerNames::default()
        } else {
            OwnerNames::of(&listing, &context.location.root)
        };
        Ok(Self { listing, alerts, foreign, names, pid_namespace })
    }

    /// Leaves only leases and tickets of this owner and of those below it. Alerts are about all, so they stay.
    pub(super) fn only_of(mut self, owner: Option<&str>) -> Self {
        if let Some(owner) = owner {
            let is_below = |one: &str| {
                one.strip_prefix(owner).is_some_and(|rest| rest.is_empty() || rest.starts_with(':'))
            };
            self.listing.holders.retain(|holder| is_below(holder.lease.claim.owner.as_str()));
            self.listing.waiters.retain(|waiter| is_below(waiter.ticket.claim.owner.as_str()));
            self.foreign.locks.retain(|lock| is_below(&lock.holder));
            self.foreign.waiters.clear();
        }
        self
    }

    /// The listing for `--watch`.
    fn frame(&self, context: &Context) -> Frame {
        let listing = &self.listing;
        let leases = listing
            .holders
            .iter()
            .map(|holder| format!("{}/{:?}/{:?}", holder.lease.id, holder.lease.token, holder.verdict));
        let waiters = listing
            .waiters
            .iter()
            .map(|waiter| format!("{}/{}", waiter.ticket.id.as_ticket(), waiter.position));
        let key = format!("{}{:?}", context.json, leases.chain(waiters).collect::<Vec<_>>());
        let output = if context.json { as_json(self) } else { as_text(context, self) };
        Frame { output, key }
    }

    /// The process of a holder. The number of another pid namespace comes with that namespace, as `/proc/PID/ns/pid` shows it.
    fn process(&self, proof: &Proof) -> String {
        let namespace = proof.origin.pid_namespace;
        match proof.process() {
            None => "-".to_owned(),
            Some(process) if self.pid_namespace == Some(namespace) => process.pid.to_string(),
            Some(process) => format!("{} in pid:[{namespace}]", process.pid),
        }
    }
}

fn show(context: &Context, owner: Option<&str>) -> Result<Exit, Report> {
    let snapshot = Snapshot::read(context)?.only_of(owner);
    if context.json {
        print::json_text(&as_json(&snapshot));
        return Ok(Exit::Done);
    }
    let listing = &snapshot.listing;
    let is_empty = listing.holders.is_empty() && listing.waiters.is_empty() && snapshot.alerts.is_empty();
    match owner.filter(|_| is_empty) {
        Some(owner) => print::talk(&format!("{} holds nothing and waits for nothing", table::plain(owner))),
        None => print::out(&table::fit_terminal(&as_text(context, &snapshot))),
    }
    Ok(Exit::Done)
}

/// The listing as JSON. It is written record by record, since there may be many.
fn as_json(snapshot: &Snapshot) -> String {
    let listing = &snapshot.listing;
    let leases = listing.holders.iter().map(|holder| LeaseView::with_state(holder, listing.now));
    let waiters = listing.waiters.iter().map(|waiter| TicketView::listed(waiter, listing.now));
    let alerts = snapshot.alerts.iter().map(AlertView::new);
    let (leases, waiters) = (print::json_list(leases), print::json_list(waiters));
    let foreign = print::json_list(snapshot.foreign.locks.iter());
    let foreign_waiters = print::json_list(snapshot.foreign.waiters.iter());
    let alerts = print::json_list(alerts);
    format!(
        r#"{{"leases":{leases},"waiters":{waiters},"alerts":{alerts},"foreign":{foreign},"foreign_waiters":{foreign_waiters}}}"#
    )
}

/// The listing as text.
fn as_text(context: &Context, snapshot: &Snapshot) -> String {
    let listing = &snapshot.listing;
    let foreign = foreign_as_text(&snapshot.foreign);
    if listing.holders.is_empty()
        && listing.waiters.is_empty()
        && foreign.is_empty()
        && snapshot.alerts.is_empty()
    {
        return "nothing is held; acquire a lease with `lockkeeper exec NAME -- CMD` or `lockkeeper acquire NAME`\n".to_owned();
    }
    let held = listing.holders.iter().map(|holder| {
        let lease = &holder.lease;
        let ends =
            lease.expires_at().map_or_else(|| "-".to_owned(), |end| print::span(end.since(listing.now)));
        let process = snapshot.process(&lease.claim.proof);
        vec![
            lease.id.to_string(),
            table::plain(&snapshot.names.in_text(lease.claim.owner.as_str())),
            resources(&lease.claim),
            print::span(listing.now.since(lease.acquired_at)),
            ends,
            process,
            print::verdict(holder.verdict),
            lease.token.to_string(),
            table::plain(lease.claim.reason.as_deref().unwrap_or("")),
        ]
    });
    let heading = ["LEASE", "OWNER", "HOLDS", "FOR", "ENDS IN", "PID", "STATE", "TOKEN", "REASON"];
    let mut text = String::new();
    if !listing.holders.is_empty() || !listing.waiters.is_empty() {
        text = table::list(&heading, &held.collect::<Vec<_>>());
    }
    if !listing.waiters.is_empty() {
        let waiting = listing.waiters.iter().map(|waiter| {
            let because = if waiter.verdict.is_free() {
                "gone: it will be skipped".to_owned()
            } else {
                reason(&waiter.blockers)
            };
            vec![
                waiter.ticket.id.as_ticket(),
                table::plain(&snapshot.names.in_text(waiter.ticket.claim.owner.as_str())),
                resources(&waiter.ticket.claim),
                print::span(listing.now.since(waiter.ticket.enqueued_at)),
                waiter.position.to_string(),
                waiter.ticket.priority.to_string(),
                table::plain(&snapshot.names.in_text(&because)),
            ]
        });
        let heading = ["TICKET", "OWNER", "WANTS", "FOR", "PLACE", "PRIORITY", "WAITS FOR"];
        text.push('\n');
        text.push_str(&table::list(&heading, &waiting.collect::<Vec<_>>()));
    }
    let dead =
        listing.holders.iter().filter(|holder| matches!(holder.verdict, Verdict::Dead(_) | Verdict::Expired));
    match dead.count() {
        0 => {}
        count => text.push_str(&format!(
            "\n{count} dead or expired: the next request gets them; `lockkeeper locks cleanup` removes them\n"
        )),
    }
    if !foreign.is_empty() {
        text.push_str(if text.is_empty() { "" } else { "\n" });
        text.push_str(&foreign);
    }
    for alert in &snapshot.alerts {
        text.push_str(&format!("\n{}\n", print::alert(context, alert)));
    }
    text
}

/// The locks of other formats and their waiters as a table; empty if there are none.
fn foreign_as_text(foreign: &ForeignLocks) -> String {
    let locks = foreign.locks.iter().map(|lock| {
        let holder = if lock.holder.is_empty() { "-" } else { &lock.holder };
        let (subject, holder) = (table::plain(&lock.subject), table::plain(holder));
        vec![lock.format.to_owned(), subject, holder, lock.state.to_owned(), table::plain(&lock.reason)]
    });
    let waiters = foreign.waiters.iter().map(|waiter| {
        let process = format!("pid {} {}", waiter.pid, table::plain(&waiter.command));
        let reason = format!("for at most {}", print::span(Duration::from_secs(waiter.waits_seconds)));
        vec![waiter.format.to_owned(), table::plain(&waiter.subject), process, "waits".to_owned(), reason]
    });
    let rows: Vec<Vec<String>> = locks.chain(waiters).collect();
    if rows.is_empty() {
        return String::new();
    }
    table::list(&["FORMAT", "LOCK", "HOLDER", "STATE", "REASON"], &rows)
}

pub(super) fn resources(claim: &lockkeeper_core::record::Claim) -> String {
    let parts = claim.resources.iter().map(|resource| match resource.mode {
        lockkeeper_core::resource::Mode::Exclusive => resource.target.to_string(),
        mode => format!("{} ({mode})", resource.target),
    });
    parts.collect::<Vec<_>>().join(", ")
}

fn check_deadlock(context: &Context) -> Result<Exit, Report> {
    let cycles = match context.engine_to_read()? {
        Some(engine) => engine.cycles()?,
        None => Vec::new(),
    };
    if let Some(first) = cycles.first() {
        return Err(print::deadlock(first).with_context("cycles", cycles.len()));
    }
    if context.json {
        print::json(&json!({ "deadlocks": [] }));
    } else {
        print::talk("no deadlock: every wait can end");
    }
    Ok(Exit::Done)
}

fn clean_up(context: &Context) -> Result<Exit, Report> {
    let reaped = match context.existing_engine()? {
        Some(engine) => engine.clean_up()?,
        None => Vec::new(),
    };
    if context.json {
        let cleaned: Vec<Value> = reaped
            .iter()
            .map(|gone| {
                let id = if gone.held { gone.id.to_string() } else { gone.id.as_ticket() };
                let state = lockkeeper_engine::evidence::verdict_word(gone.verdict);
                json!({ "id": id, "owner": gone.owner.as_str(), "state": state })
            })
            .collect();
        print::json(&json!({ "cleaned": cleaned }));
        return Ok(Exit::Done);
    }
    for gone in &reaped {
        let id = if gone.held { gone.id.to_string() } else { gone.id.as_ticket() };
        let why = match gone.verdict {
            Verdict::Dead(death) => death.to_string(),
            verdict => lockkeeper_engine::evidence::verdict_word(verdict).to_owned(),
        };
        print::data(&format!("{id} of {}: {why}", table::plain(gone.owner.as_str())));
    }
    print::talk(&format!("{} cleaned up", reaped.len()));
    Ok(Exit::Done)
}

fn confirm(force: &ForceArgs, what: &str) -> Result<(), Report> {
    if force.yes {
        return Ok(());
    }
    Err(Report::usage("this takes a lease from a holder that may still work")
        .with_hint(format!("if you are sure: lockkeeper locks {what} --yes")))
}

fn break_one(context: &Context, id: LeaseId) -> Result<Exit, Report> {
    let unknown = || Report::from(lockkeeper_core::lease::NotCurrent::Unknown(id));
    let engine = context.existing_engine()?.ok_or_else(unknown)?;
    if let Some(ticket) = engine.remove_ticket(id)? {
        let (id, owner) = (id.as_ticket(), ticket.claim.owner.as_str());
        if context.json {
            print::json(&json!({ "broken": [{ "id": id, "owner": owner, "by_force": true }] }));
        } else {
            print::talk(&format!("{id} of {} left the line", table::plain(owner)));
        }
        return Ok(Exit::Done);
    }
    let broken = engine.break_lease(id, grace(context))?.ok_or_else(unknown)?;
    print_broken(context, &[broken]);
    Ok(Exit::Done)
}

fn break_all(context: &Context) -> Result<Exit, Report> {
    let Some(engine) = context.existing_engine()? else {
        print_broken(context, &[]);
        return Ok(Exit::Done);
    };
    let broken = engine.break_all(grace(context))?;
    print_broken(context, &broken);
    Ok(Exit::Done)
}

fn print_broken(context: &Context, broken: &[Broken]) {
    if context.json {
        let broken: Vec<Value> = broken
            .iter()
            .map(|one| {
                let owner = one.lease.claim.owner.as_str();
                json!({ "id": one.lease.id.to_string(), "owner": owner, "by_force": one.by_force })
            })
            .collect();
        print::json(&json!({ "broken": broken }));
        return;
    }
    for one in broken {
        let how =
            if one.by_force { "by force: its holder did not release it, and may still work" } else { "done" };
        print::data(&format!("{} of {}: {how}", one.lease.id, table::plain(one.lease.claim.owner.as_str())));
    }
    print::talk(&format!("{} broken", broken.len()));
}
