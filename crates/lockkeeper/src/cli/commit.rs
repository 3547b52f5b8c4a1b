//! `commit`: commits exactly the caller's own changes, whatever else is staged in the work tree.

use std::path::{Path, PathBuf};
use std::time::Duration;

use lockkeeper_agents::{
    Caller, CommitError, CommitRequest, Committed, Git, GitError, Selection, Sessions, commit, index_request,
    shown_foreign, takes_part,
};
use lockkeeper_core::id::Owner;
use lockkeeper_core::record::Lease;
use lockkeeper_core::waiting::Blocker;
use lockkeeper_engine::open::OpenError;
use lockkeeper_engine::report::{Exit, Report};
use lockkeeper_engine::{Acquired, Engine, Resident};
use lockkeeper_platform::{origin, process};
use serde_json::{Value, json};

use super::args::Waiting;
use super::context::{Context, Globals};
use super::exec::leases_around;
use super::obtain::{WaitSettings, obtain, receive_signals};
use super::{Verb, print};

/// How long a call waits for others that commit: shorter than the time-out that harnesses have for commands.
const USUAL: Duration = Duration::from_secs(100);

/// Commit your own changes only, whatever others have staged
#[derive(clap::Args)]
#[command(after_help = "Examples:\n  lockkeeper commit -m 'split the parser'\n  \
    lockkeeper commit -m 'fix the lexer' src/lex.rs tests/\n\n\
    Without PATH it commits the changed files that the agent has claimed. What others have staged or changed stays as it is. \
    Hooks and signing are those of git. Claims on committed files are released.")]
pub(super) struct Args {
    /// The message; each further one is a paragraph of its own
    #[arg(short, long = "message", value_name = "MSG", required = true)]
    message: Vec<String>,
    /// Files and folders to commit [default: the changed files that the owner has claimed]
    #[arg(value_name = "PATH")]
    paths: Vec<PathBuf>,
    /// Whose claims to commit [default: the agent whose process runs this command]
    #[arg(long, value_name = "OWNER")]
    owner: Option<String>,
}

impl Verb for Args {
    const NAME: &'static str = "commit";

    fn run(self, globals: &Globals) -> Result<Exit, Report> {
        let context = Context::new(globals)?;
        if self.message.iter().all(|message| message.trim().is_empty()) {
            return Err(Report::usage("the message is empty").with_hint("say what changes with -m"));
        }
        let committed = run(&context, &self)?;
        show(&context, &committed);
        Ok(Exit::Done)
    }
}

fn run(context: &Context, args: &Args) -> Result<Committed, Report> {
    let git = Git::find(&context.cwd).map_err(|error| no_repository(&error))?;
    let caller = caller(context, args.owner.as_deref())?;
    let owners = match &caller {
        Caller::Agents(owners) => owners.clone(),
        Caller::Other(named) => named.iter().cloned().collect(),
    };
    let engine = context.engine()?;
    let work_tree = context.location.work_tree();
    let selection = selection(args, &git, &engine, &work_tree, &owners)?;
    // Ctrl-C ends git. This process goes on to the end, so that the common index is updated after a commit.
    let _signals = receive_signals()?;
    let resident = engine.resident().map_err(OpenError::Machine)?;
    let lease = hold_index(context, &engine, &resident, &caller)?;
    let around = leases_around(context);
    let git = git.under(&context.location.state, &[&around[..], &[lease.id]].concat());
    let made = commit(&CommitRequest {
        git: &git,
        engine: &engine,
        state: &context.location.state,
        work_tree: &work_tree,
        caller: &caller,
        around: &around,
        owners: &owners,
        selection,
        messages: &args.message,
        collect: context.json,
    });
    // If it fails, the lease ends with this process.
    let _ = engine.release(lease.id, Some(lease.token));
    made.map_err(|error| report(&error))
}

/// The caller: the owner that a flag names, else the agent whose process runs this command, else a person.
fn caller(context: &Context, flag: Option<&str>) -> Result<Caller, Report> {
    let flag: Option<Owner> = flag.map(str::parse).transpose()?;
    let here = origin::origin().map_err(OpenError::Machine)?;
    let sessions = if takes_part(&context.location) {
        Sessions::new(&context.location.state).all(&here).map_err(|error| Report::machine(&error))?
    } else {
        Vec::new()
    };
    // Where no ancestors can be seen, the environment has to name the agent.
    let ancestors = process::with_ancestors().unwrap_or_default();
    let variable = |name: &str| std::env::var(name).ok().filter(|value| !value.is_empty());
    Ok(Caller::find(&sessions, context.named_owner(flag.as_ref()), &ancestors, &here, &variable))
}

fn selection(
    args: &Args,
    git: &Git,
    engine: &Engine,
    work_tree: &str,
    owners: &[Owner],
) -> Result<Selection, Report> {
    if !args.paths.is_empty() {
        let cwd = std::env::current_dir().map_err(|error| Report::machine(&error))?;
        return Selection::named_from(&cwd, &args.paths, git).map_err(|error| {
            Report::usage(error.to_string()).with_hint("run the command inside of the repository of the file")
        });
    }
    let owner = match owners {
        [owner] => owner,
        [] => {
            return Err(Report::usage("it is not known whose changes to commit")
                .with_hint("give the PATHs to commit, or name the owner of the claims with --owner"));
        }
        _ => {
            return Err(Report::usage("several agents run in the process that runs this command").with_hint(
                "say which one it is with --owner, as `lockkeeper board` shows it, or give the PATHs",
            ));
        }
    };
    Ok(Selection::claimed_by(owner, engine, work_tree)?)
}

