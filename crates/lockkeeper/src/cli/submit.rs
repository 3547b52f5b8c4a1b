//! `submit`: puts a request into the queue.

mod files;

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::path::PathBuf;

use lockkeeper_core::id::RequestId;
use lockkeeper_core::record::Priority;
use lockkeeper_core::request::Request;
use lockkeeper_engine::open::has_shared_runs;
use lockkeeper_engine::report::{Exit, Report};
use lockkeeper_engine::runs::new_request::{BadRequest, Defaults, NewRequest, SpanText};
use lockkeeper_engine::runs::{Runs, Submitted, environment};
use serde_json::{Value, json};

use super::args::{lock_name, path_target, warn_of_paths};
use super::context::{Context, Globals};
use super::{Verb, print, run, table};

/// Put a request into the queue, for workers to run
#[derive(clap::Args)]
#[command(after_help = "Examples:\n  lockkeeper submit --lock db --timeout 10m -- ./migrate.sh\n  \
    lockkeeper submit --id tests --after build --retries 2 --backoff 5s -- make test\n  \
    lockkeeper submit --path 'src/api/**' --env ANTHROPIC_API_KEY -- claude -p 'rename User'\n  \
    lockkeeper submit --id nightly --replace -- make release\n  \
    lockkeeper submit --from-swarm tasks.json --agent-command 'claude -p {prompt}'\n\n\
    The command gets PATH, HOME, USER, LOGNAME, SHELL, LANG, LC_*, TZ, TERM, TMPDIR and XDG_* of this one, and what \
    --env names; nothing else. `lockkeeper work` runs what is queued.")]
pub(super) struct Args {
    /// The id of the request [default: a new one]
    #[arg(long, value_name = "REQUEST")]
    id: Option<String>,
    /// The title [default: the command]
    #[arg(long, value_name = "TEXT")]
    title: Option<String>,
    /// Hold this name while it runs; may be given several times
    #[arg(long = "lock", value_name = "NAME")]
    locks: Vec<String>,
    /// Hold paths while it runs, as a pattern such as 'src/api/**'
    #[arg(long = "path", value_name = "GLOB")]
    paths: Vec<String>,
    /// Hold in shared mode
    #[arg(long)]
    shared: bool,
    /// Run it only on a worker with this label, such as gpu (`work --label gpu`); may be given several times
    #[arg(long, value_name = "LABEL")]
    needs: Vec<String>,
    /// The priority, from -100 to 100: higher is sooner
    #[arg(long, value_name = "N", default_value = "0", allow_negative_numbers = true)]
    priority: String,
    /// Give it up when it did not start within this time; 0 for never
    #[arg(long, value_name = "DUR")]
    queue_timeout: Option<String>,
    /// Stop an attempt that takes longer; 0 for never
    #[arg(long, value_name = "DUR")]
    timeout: Option<String>,
    /// How many more attempts there are after a failure
    #[arg(long, value_name = "N", default_value = "0")]
    retries: u32,
    /// How long to wait before the second attempt; each further wait is twice as long [default: 1s]
    #[arg(long, value_name = "DUR")]
    backoff: Option<String>,
    /// The longest wait between two attempts [default: 5m]
    #[arg(long, value_name = "DUR")]
    max_backoff: Option<String>,
    /// Retry only these exit codes, such as 1,75-79
    #[arg(long, value_name = "CODES")]
    retry_on: Option<String>,
    /// The exit codes that count as success [default: 0]
    #[arg(long, value_name = "CODES")]
    success: Option<String>,
    /// Start only when this request is done; may be given several times
    #[arg(long, value_name = "REQUEST")]
    after: Vec<String>,
    /// Set a variable for the command, or pass one on from here
    #[arg(long, value_name = "NAME[=VALUE]")]
    env: Vec<OsString>,
    /// Deduplication key: a second submit with the same key returns the first request
    #[arg(long, value_name = "KEY")]
    key: Option<String>,
    /// Replace the request with this id if there is one, and run it again: not while it runs
    #[arg(long, conflicts_with_all = ["key", "from_swarm"])]
    replace: bool,
    /// Where to run it [default: here]
    #[arg(long = "cwd", visible_alias = "chdir", value_name = "DIR")]
    cwd: Option<PathBuf>,
    /// Wait for its end, and exit as the command does
    #[arg(long)]
    wait: bool,
    #[command(flatten)]
    files: files::Files,
    /// The command and its arguments
    #[arg(last = true, value_name = "CMD")]
    command: Vec<OsString>,
}

