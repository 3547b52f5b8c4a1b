//! `exec`: acquires a lease, runs a command, and releases the lease.

use std::ffi::OsString;

use lockkeeper_core::id::LeaseId;
use lockkeeper_core::lease::{AcquireRequest, Grant};
use lockkeeper_core::liveness::Contract;
use lockkeeper_core::record::{Claim, Lease};
use lockkeeper_core::waiting::Blocker;
use lockkeeper_engine::open::OpenError;
use lockkeeper_engine::report::{Exit, Report};
use lockkeeper_engine::{Acquired, Supervised, under};
use lockkeeper_platform::exec::{Spec, start};

use super::args::{LeaseArgs, NO_TIME, Waiting, wait};
use super::context::{Context, Globals};
use super::obtain::{WaitSettings, grace, obtain};
use super::session_guardian::SessionGuardian;
use super::{Verb, git_wrapper, print};

/// Hold a lease while a command runs; waits for it first
#[derive(clap::Args)]
#[command(after_help = "Examples:\n  lockkeeper exec db -- ./migrate.sh\n  \
    lockkeeper exec --path 'src/api/**' --reason 'rename User' -- claude -p 'rename User'\n  \
    lockkeeper exec build --slots 2 -- make\n  lockkeeper exec deploy --no-wait -- ./deploy.sh\n  \
    lockkeeper exec backup -w 60 -c 'cd /srv && tar cf backup.tar data'\n\n\
    It waits as long as it takes, unless --wait, -w or -n says otherwise: then it exits with 75, and the command does not run. -n, -w and -c are \
    those of flock(1).\n\n\
    The command sees LOCKKEEPER_LEASE and LOCKKEEPER_TOKEN. If this wrapper is killed, the lease stays held until \
    the command and everything it started are gone.")]
pub(super) struct Args {
    #[command(flatten)]
    lease: LeaseArgs,
    /// Wait at most this long [default: as long as it takes]
    #[arg(long, value_name = "DUR", num_args = 0..=1, require_equals = true, default_missing_value = NO_TIME)]
    wait: Option<String>,
    /// Do not wait
    #[arg(long, short = 'n', conflicts_with = "wait")]
    no_wait: bool,
    /// Wait at most this many seconds, like --wait=SECS
    #[arg(short = 'w', value_name = "SECS", conflicts_with_all = ["wait", "no_wait"])]
    wait_seconds: Option<String>,
    /// Let git commands that write the index wait for each other: the command sees a `git` that takes git/index for them
    #[arg(long)]
    git: bool,
    /// Print nothing while waiting
    #[arg(long, short)]
    quiet: bool,
    /// A command line for the shell, instead of a command after `--`
    #[arg(short = 'c', value_name = "LINE", conflicts_with = "command")]
    line: Option<OsString>,
    /// The command and its arguments
    #[arg(last = true, required_unless_present = "line", value_name = "CMD")]
    command: Vec<OsString>,
}

impl Args {
    /// How long to wait: what the flags say, else the setting, else as long as it takes.
    fn waiting(&self, context: &Context) -> Result<Waiting, Report> {
        let limit = self.wait_seconds.as_deref().or(self.wait.as_deref());
        Ok(match (self.no_wait, wait(limit)?) {
            (true, _) => Waiting::No,
            (false, Some(waiting)) => waiting,
            (false, None) => context.config.span("wait").map_or(Waiting::Forever, Waiting::For),
        })
    }
}

/// Reports that another owner holds it, after the wait that was wanted. Without flags, this command would have waited.
fn refused(context: &Context, blockers: &[Blocker], waiting: Waiting) -> Report {
    if matches!(waiting, Waiting::For(limit) if !limit.is_zero()) {
        return print::still_held(context, blockers, waiting);
    }
    let witness = blockers.iter().flat_map(|blocker| &blocker.leases).next().map(|found| &found.witness);
    let why = witness
        .map_or_else(String::new, |one| format!("; `lockkeeper why {}` says more", one.escape_debug()));
    let hint = format!("without -n, -w and --wait it waits as long as it takes{why}");
    print::held_here(context, blockers, None).with_hint(hint)
}

/// The words of the command. A line is run by the user's shell, as flock(1) does.
fn words(command: Vec<OsString>, line: Option<OsString>) -> Vec<OsString> {
    let Some(line) = line else { return command };
    let shell = std::env::var_os("SHELL").filter(|shell| !shell.is_empty());
    vec![shell.unwrap_or_else(|| "/bin/sh".into()), "-c".into(), line]
}

impl Verb for Args {
    const NAME: &'static str = "exec";

    fn run(self, globals: &Globals) -> Result<Exit, Report> {
        run(&Context::new(globals)?, self)
    }
}