/// Reports that somebody else still writes the index.
fn busy(blockers: &[Blocker]) -> Report {
    print::held(blockers, None).with_hint("`lockkeeper why git/index` shows who writes it; then commit again")
}

/// Takes `git/index`, and waits for others that commit.
fn hold_index(
    context: &Context,
    engine: &Engine,
    resident: &Resident,
    caller: &Caller,
) -> Result<Lease, Report> {
    let request = index_request(resident, caller, leases_around(context)).map_err(OpenError::Machine)?;
    let settings =
        WaitSettings { waiting: Waiting::For(USUAL), keep_ticket: false, signals_win: true, quiet: false };
    match obtain(context, engine, request, &settings)?.acquired {
        Acquired::Granted(grant) => Ok(grant.lease),
        Acquired::Held(blockers) => Err(busy(&blockers)),
        Acquired::Waiting(waiting) | Acquired::Interrupted(waiting) => Err(busy(&waiting.blockers)),
        Acquired::Deadlock(links) => Err(print::deadlock(&links)),
        Acquired::Gone => Err(print::ticket_gone()),
    }
}

fn show(context: &Context, made: &Committed) {
    let text = |path: &Path| path.to_string_lossy().into_owned();
    let paths: Vec<String> = made.paths.iter().map(|path| text(path)).collect();
    let index_hint = "the commit is made, but the common index could not be updated, so `git status` shows these paths as \
        staged: run `git reset -q -- PATH…` for them";
    if context.json {
        let left_out: Vec<Value> =
            made.left_out.iter().map(|(path, why)| json!({ "path": text(path), "why": why })).collect();
        let foreign: Vec<Value> = made
            .foreign
            .iter()
            .map(|found| json!({ "path": text(&found.path), "owner": found.owner.as_str() }))
            .collect();
        let released: Vec<String> = made.released.iter().map(|lease| lease.id.to_string()).collect();
        let index_warning = made.index_error.as_ref().map(|error| format!("{error}: {index_hint}"));
        let warning = index_warning.or_else(|| made.release_error.as_ref().map(release_warning));
        print::json(&json!({
            "done": true, "commit": made.commit, "paths": paths, "left_out": left_out, "foreign": foreign,
            "released": released, "output": made.output, "warning": warning,
        }));
        return;
    }
    if !made.foreign.is_empty() {
        print::talk(&format!("warning: others work on these paths: {}", shown_foreign(&made.foreign)));
    }
    for (path, why) in &made.left_out {
        print::talk(&format!("left out: {} ({why})", text(path).escape_debug()));
    }
    if let Some(error) = &made.index_error {
        print::talk(&format!("warning: {error}: {index_hint}"));
    }
    if let Some(error) = &made.release_error {
        print::talk(&format!("warning: {}", release_warning(error)));
    }
    let count = |number: usize, what: &str| format!("{number} {what}{}", if number == 1 { "" } else { "s" });
    let (files, claims) = (count(paths.len(), "file"), count(made.released.len(), "claim"));
    print::talk(&format!("committed {files}, released {claims}"));
    print::data(&made.commit);
}

fn release_warning(error: &OpenError) -> String {
    format!(
        "{error}: the commit is made, but the claims could not be released: `lockkeeper release --mine` does it"
    )
}

fn no_repository(error: &GitError) -> Report {
    Report::of(Exit::Failed, "GIT_FAILED", error).with_hint(
        "run the command inside of the work tree of a git repository, and check that git is installed",
    )
}

fn report(error: &CommitError) -> Report {
    let of = |exit, code| Report::of(exit, code, error);
    match error {
        CommitError::UnderWay { way_out, .. } => of(Exit::Refused, "GIT_OPERATION_UNDER_WAY")
            .with_hint(format!("nothing was changed; end it first with {way_out}")),
        CommitError::Nothing(_) => of(Exit::Failed, "NOTHING_TO_COMMIT").with_hint(
            "`lockkeeper board` shows who has claimed what; give the PATHs of files that nobody has claimed",
        ),
        CommitError::Unmerged(_) => of(Exit::Refused, "UNRESOLVED_CONFLICT")
            .with_hint("nothing was changed; resolve the conflicts, `git add` the file, and commit again"),
        CommitError::Held(found) => {
            let list: Vec<Value> = found
                .iter()
                .map(|found| json!({ "path": found.path.to_string_lossy(), "owner": found.owner.as_str() }))
                .collect();
            of(Exit::Refused, "PATHS_HELD")
                .with_hint(
                    "nothing was changed; leave these paths out, or ask `lockkeeper why` about one of them",
                )
                .with_context("foreign", list)
        }
        CommitError::IndexLocked(_) => of(Exit::Refused, "INDEX_LOCKED").with_hint(
            "nothing was committed; end the other command, such as a `git commit` whose editor is open, and call again. If no git \
             command runs in this work tree, remove the file",
        ),
        CommitError::HeadMoved => of(Exit::Refused, "HEAD_MOVED").with_hint(
            "nothing was changed; somebody else has committed or switched: look at it, and commit again",
        ),
        CommitError::Refused { output } => of(Exit::Failed, "COMMIT_REFUSED")
            .with_hint("nothing was changed; the message of git, or of a hook of the repository, says why")
            .with_context("output", output.as_str()),
        CommitError::Git(_) | CommitError::Io(_) => {
            of(Exit::Failed, "GIT_FAILED").with_hint("nothing was committed")
        }
        CommitError::Unseen(_) => of(Exit::Failed, "GIT_FAILED")
            .with_hint("look at `git log`: the commit is there, the claims are still held"),
        CommitError::Store(error) => error.into(),
    }
}
