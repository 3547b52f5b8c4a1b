//! `exec`: acquires a lease, runs a command, and releases the lease.

use std::ffi::OsString;

use lockkeeper_core::id::LeaseId;
use lockkeeper_core::lease::{Grant, Request};
use lockkeeper_core::liveness::Contract;
use lockkeeper_core::record::{Claim, Lease};
use lockkeeper_engine::open::OpenError;
use lockkeeper_engine::report::{Exit, Report};
use lockkeeper_engine::{Acquired, Supervised};
use lockkeeper_platform::exec::{Spec, start};

use super::args::{LeaseArgs, Waiting, wait};
use super::context::{Context, Globals};
use super::obtain::{WaitSettings, grace, obtain};
use super::{Verb, print};

/// Hold a lease while a command runs
#[derive(clap::Args)]
#[command(after_help = "Examples:\n  lockkeeper exec db -- ./migrate.sh\n  \
    lockkeeper exec --path 'src/api/**' --reason 'rename User' -- claude -p 'rename User'\n  \
    lockkeeper exec build --slots 2 -- make\n  lockkeeper exec deploy --no-wait -- ./deploy.sh\n\n\
    The command sees LOCKKEEPER_LEASE and LOCKKEEPER_TOKEN. If this wrapper is killed, the lease stays held until \
    the command and everything it started are gone.")]
pub(super) struct Args {
    #[command(flatten)]
    lease: LeaseArgs,
    /// Wait at most this long [default: as long as it takes]
    #[arg(long, value_name = "DUR", num_args = 0..=1, require_equals = true, default_missing_value = "")]
    wait: Option<String>,
    /// Do not wait
    #[arg(long, conflicts_with = "wait")]
    no_wait: bool,
    /// Print nothing while waiting
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
    let resources = args.lease.resources(context)?;
    let waiting = match (args.no_wait, wait(args.wait.as_deref())?) {
        (true, _) => Waiting::No,
        (false, Some(waiting)) => waiting,
        (false, None) => context.config.span("wait").map_or(Waiting::Forever, Waiting::For),
    };
    let ttl = args.lease.ttl()?;
    let contract = args.lease.contract.map_or(Contract::Strict, Contract::from);
    if ttl.is_none() && contract != Contract::Strict {
        return Err(
            Report::usage(format!("the contract `{contract}` needs a TTL")).with_hint("add --ttl DUR")
        );
    }
    let (priority, reason) = (args.lease.priority()?, args.lease.reason()?);
    let (owner, _) = context.owner(args.lease.owner()?.as_ref(), "exec")?;
    let engine = context.engine()?;
    let resident = engine.resident().map_err(OpenError::Machine)?;
    let proof = resident.proof();
    let claim = Claim { owner, resources, proof, contract, ttl, reason, ticket: None, agent: None };
    let under = leases_around(context);
    let request = Request { claim, priority, under: under.clone(), wait: None, join: false };
    let settings = WaitSettings { waiting, keep_ticket: false, signals_win: true, quiet: args.quiet };
    let obtained = obtain(context, &engine, request, &settings)?;
    if let Some(signal) = obtained.signal {
        drop((engine, resident));
        return Ok(print::interrupted(signal));
    }
    let lease = match obtained.acquired {
        Acquired::Granted(Grant { lease, .. }) => lease,
        Acquired::Held(blockers) => return Err(print::held(&blockers, None)),
        Acquired::Waiting(waiting) | Acquired::Interrupted(waiting) => {
            return Err(print::held(&waiting.blockers, None));
        }
        Acquired::Deadlock(links) => return Err(print::deadlock(&links)),
        Acquired::Gone => return Err(print::ticket_gone()),
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
    let running = match start(&spec, Some(resident.lock())) {
        Ok(running) => running,
        Err(error) => {
            engine.release(lease.id, Some(lease.token))?.map_err(Report::from)?;
            return Err(print::not_started(&error, "the lease was released"));
        }
    };
    let Supervised { ending, loss } = match engine.supervise(running, &lease, grace(context)) {
        Ok(supervised) => supervised,
        Err(error) => {
            // Not released: the command shares the kernel lock, so the lease is held while it runs.
            return Err(Report::of(Exit::Failed, "SUPERVISION_FAILED", &error)
                .with_hint("the command may still run; the lease is held while it does"));
        }
    };
    let released = engine.release(lease.id, Some(lease.token));
    match (loss, released) {
        (Some(loss), _) => Err(print::lease_lost(&lease, &loss, Some(ending))),
        (None, Ok(Err(loss))) => Err(print::lease_lost(&lease, &loss, None)),
        (None, Ok(Ok(_))) => {
            // The exit of this process frees everything faster than the destructors do.
            std::mem::forget((engine, resident));
            Ok(print::pass_on(ending))
        }
        (None, Err(error)) => {
            // The end of this process frees the lease.
            print::report(&Report::from(error), false);
            Ok(print::pass_on(ending))
        }
    }
}

/// The leases under which this process runs: `FOLDER:L1,L2`, of this store only.
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
