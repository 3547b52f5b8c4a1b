//! `exec`: hold, run, release.

use std::ffi::OsString;
use std::io;
use std::time::Duration;

use lockkeeper::core::id::LeaseId;
use lockkeeper::core::lease::{Grant, NotCurrent, Request};
use lockkeeper::core::liveness::Contract;
use lockkeeper::core::record::{Claim, Lease};
use lockkeeper::core::time::Moment;
use lockkeeper::engine::Engine;
use lockkeeper::exec::{Ending, Event, Next, Running, Spec, StartError, start};
use lockkeeper::platform::clock;
use lockkeeper::report::{Exit, Report};
use lockkeeper::store::{StoreError, Waker};

use super::args::{Waiting, Wanted, wait};
use super::context::{Context, Globals};
use super::obtain::{Manner, Obtained, grace, obtain};
use super::{Verb, print};

/// A command that takes longer stays.
const SOON: Duration = Duration::from_millis(20);

/// How often the lease is looked at where nobody can tell of its loss.
const LOOK_EVERY: Duration = Duration::from_millis(500);

/// Hold a lease while a command runs
#[derive(clap::Args)]
#[command(after_help = "Examples:\n  lockkeeper exec db -- ./migrate.sh\n  \
    lockkeeper exec --path 'src/api/**' --reason 'rename User' -- claude -p 'rename User'\n  \
    lockkeeper exec build --slots 2 -- make\n  lockkeeper exec deploy --no-wait -- ./deploy.sh\n\n\
    The command sees LOCKKEEPER_LEASE and LOCKKEEPER_TOKEN. If this wrapper is killed, the lease stays held until \
    the command and everything it started are gone.")]
pub(super) struct Args {
    #[command(flatten)]
    wanted: Wanted,
    /// Wait at most this long [default: as long as it takes]
    #[arg(long, value_name = "DUR", num_args = 0..=1, require_equals = true, default_missing_value = "")]
    wait: Option<String>,
    /// Do not wait
    #[arg(long, conflicts_with = "wait")]
    no_wait: bool,
    /// Say nothing while waiting
    #[arg(long, short)]
    quiet: bool,
    /// The command and its arguments
    #[arg(last = true, required = true, value_name = "CMD")]
    command: Vec<OsString>,
}

impl Verb for Args {
    const NAME: &'static str = "exec";

    fn run(self, globals: &Globals) -> Result<Exit, Report> {
        run(&Context::new(globals)?, self)
    }
}

fn run(context: &Context, args: Args) -> Result<Exit, Report> {
    let resources = args.wanted.resources(context)?;
    let waiting = match (args.no_wait, wait(args.wait.as_deref())?) {
        (true, _) => Waiting::No,
        (false, Some(waiting)) => waiting,
        (false, None) => context.config.span("wait").map_or(Waiting::Forever, Waiting::For),
    };
    let ttl = args.wanted.ttl()?;
    let contract = args.wanted.contract.map_or(Contract::Strict, Contract::from);
    if ttl.is_none() && contract != Contract::Strict {
        return Err(
            Report::usage(format!("the contract `{contract}` needs a TTL")).with_hint("add --ttl DUR")
        );
    }
    let (priority, reason) = (args.wanted.priority()?, args.wanted.reason()?);
    let (owner, _) = context.owner(args.wanted.owner()?.as_ref(), "exec")?;
    let keeper = context.keeper()?;
    let proof = keeper.resident_proof()?;
    let claim = Claim { owner, resources, proof, contract, ttl, reason, ticket: None };
    let under = leases_around(context);
    let request = Request { claim, priority, under: under.clone(), wait: None, join: false };
    let manner = Manner { waiting, keep_ticket: false, signals_win: true, quiet: args.quiet };
    let lease = match obtain(context, keeper.engine(), request, &manner)? {
        Obtained::Granted(Grant { lease, .. }) => lease,
        Obtained::Held(blockers) => return Err(print::held(&blockers, None)),
        Obtained::StillInLine(waiting) => return Err(print::held(&waiting.blockers, None)),
        Obtained::Deadlock(links) => return Err(print::deadlock(&links)),
        Obtained::Interrupted(_, signal) => {
            drop(keeper);
            return Ok(print::interrupted(signal));
        }
        Obtained::Gone => return Err(print::ticket_gone()),
    };
    let mut command = args.command.into_iter();
    let mut around = under;
    around.push(lease.id);
    let spec = Spec {
        program: command.next().unwrap_or_default(),
        args: command.collect(),
        env: variables(context, &lease, &around),
        ..Spec::default()
    };
    let running = match start(&spec, Some(keeper.liveness_lock()?)) {
        Ok(running) => running,
        Err(error) => {
            keeper.engine().release(lease.id, Some(lease.token))?.map_err(Report::from)?;
            return Err(not_started(&error));
        }
    };
    let mut watch = Watch::new(keeper.engine(), &lease, grace(context));
    let ending = supervise(running, &mut watch);
    let lost = watch.lost;
    let ending = match ending {
        Ok(ending) => ending,
        Err(error) => {
            // Not released: the command has its share in the kernel lock, and holds on while it runs.
            return Err(Report::of(Exit::Failed, "SUPERVISION_FAILED", &error)
                .with_hint("the command may still run; the lease is held while it does"));
        }
    };
    let released = keeper.engine().release(lease.id, Some(lease.token));
    match (lost, released) {
        (Some(loss), _) => Err(print::lease_lost(&lease, &loss, Some(ending))),
        (None, Ok(Err(loss))) => Err(print::lease_lost(&lease, &loss, None)),
        (None, Ok(Ok(_))) => {
            // The kernel puts everything away faster than we could.
            std::mem::forget(keeper);
            Ok(print::pass_on(ending))
        }
        (None, Err(error)) => {
            // The end of this process frees it all the same.
            print::report(&Report::from(error), false);
            Ok(print::pass_on(ending))
        }
    }
}