impl Verb for Args {
    const NAME: &'static str = "submit";

    fn run(self, globals: &Globals) -> Result<Exit, Report> {
        submit(&Context::new(globals)?, &self)
    }
}

fn submit(context: &Context, args: &Args) -> Result<Exit, Report> {
    if args.files.is_given() {
        if !args.command.is_empty() || args.wait {
            return Err(Report::usage("a file of requests comes without a command and without --wait")
                .with_hint("leave out `--` and the command, and wait with `lockkeeper run wait`"));
        }
        return files::run(context, &args.files, args.replace);
    }
    let (submitted, request, runs) = submit_one(context, args)?;
    if !args.wait {
        print_submitted(context, &submitted, &request.title);
        return Ok(Exit::Done);
    }
    if !context.json {
        print_submitted(context, &submitted, &request.title);
    }
    run::wait_for(context, &runs, &submitted.run, None)
}

/// Submits the request of the arguments. It is checked before the store is created, so that bad input leaves nothing
/// behind.
fn submit_one(context: &Context, args: &Args) -> Result<(Submitted, Request, Runs), Report> {
    let (new, defaults, limit) = (new_request(context, args)?, defaults(context), queue_limit(context));
    if args.replace {
        let request = new.check_replacement(&defaults)?;
        let runs = context.runs_to_queue(false)?;
        warn_of_folder(&runs, &request);
        return Ok((runs.replace(&request, limit)?, request, runs));
    }
    new.clone().check(&placeholder()?, &defaults)?;
    let runs = context.runs_to_queue(false)?;
    let request = new.check(&runs.new_request_id()?, &defaults)?;
    warn_of_folder(&runs, &request);
    Ok((runs.submit(&request, limit)?, request, runs))
}

/// Warns if other machines may not have the folder of a request.
fn warn_of_folder(runs: &Runs, request: &Request) {
    if runs.is_outside(&request.dir) {
        let dir = table::plain(&request.dir);
        print::talk(&format!("warning: {dir} is outside of the project; a worker needs the same folder"));
    }
}

fn print_submitted(context: &Context, submitted: &Submitted, title: &str) {
    if context.json {
        print::json(&as_json(submitted));
        return;
    }
    let key = match submitted {
        Submitted { existing: true, .. } => "submit.exists",
        Submitted { replaced: true, .. } => "submit.replaced",
        Submitted { .. } => "submit.queued",
    };
    print::talk(&context.say(key, &[("title", &table::plain(title))]));
    print::data(&format!("{}\t{}", submitted.request, submitted.run));
}

/// The result for programs.
fn as_json(submitted: &Submitted) -> Value {
    json!({
        "request_id": submitted.request.as_str(),
        "run_id": submitted.run.as_str(),
        "existing": submitted.existing,
        "replaced": submitted.replaced,
    })
}

/// The limit of queued runs.
pub(super) fn queue_limit(context: &Context) -> Option<u64> {
    context.config.count("queue_limit")
}

/// Defaults for fields that a request leaves out.
pub(super) fn defaults(context: &Context) -> Defaults {
    let env = if has_shared_runs(&context.location) {
        environment::for_any_machine(std::env::vars_os())
    } else {
        environment::of_submitter(std::env::vars_os())
    };
    Defaults {
        dir: context.cwd.clone(),
        env,
        queue_timeout: context.config.span("queue_timeout"),
        timeout: context.config.span("timeout"),
    }
}

