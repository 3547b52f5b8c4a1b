//! `fence`: checks that a fencing token is current.

use lockkeeper_core::resource::Target;
use lockkeeper_engine::report::{Exit, Report};
use serde_json::{Value, json};

use super::args::{path_target, token};
use super::context::{Context, Globals};
use super::{Verb, print};

/// Succeed only while a token is the current one for a name or path
#[derive(clap::Args)]
#[command(after_help = "Example. Call it before every step that cannot be undone:\n  \
    lockkeeper fence db \"$LOCKKEEPER_TOKEN\" && psql -f step.sql\n\nExit 0: the token is current. Exit 75: it is not; stop.")]
pub(super) struct Args {
    /// The name, or with --path the path
    #[arg(value_name = "NAME")]
    target: String,
    /// The token to check
    #[arg(value_name = "TOKEN")]
    token: String,
    /// NAME is a path
    #[arg(long)]
    path: bool,
}

impl Verb for Args {
    const NAME: &'static str = "fence";

    fn run(self, globals: &Globals) -> Result<Exit, Report> {
        run(&Context::new(globals)?, &self)
    }
}

fn run(context: &Context, args: &Args) -> Result<Exit, Report> {
    let target =
        if args.path { path_target(context, &args.target)? } else { Target::Name(args.target.parse()?) };
    let token = token(&args.token)?;
    let engine = context.engine_to_read()?;
    let (passes, current) = match &engine {
        Some(engine) => {
            let fence = engine.fence(&target, token)?;
            let now = engine.now()?;
            (
                fence.passes,
                fence.current.iter().map(|lease| (lease.token, print::lease(lease, now))).collect(),
            )
        }
        None => (false, Vec::new()),
    };
    if passes {
        if context.json {
            let leases: Vec<Value> = current.into_iter().map(|(_, lease)| lease).collect();
            let target = target.as_str();
            print::json(
                &json!({ "status": "current", "target": target, "token": token.0, "leases": leases }),
            );
        }
        return Ok(Exit::Done);
    }
    let tokens: Vec<String> = current.iter().map(|(token, _)| token.to_string()).collect();
    let now = match tokens.as_slice() {
        [] => "nobody holds it".to_owned(),
        some => format!("current: {}", some.join(", ")),
    };
    Err(Report::new(
        Exit::Refused,
        "TOKEN_NOT_CURRENT",
        format!("token {token} is not current for {target}; {now}"),
    )
    .with_hint("the lease was lost: stop, and acquire it again"))
}
