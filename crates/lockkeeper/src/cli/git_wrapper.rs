//! `git` as commands of `stages run` and `exec --git` see it: this program under another name, first in their `PATH`.
//!
//! A command that writes the index waits for its turn on `git/index`. All others, and all commands in a repository without a
//! store of ours, start the real git at once. If this program is gone, the link leads nowhere, and the shell takes the next git in
//! `PATH`. If something other than a holder keeps it from getting the lock, git runs without the lock.

use std::ffi::{OsStr, OsString};
use std::io;
use std::os::unix::fs::{MetadataExt, PermissionsExt, symlink};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::Command;

use lockkeeper_agents::{Git, GitError, OwnIndex, Staging};
use lockkeeper_core::git_command::{Alias, GitCommand, IndexUse, alias};
use lockkeeper_core::id::{LeaseId, Owner};
use lockkeeper_core::lease::AcquireRequest;
use lockkeeper_core::liveness::Contract;
use lockkeeper_core::record::{Claim, Lease, Priority};
use lockkeeper_core::resource::{Mode, Resource, Target};
use lockkeeper_engine::open::{OpenError, has_store, unique_owner};
use lockkeeper_engine::report::{Exit, Report};
use lockkeeper_engine::{Acquired, Engine, Resident};
use lockkeeper_platform::exec::{Ending, Spec, start};
use lockkeeper_platform::signal::Signal;

use super::args::Waiting;
use super::context::{Context, Globals};
use super::exec::{leases_around, under_variable};
use super::obtain::{WaitSettings, grace, obtain};
use super::print;

/// The name under which this program acts as git.
const NAME: &str = "git";
/// How many aliases in a row are resolved. Git refuses cycles.
const MAX_ALIASES: usize = 8;

/// Says whether this program was started as git.
pub(super) fn is_called(program: Option<&OsString>) -> bool {
    program.and_then(|program| Path::new(program).file_name()).is_some_and(|name| name == NAME)
}

/// Makes the link in the state folder, and returns the `PATH` in which it is first. None if there cannot be one.
pub(super) fn path_with_wrapper(context: &Context) -> Option<OsString> {
    let state = &context.location.state;
    let warn = |why: &str| print::talk(&context.say("git.no_wait", &[("why", why)]));
    let folder = state.join("bin");
    let path = std::env::var_os("PATH").unwrap_or_else(|| "/usr/local/bin:/usr/bin:/bin".into());
    let others = std::env::split_paths(&path).filter(|entry| *entry != folder);
    let joined = std::env::join_paths(std::iter::once(folder.clone()).chain(others));
    match (joined, make_link(&folder)) {
        (Ok(path), Ok(())) => Some(path),
        (Err(_), _) => {
            warn("the state folder has a colon in its path");
            None
        }
        (_, Err(error)) => {
            warn(&error.to_string());
            None
        }
    }
}

/// Makes the link, or replaces one that leads to another program.
fn make_link(folder: &Path) -> io::Result<()> {
    let program = std::env::current_exe()?;
    let link = folder.join(NAME);
    if std::fs::read_link(&link).is_ok_and(|target| target == program) {
        return Ok(());
    }
    lockkeeper_platform::access::make_folder(folder)?;
    let new = folder.join(format!("{NAME}.{}", std::process::id()));
    symlink(&program, &new)?;
    std::fs::rename(&new, &link)
}

/// Runs git. A command that writes the index first waits for `git/index`.
pub(super) fn run(words: &[OsString]) -> Exit {
    let Some(git) = real_git() else {
        print::talk("git: command not found");
        return Exit::Command(127);
    };
    let meaning = meaning(&git, words);
    if meaning.index_use == IndexUse::Reads {
        // `git status` and others would also write the index, with fresh times of files, and stop those that have to write it.
        return replace_process(Command::new(&git).env("GIT_OPTIONAL_LOCKS", "0"), words);
    }
    match take_turn(words) {
        Ok(Turn::Taken(turn)) => turn.run(&git, words, meaning.commits_staged),
        Ok(Turn::NotNeeded) => become_git(&git, words),
        Ok(Turn::Interrupted(signal)) => print::interrupted(signal),
        Err(report) => {
            print::talk(&format!("warning: git does not wait for others that write the index: {report}"));
            become_git(&git, words)
        }
    }
}