fn run(context: &Context, args: Args) -> Result<Exit, Report> {
    let resources = args.lease.resources(context)?;
    if !args.quiet {
        args.lease.warn_of_paths(context);
    }
    let waiting = args.waiting(context)?;
    let ttl = args.lease.ttl()?;
    let contract = args.lease.contract.map_or(Contract::Strict, Contract::from);
    if ttl.is_none() && contract != Contract::Strict {
        return Err(
            Report::usage(format!("the contract `{contract}` needs a TTL")).with_hint("add --ttl DUR")
        );
    }
    let (priority, reason) = (args.lease.priority()?, args.lease.reason()?);
    let (owner, _) = context.owner(args.lease.owner()?.as_ref(), "exec")?;
    let engine = context.engine_to_lock(args.quiet)?;
    let resident = engine.resident().map_err(OpenError::Machine)?;
    let proof = resident.proof();
    let claim = Claim { owner, resources, proof, contract, ttl, reason, ticket: None, agent: None };
    let under = leases_around(context);
    let request = AcquireRequest { claim, priority, under: under.clone(), wait: None, join: false };
    let settings = WaitSettings { waiting, keep_ticket: false, signals_win: true, quiet: args.quiet };
    let obtained = obtain(context, &engine, request, &settings)?;
    if let Some(signal) = obtained.signal {
        drop((engine, resident));
        return Ok(print::interrupted(signal));
    }
    let lease = match obtained.acquired {
        Acquired::Granted(Grant { lease, .. }) => lease,
        Acquired::Held(blockers) => return Err(refused(context, &blockers, waiting)),
        Acquired::Waiting(line) | Acquired::Interrupted(line) => {
            return Err(refused(context, &line.blockers, waiting));
        }
        Acquired::Deadlock(links) => return Err(print::deadlock(&links)),
        Acquired::Gone => return Err(print::ticket_gone()),
    };
    let mut command = words(args.command, args.line).into_iter();
    let mut around = under;
    around.push(lease.id);
    let spec = Spec {
        program: command.next().unwrap_or_default(),
        args: command.collect(),
        env: variables(context, &lease, &around, args.git),
        ..Spec::default()
    };
    let guardian = SessionGuardian::start(context, Some(resident.holder()))?;
    // This process may have been frozen since the lease was granted.
    if let Some(loss) = engine.session_loss(lease.id, grace(context)) {
        if let Some(guardian) = guardian {
            guardian.dismiss();
        }
        let _ = engine.release(lease.id, Some(lease.token));
        return Err(print::lease_lost(&lease, &loss, None));
    }
    let running = match start(&spec, Some(resident.lock())) {
        Ok(running) => running,
        Err(error) => {
            if let Some(guardian) = guardian {
                guardian.dismiss();
            }
            engine.release(lease.id, Some(lease.token))?.map_err(Report::from)?;
            return Err(print::not_started(&error, "the lease was released"));
        }
    };
    let Supervised { ending, loss } = match engine.supervise(running, &lease, grace(context)) {
        Ok(supervised) => supervised,
        Err(error) => {
            // Not released: the command shares the liveness lock, so the lease is held while it runs.
            return Err(Report::of(Exit::Failed, "SUPERVISION_FAILED", &error)
                .with_hint("the command may still run; the lease is held while it does"));
        }
    };
    let released = engine.release(lease.id, Some(lease.token));
    match (loss, released) {
        (Some(loss), _) => Err(print::lease_lost(&lease, &loss, Some(ending))),
        (None, Ok(Err(loss))) => Err(print::lease_lost(&lease, &loss, None)),
        (None, Ok(Ok(_))) => {
            if let Some(guardian) = guardian {
                guardian.dismiss();
            }
            if engine.is_shared() {
                // Closing the store sends the last wake-ups.
                drop(engine);
            } else {
                // The exit of this process frees everything faster than the destructors do.
                std::mem::forget((engine, resident));
            }
            Ok(print::pass_on(ending))
        }
        (None, Err(error)) => {
            let report = Report::from(error);
            if report.code() == "STORE_REMOVED" {
                let message = format!("lease {} was lost: {report}", lease.id);
                let hint = "another may have been let in while the command ran: check before you try again";
                return Err(Report::new(Exit::LeaseLost, "LEASE_LOST", message).with_hint(hint));
            }
            // The end of this process frees the lease.
            print::report(&report, false, context.language());
            Ok(print::pass_on(ending))
        }
    }
}

/// The leases of this store under which this process runs.
pub(super) fn leases_around(context: &Context) -> Vec<LeaseId> {
    under::read(&std::env::var_os(under::VARIABLE).unwrap_or_default(), &context.location.store_id())
}

fn variables(context: &Context, lease: &Lease, around: &[LeaseId], git: bool) -> Vec<(OsString, OsString)> {
    let mut variables = vec![
        ("LOCKKEEPER_LEASE".into(), lease.id.to_string().into()),
        ("LOCKKEEPER_TOKEN".into(), lease.token.to_string().into()),
        under_variable(context, around),
    ];
    if git {
        let path = git_wrapper::path_with_wrapper(context);
        variables.extend(path.map(|path| ("PATH".into(), path)));
    }
    variables
}

/// The variable that tells commands under which leases they run.
pub(super) fn under_variable(context: &Context, around: &[LeaseId]) -> (OsString, OsString) {
    (under::VARIABLE.into(), under::value(&context.location.store_id(), around))
}