/// Sees the command through. Most commands are over before anybody could want their lease: only for one that
/// stays is a waker put up, by which others tell that the lease is lost.
fn supervise(mut running: Running, watch: &mut Watch<'_>) -> io::Result<Ending> {
    if let Some(ending) = running.supervise_until(clock::now().after(SOON))? {
        return Ok(ending);
    }
    let waker = watch.lease.waker().map(|waker| watch.engine.store().waker_with_id(waker)).transpose();
    match &waker {
        Ok(Some(waker)) => {
            running.supervise(&[waker.as_fd()], &mut |event| watch.on_event(event, Some(&**waker)))
        }
        // Without a waker nobody can tell, so it is looked at now and then.
        Ok(None) | Err(_) => {
            watch.look_every = Some(LOOK_EVERY);
            running.supervise(&[], &mut |event| watch.on_event(event, None))
        }
    }
}

/// Keeps an eye on the lease while the command runs.
struct Watch<'w> {
    engine: &'w Engine,
    lease: &'w Lease,
    grace: Duration,
    /// When the lease is to be renewed, if it has a TTL.
    renew_at: Option<Moment>,
    /// How often to look although nobody woke.
    look_every: Option<Duration>,
    lost: Option<NotCurrent>,
}

impl<'w> Watch<'w> {
    fn new(engine: &'w Engine, lease: &'w Lease, grace: Duration) -> Self {
        let renew_at = lease.claim.ttl.map(|ttl| lease.heartbeat_at.after(ttl.get() / 3));
        Self { engine, lease, grace, renew_at, look_every: None, lost: None }
    }

    fn on_event(&mut self, event: Event, waker: Option<&dyn Waker>) -> Next {
        // Quiet first, then look: what is woken from here on is heard.
        match (event, waker) {
            (Event::Ready(_), Some(waker)) => {
                waker.receive();
            }
            (Event::Started | Event::Deadline | Event::Ready(_), _) => {}
        }
        let now = clock::now();
        let looked = match self.renew_at {
            Some(due) if due <= now => self.renew(now),
            Some(_) | None => self.look(),
        };
        match looked {
            Ok(Some(loss)) => {
                self.lost = Some(loss);
                Next::Stop(self.grace)
            }
            Ok(None) => {
                let look_at = self.look_every.map(|span| now.after(span));
                let next = [self.renew_at, look_at].into_iter().flatten().min();
                next.map_or(Next::Wait, Next::WaitUntil)
            }
            // The store may be back before the lease runs out.
            Err(_) => Next::WaitUntil(now.after(LOOK_EVERY)),
        }
    }

    fn look(&self) -> Result<Option<NotCurrent>, StoreError> {
        self.engine.loss(self.lease.id, self.lease.token)
    }

    fn renew(&mut self, now: Moment) -> Result<Option<NotCurrent>, StoreError> {
        let renewed = self.engine.renew(self.lease.id, Some(self.lease.token), None)?;
        self.renew_at = self.lease.claim.ttl.map(|ttl| now.after(ttl.get() / 3));
        Ok(renewed.err())
    }
}

/// The leases whose commands we are a part of: `FOLDER:L1,L2`, of this store only.
pub(super) fn leases_around(context: &Context) -> Vec<LeaseId> {
    let Ok(value) = std::env::var("LOCKKEEPER_UNDER") else { return Vec::new() };
    match value.rsplit_once(':') {
        Some((folder, ids)) if std::path::Path::new(folder) == context.location.state => {
            ids.split(',').filter_map(|id| id.parse().ok()).collect()
        }
        _ => Vec::new(),
    }
}

fn variables(context: &Context, lease: &Lease, around: &[LeaseId]) -> Vec<(OsString, OsString)> {
    let ids: Vec<String> = around.iter().map(ToString::to_string).collect();
    let mut under = context.location.state.clone().into_os_string();
    under.push(format!(":{}", ids.join(",")));
    vec![
        ("LOCKKEEPER_LEASE".into(), lease.id.to_string().into()),
        ("LOCKKEEPER_TOKEN".into(), lease.token.to_string().into()),
        ("LOCKKEEPER_UNDER".into(), under),
    ]
}

fn not_started(error: &StartError) -> Report {
    let hint = match error {
        StartError::NotFound { .. } => "check the spelling and PATH; the command comes after `--`",
        StartError::CannotExecute { .. } => "is it executable? try: chmod +x",
        StartError::Other { .. } => "the lease was released",
    };
    Report::of(Exit::Command(error.exit_code()), "COMMAND_NOT_STARTED", error).with_hint(hint)
}