fn new_request(context: &Context, args: &Args) -> Result<NewRequest, Report> {
    let span = |text: &Option<String>| text.clone().map(SpanText::Text);
    let command = args.command.iter().enumerate();
    let command = command.map(|(place, word)| text(word, || format!("word {} of the command", place + 1)));
    let paths = args.paths.iter().map(|path| Ok(path_target(context, path)?.as_str().to_owned()));
    warn_of_paths(context, &args.locks);
    let locks = args.locks.iter().map(|name| Ok(lock_name(name)?.as_str().to_owned()));
    let cwd = args.cwd.as_ref().map(|dir| {
        let there = context.cwd.join(dir);
        let text = text(there.as_os_str(), || "the folder".to_owned())?;
        if there.is_dir() { Ok(text) } else { Err(no_folder(&text)) }
    });
    Ok(NewRequest {
        id: args.id.clone(),
        title: args.title.clone(),
        command: command.collect::<Result<_, _>>()?,
        cwd: cwd.transpose()?,
        env: variables(&args.env)?,
        locks: locks.collect::<Result<_, Report>>()?,
        paths: paths.collect::<Result<_, Report>>()?,
        shared: args.shared,
        needs: args.needs.clone(),
        priority: args.priority.parse::<Priority>()?.get(),
        after: args.after.clone(),
        queue_timeout: span(&args.queue_timeout),
        timeout: span(&args.timeout),
        retries: args.retries,
        backoff: span(&args.backoff),
        max_backoff: span(&args.max_backoff),
        retry_on: args.retry_on.as_deref().map_or(Ok(Vec::new()), codes)?,
        success: args.success.as_deref().map_or(Ok(Vec::new()), codes)?,
        key: args.key.clone(),
        origin: None,
    })
}

fn no_folder(path: &str) -> Report {
    Report::usage(format!("there is no folder {path}")).with_hint("give one that exists with --cwd")
}

/// Converts an argument to text.
fn text(word: &std::ffi::OsStr, what: impl Fn() -> String) -> Result<String, Report> {
    word.to_str().map(str::to_owned).ok_or_else(|| BadRequest::NotUtf8 { what: what() }.into())
}

/// Parses variables: `NAME=VALUE`, or `NAME` with the value of this process.
fn variables(given: &[OsString]) -> Result<BTreeMap<String, String>, Report> {
    let mut variables = BTreeMap::new();
    for one in given {
        let one = text(one, || "what --env gives".to_owned())?;
        let (name, value) = match one.split_once('=') {
            Some((name, value)) => (name.to_owned(), value.to_owned()),
            None => {
                let value = std::env::var_os(&one).ok_or_else(|| {
                    Report::usage(format!("the variable {one} is not set here"))
                        .with_hint(format!("set it, or write --env {one}=VALUE"))
                })?;
                let value = text(&value, || format!("the variable {one}"))?;
                (one, value)
            }
        };
        variables.insert(name, value);
    }
    Ok(variables)
}

/// Parses a list of exit codes such as `1,75-79`.
fn codes(text: &str) -> Result<Vec<u8>, Report> {
    let bad =
        || Report::usage(format!("`{text}` is not a list of exit codes")).with_hint("write 0,75 or 1-9,42");
    let mut codes = Vec::new();
    for part in text.split(',').map(str::trim) {
        let (first, last) = part.split_once('-').unwrap_or((part, part));
        let number = |text: &str| text.parse::<u8>().map_err(|_| bad());
        let (first, last) = (number(first)?, number(last)?);
        if first > last {
            return Err(bad());
        }
        codes.extend(first..=last);
    }
    codes.sort_unstable();
    codes.dedup();
    Ok(codes)
}

/// Checks all requests of a file by `check`.
fn check_all(
    new: Vec<NewRequest>,
    check: impl Fn(NewRequest) -> Result<Result<Request, BadRequest>, Report>,
) -> Result<Vec<Request>, Report> {
    let checked = new.into_iter().enumerate().map(|(place, one)| {
        check(one)?.map_err(|error| {
            let hint = error.hint();
            Report::usage(format!("request {}: {error}", place + 1)).with_hint(hint)
        })
    });
    checked.collect()
}

/// An id for checking requests before the store exists.
fn placeholder() -> Result<RequestId, Report> {
    "RQ-0".parse().map_err(Report::from)
}
