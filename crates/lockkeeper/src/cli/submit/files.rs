//! `submit --from` and `--from-swarm`: submits a file of requests, all or none.

use std::fs;
use std::io::{self, Read};

use lockkeeper_engine::report::{Exit, Report};
use lockkeeper_engine::runs::Submitted;
use lockkeeper_engine::runs::new_request::NewRequest;
use lockkeeper_engine::runs::swarm::import;
use lockkeeper_engine::runs::template::Template;
use serde_json::json;

use super::{as_json, check_all, defaults, placeholder, queue_limit};
use crate::cli::context::Context;
use crate::cli::{print, table};

/// The largest file of requests.
const LARGEST: u64 = 64 * 1024 * 1024;

#[derive(clap::Args)]
pub(super) struct Files {
    /// A JSON list of requests, submitted all or none; - for stdin
    #[arg(long, value_name = "FILE", conflicts_with = "from_swarm")]
    from: Option<String>,
    /// The pending tasks of a swarm's tasks.json; - for stdin
    #[arg(long, value_name = "FILE", requires = "agent_command")]
    from_swarm: Option<String>,
    /// The command for a task of a swarm, such as 'claude -p {prompt}'
    #[arg(long, value_name = "TEMPLATE", requires = "from_swarm")]
    agent_command: Option<String>,
}

impl Files {
    pub(super) fn is_given(&self) -> bool {
        self.from.is_some() || self.from_swarm.is_some()
    }
}

pub(super) fn run(context: &Context, args: &Files, replace: bool) -> Result<Exit, Report> {
    let (new, begun) = match (&args.from_swarm, &args.from) {
        (Some(file), _) => {
            let agent = Template::parse_with(args.agent_command.as_deref().unwrap_or_default(), "prompt")?;
            // Tasks from a pipe have no `tasks.json` that workers could keep up to date.
            let queue = fs::canonicalize(file).ok().filter(|path| path.is_file());
            let imported = import(&read(file)?, &agent, queue.as_deref());
            let imported = imported.map_err(|what| not_understood(file, &what))?;
            (imported.requests, imported.skipped)
        }
        (None, file) => {
            let file = file.as_deref().unwrap_or("-");
            let new: Vec<NewRequest> = serde_json::from_str(&read(file)?)
                .map_err(|error| not_understood(file, &error.to_string()))?;
            (new, 0)
        }
    };
    let submitted = if replace { replace_all(context, new)? } else { submit_all(context, new)? };
    if context.json {
        let all: Vec<_> = submitted.iter().map(as_json).collect();
        print::json(&json!({ "submitted": all, "passed_over": begun }));
        return Ok(Exit::Done);
    }
    for one in &submitted {
        print::data(&format!("{}\t{}", one.request, one.run));
    }
    let existing = submitted.iter().filter(|one| one.existing).count();
    let replaced = submitted.iter().filter(|one| one.replaced).count();
    let [queued, replaced, existing, begun] =
        [submitted.len() - existing, replaced, existing, begun].map(|count| count.to_string());
    print::talk(&if replace {
        context.say("submit.file_replaced", &[("queued", &queued), ("replaced", &replaced)])
    } else {
        let values = [("queued", &*queued), ("existing", &*existing), ("begun", &*begun)];
        context.say("submit.file", &values)
    });
    Ok(Exit::Done)
}

/// Submits new requests. They are checked before the store is created, so that bad input leaves nothing behind.
fn submit_all(context: &Context, new: Vec<NewRequest>) -> Result<Vec<Submitted>, Report> {
    let defaults = defaults(context);
    let made = placeholder()?;
    check_all(new.clone(), |one| Ok(one.check(&made, &defaults)))?;
    let runs = context.runs_to_queue(false)?;
    let requests = check_all(new, |one| Ok(one.check(&runs.new_request_id()?, &defaults)))?;
    Ok(if requests.is_empty() { Vec::new() } else { runs.submit_all(&requests, queue_limit(context))? })
}

/// Submits requests in the place of those with the same ids.
fn replace_all(context: &Context, new: Vec<NewRequest>) -> Result<Vec<Submitted>, Report> {
    let defaults = defaults(context);
    let requests = check_all(new, |one| Ok(one.check_replacement(&defaults)))?;
    let runs = context.runs_to_queue(false)?;
    Ok(if requests.is_empty() { Vec::new() } else { runs.replace_all(&requests, queue_limit(context))? })
}

fn not_understood(file: &str, what: &str) -> Report {
    Report::usage(format!("{} cannot be read as requests: {what}", table::plain(file)))
        .with_hint("write a list such as [{\"command\": [\"make\", \"test\"], \"locks\": [\"db\"]}]")
}

fn read(file: &str) -> Result<String, Report> {
    let opened: io::Result<Box<dyn Read>> = match file {
        "-" => Ok(Box::new(io::stdin().lock())),
        path => fs::File::open(path).map(|file| Box::new(file) as Box<dyn Read>),
    };
    let mut bytes = Vec::new();
    opened.and_then(|input| input.take(LARGEST + 1).read_to_end(&mut bytes)).map_err(|error| {
        Report::usage(format!("cannot read {}: {error}", table::plain(file)))
            .with_hint("give a readable file, or - for stdin")
    })?;
    if bytes.len() as u64 > LARGEST {
        return Err(not_understood(file, "it is larger than 64 MiB"));
    }
    String::from_utf8(bytes).map_err(|_| not_understood(file, "it is not UTF-8"))
}