/// The next git in `PATH` that is not this program.
fn real_git() -> Option<PathBuf> {
    let identity = |path: &Path| path.metadata().ok().map(|meta| (meta.dev(), meta.ino()));
    let own = std::env::current_exe().ok().and_then(|own| identity(&own));
    let path = std::env::var_os("PATH")?;
    let candidates = std::env::split_paths(&path).map(|folder| folder.join(NAME));
    candidates.into_iter().find(|candidate| {
        let meta =
            candidate.metadata().ok().filter(|meta| meta.is_file() && meta.permissions().mode() & 0o111 != 0);
        meta.is_some() && identity(candidate) != own
    })
}

/// What a command line does after its aliases are resolved.
struct Meaning {
    index_use: IndexUse,
    commits_staged: bool,
}

/// Says what a command line does. Asks git about aliases. An unknown program, such as git-flow, may write the index.
fn meaning(git: &Path, words: &[OsString]) -> Meaning {
    let command = GitCommand::parse(words);
    let mut line: Vec<OsString> = command.name.into_iter().map(OsStr::to_owned).collect();
    line.extend_from_slice(command.arguments);
    for _ in 0..MAX_ALIASES {
        let now = GitCommand::parse(&line);
        let unknown = now.name.filter(|_| now.index_use() == IndexUse::Unknown);
        let Some(value) = unknown.and_then(|name| alias_value(git, &command, name)) else { break };
        match alias(&value) {
            Alias::Shell(index_use) => return Meaning { index_use, commits_staged: false },
            Alias::Command(mut words) => {
                words.extend_from_slice(now.arguments);
                line = words;
            }
        }
    }
    let now = GitCommand::parse(&line);
    Meaning { index_use: now.index_use(), commits_staged: now.commits_staged() }
}

fn alias_value(git: &Path, command: &GitCommand<'_>, name: &OsStr) -> Option<String> {
    let mut key = OsString::from("alias.");
    key.push(name);
    let asked = Command::new(git).args(command.options).args(["config", "--get"]).arg(key).output().ok()?;
    String::from_utf8(asked.stdout).ok().filter(|_| asked.status.success())
}

/// Replaces this process by git.
fn become_git(git: &Path, words: &[OsString]) -> Exit {
    replace_process(&mut Command::new(git), words)
}

fn replace_process(git: &mut Command, words: &[OsString]) -> Exit {
    let error = git.arg0(NAME).args(words).exec();
    print::talk(&format!("{}: {error}", Path::new(git.get_program()).display()));
    Exit::Command(126)
}

/// The result of waiting for `git/index`.
enum Turn {
    /// This command holds it.
    Taken(Box<Taken>),
    /// The repository has no store, or a command that this one is a part of has the lock.
    NotNeeded,
    /// A signal came while it waited.
    Interrupted(Signal),
}

struct Taken {
    context: Context,
    engine: Engine,
    resident: Resident,
    lease: Lease,
}

/// Waits for `git/index` in the repository of a command line. All work trees of a repository share it, as they share the store and
/// the refs.
fn take_turn(words: &[OsString]) -> Result<Turn, Report> {
    let command = GitCommand::parse(words);
    let globals = Globals { dir: None, store: None, json: false, lang: None, color: None };
    let context = Context::of_git(&globals, &command)?;
    if !has_store(&context.location.state) {
        return Ok(Turn::NotNeeded);
    }
    let engine = context.engine()?;
    let resident = engine.resident().map_err(OpenError::Machine)?;
    let index = "git/index".parse().expect("it is a name");
    let reason = command.name.map(|name| format!("git {}", name.to_string_lossy()));
    let claim = Claim {
        owner: unique_owner(NAME).map_err(OpenError::Machine)?,
        resources: vec![Resource { target: Target::Name(index), mode: Mode::Exclusive }],
        proof: resident.proof(),
        contract: Contract::Strict,
        ttl: None,
        reason,
        ticket: None,
        agent: None,
    };
    let under = leases_around(&context);
    let request = AcquireRequest { claim, priority: Priority::default(), under, wait: None, join: false };
    let settings =
        WaitSettings { waiting: Waiting::Forever, keep_ticket: false, signals_win: true, quiet: true };
    let obtained = obtain(&context, &engine, request, &settings)?;
    if let Some(signal) = obtained.signal {
        return Ok(Turn::Interrupted(signal));
    }
    match obtained.acquired {
        Acquired::Granted(grant) => {
            Ok(Turn::Taken(Box::new(Taken { context, engine, resident, lease: grant.lease })))
        }
        // A hook of the git that has the lock, or a command of `exec git/index`: waiting for it would never end.
        Acquired::Deadlock(_) => Ok(Turn::NotNeeded),
        Acquired::Held(blockers) => Err(print::held(&blockers, None)),
        Acquired::Waiting(waiting) | Acquired::Interrupted(waiting) => {
            Err(print::held(&waiting.blockers, None))
        }
        Acquired::Gone => Err(print::ticket_gone()),
    }
}

impl Taken {
    fn run(&self, git: &Path, words: &[OsString], commits_staged: bool) -> Exit {
        let around = leases_around(&self.context);
        let owner = self.owner(&around);
        let staging = owner.as_ref().and_then(|owner| warned(self.staging(git, words, owner)).flatten());
        let own_index =
            staging.as_ref().filter(|_| commits_staged).and_then(|it| warned(it.own_index()).flatten());
        let spec = self.spec(git, words, around, own_index.as_ref().map(OwnIndex::path));
        let ended = start(&spec, Some(self.resident.lock()))
            .map(|running| self.engine.supervise(running, &self.lease, grace(&self.context)));
        if let Some(staging) = staging {
            let succeeded = matches!(&ended, Ok(Ok(ended)) if ended.ending == Ending::Exited(0));
            if own_index.is_some() && succeeded {
                warned(staging.committed());
            }
            warned(staging.record());
        }
        // If the release fails, the end of this process frees the lease.
        drop(self.engine.release(self.lease.id, Some(self.lease.token)));
        match ended {
            Ok(Ok(supervised)) => print::pass_on(supervised.ending),
            Ok(Err(error)) => {
                print::talk(&format!("git may still run: {error}"));
                Exit::Failed
            }
            Err(_) => become_git(git, words),
        }
    }

    /// The owner of the lease that the command runs under: a group of stages, or `exec`.
    fn owner(&self, around: &[LeaseId]) -> Option<Owner> {
        let claims = around.iter().filter_map(|id| self.engine.claim(*id).ok().flatten());
        claims.map(|claim| claim.owner.clone()).next()
    }

    /// What is staged, and by whom. None if the command line or the environment names an index or a repository of its own.
    fn staging<'s>(
        &'s self,
        git: &Path,
        words: &[OsString],
        owner: &'s Owner,
    ) -> Result<Option<Staging<'s>>, GitError> {
        let command = GitCommand::parse(words);
        let named = ["GIT_INDEX_FILE", "GIT_DIR", "GIT_WORK_TREE"]
            .iter()
            .any(|name| std::env::var_os(name).is_some());
        if named || command.names_work_tree() {
            return Ok(None);
        }
        let folder = command.folders().fold(self.context.cwd.clone(), |folder, next| folder.join(next));
        let tree = Git::find_by(git.as_os_str(), &folder)?;
        Staging::look(tree, &self.context.location.state, &self.engine, owner)
    }

    fn spec(&self, git: &Path, words: &[OsString], mut around: Vec<LeaseId>, index: Option<&Path>) -> Spec {
        around.push(self.lease.id);
        let mut env = vec![under_variable(&self.context, &around)];
        env.extend(index.map(|index| ("GIT_INDEX_FILE".into(), index.into())));
        Spec { program: git.into(), args: words.to_vec(), env, ..Spec::default() }
    }
}

/// Warns of an error. Git works without the list of what is staged, as it would without this program.
fn warned<T>(result: Result<T, GitError>) -> Option<T> {
    result.inspect_err(|error| print::talk(&format!("warning: who staged what is not known: {error}"))).ok()
}
