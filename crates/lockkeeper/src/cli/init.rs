//! `init`: writes hooks and the MCP server into the settings of coding agents, and lets this repository take part.

mod outcome;

use std::io;

use clap::ValueEnum;
use lockkeeper_agents::Harness;
use lockkeeper_agents::git_guard::{self, GuardError, GuardPlace, GuardState};
use lockkeeper_agents::setup::{Folders, Scope, SetUp, SettingsFile, stable_path, user_step};
use lockkeeper_agents::{GitEvent, takes_part};
use lockkeeper_engine::location::LocationSource;
use lockkeeper_engine::report::{Exit, Report};
use lockkeeper_platform::access;
use serde_json::{Value, json};

use super::context::{Context, Globals};
use super::table::{plain, width};
use super::{Verb, print};
use outcome::{FileOutcome, Line, Outcome, diff, guard_json};

/// Set up coding agents here: they ask before each edit, and cannot overwrite each other's files
#[derive(clap::Args)]
#[command(after_help = "Example:\n  lockkeeper init\n\n\
    Hooks and the MCP server are written for each agent that is found, into the settings of this user; they do nothing in \
    repositories where `init` was not run. Running it twice changes nothing. --remove gives files back as they were.\n\
    Exit 1 if the settings of an agent could not be changed; those of the others are.")]
pub(super) struct Args {
    /// Print what would change, and change nothing
    #[arg(long)]
    dry_run: bool,
    /// Remove the hooks and the MCP server, and let this repository take part no more
    #[arg(long)]
    remove: bool,
    /// Write files in this checkout that git does not track, instead of the user's
    #[arg(long, conflicts_with = "shared")]
    project: bool,
    /// Write files in this project that are to be committed, instead of the user's
    #[arg(long)]
    shared: bool,
    /// Only these agents, found or not
    #[arg(value_name = "HARNESS", value_enum)]
    harnesses: Vec<Name>,
}

/// A harness on the command line.
#[derive(Clone, Copy)]
struct Name(Harness);

impl ValueEnum for Name {
    fn value_variants<'a>() -> &'a [Self] {
        const ALL: [Name; 8] = {
            let mut names = [Name(Harness::ALL[0]); 8];
            let mut at = 0;
            while at < names.len() {
                names[at] = Name(Harness::ALL[at]);
                at += 1;
            }
            names
        };
        &ALL
    }

    fn to_possible_value(&self) -> Option<clap::builder::PossibleValue> {
        Some(clap::builder::PossibleValue::new(self.0.kind()))
    }
}

impl Verb for Args {
    const NAME: &'static str = "init";

    fn run(self, globals: &Globals) -> Result<Exit, Report> {
        let context = Context::new(globals)?;
        let folders = folders(&context)?;
        let scope = match (self.project, self.shared) {
            (true, _) => Scope::Project,
            (_, true) => Scope::Shared,
            (false, false) => Scope::User,
        };
        let harnesses = self.harnesses(&folders)?;
        let program = program()?;
        let set_up = SetUp::new(&folders, scope, &program);
        // The repository has to take part first: otherwise hooks do nothing in it.
        let joins = !self.remove && !takes_part(&context.location);
        if joins && context.location.source == LocationSource::Here {
            return Err(Report::usage(format!(
                "{} is in no git repository",
                context.location.root.display()
            ))
            .with_hint("run `git init` first, or make a folder `.lockkeeper` at the root of the project"));
        }
        if joins && !self.dry_run {
            join(&context)?;
        }
        let outcomes: Vec<Outcome> =
            harnesses.into_iter().map(|harness| self.one(&set_up, harness, &folders, scope)).collect();
        let leaves = self.remove && self.harnesses.is_empty() && takes_part(&context.location);
        let guard = self.guard(&context, &program, leaves);
        if leaves && !self.dry_run {
            std::fs::remove_dir_all(context.location.state.join("agents"))
                .map_err(|error| Report::machine(&error))?;
        }
        if context.json {
            let harnesses: Vec<Value> = outcomes.iter().map(|outcome| outcome.to_json(scope)).collect();
            print::json(&json!({
                "dry_run": self.dry_run, "removed": self.remove, "harnesses": harnesses,
                "takes_part": takes_part(&context.location), "state": context.location.state,
                "git": guard.as_ref().map(guard_json),
            }));
        } else {
            self.print(&outcomes, guard.as_ref(), &folders, joins, leaves);
        }
        let failed = outcomes.iter().flat_map(|outcome| &outcome.files).any(|file| file.result.is_err());
        Ok(if failed { Exit::Failed } else { Exit::Done })
    }
}

impl Args {
    /// The harnesses that the user names, else those that are found.
    fn harnesses(&self, folders: &Folders) -> Result<Vec<Harness>, Report> {
        if !self.harnesses.is_empty() {
            return Ok(self.harnesses.iter().map(|name| name.0).collect());
        }
        if self.remove {
            return Ok(Harness::ALL.to_vec());
        }
        let found: Vec<Harness> = Harness::ALL.into_iter().filter(|harness| folders.has(*harness)).collect();
        if found.is_empty() {
            let known: Vec<&str> = Harness::ALL.iter().map(|harness| harness.kind()).collect();
            let message = format!(
                "no coding agent was found: neither its settings nor its program ({})",
                known.join(", ")
            );
            return Err(Report::new(Exit::Failed, "NO_HARNESS", message)
                .with_hint("name the agent that you will install, such as `lockkeeper init claude`"));
        }
        Ok(found)
    }

    /// Installs the git guard of this repository, or removes it when the repository takes part no more. If the guard cannot be
    /// installed, the hooks of harnesses work all the same.
    fn guard(
        &self,
        context: &Context,
        program: &str,
        leaves: bool,
    ) -> Option<Result<GuardState, GuardError>> {
        if context.location.source != LocationSource::Git {
            return None;
        }
        let root = &context.location.root;
        match (self.dry_run, self.remove) {
            (true, _) => Some(git_guard::state(root)),
            (false, false) => Some(git_guard::install(root, program)),
            (false, true) => leaves.then(|| git_guard::remove(root)),
        }
    }

    fn print_guard(&self, guard: &Result<GuardState, GuardError>, folders: &Folders) {
        match guard {
            Ok(state) => {
                let place = match &state.place {
                    GuardPlace::Settings => "configuration of this repository".to_owned(),
                    GuardPlace::Folder(folder) => plain(&folders.shown(folder)),
                };
                let what = match (self.dry_run, self.remove, state.is_complete()) {
                    (true, true, false) | (false, true, _) => "no hooks".to_owned(),
                    (true, true, true) => "hooks would be removed".to_owned(),
                    (true, false, false) => format!("{} hooks would be added", GitEvent::ALL.len()),
                    (_, false, _) => format!("{} hooks", state.present.len()),
                };
                print::out(&format!("{:<9} {place}  {what}\n", "git"));
            }
            Err(error) => {
                print::out(&format!("{:<9} no guard: {}\n", "git", plain(&error.to_string())));
                print::talk(&format!("hint: {}", error.hint()));
            }
        }
    }

    fn one(&self, set_up: &SetUp<'_>, harness: Harness, folders: &Folders, scope: Scope) -> Outcome {
        let mut files = folders.files(harness, scope);
        if self.remove {
            // Folders were made for the first file. So that file is removed last, and its folders with it.
            files.reverse();
        }
        let outcome = |file: SettingsFile| {
            let result = set_up.change(&file, self.remove, self.dry_run);
            FileOutcome { shown: folders.shown(&file.path), file, result }
        };
        let mut files: Vec<FileOutcome> = files.into_iter().map(outcome).collect();
        if self.remove {
            files.reverse();
        }
        Outcome { harness, files, step: user_step(harness, scope).filter(|_| !self.remove) }
    }

    fn print(
        &self,
        outcomes: &[Outcome],
        guard: Option<&Result<GuardState, GuardError>>,
        folders: &Folders,
        joins: bool,
        leaves: bool,
    ) {
        if self.dry_run {
            for change in outcomes.iter().flat_map(Outcome::changes) {
                print::out(&diff(change, folders));
            }
        }
        // Harnesses without our entries get no line with `--remove`.
        let shown = outcomes.iter().filter(|outcome| !self.remove || !outcome.is_unchanged());
        let shown: Vec<&Outcome> = shown.collect();
        let lines: Vec<Line<'_>> = shown.iter().flat_map(|outcome| outcome.lines(self)).collect();
        let widest = lines.iter().map(|line| width(line.file)).max().unwrap_or_default();
        for Line { name, file, text, hint } in lines {
            let blanks = " ".repeat(widest - width(file));
            print::out(&format!("{name:<9} {}{blanks}  {}\n", plain(file), plain(&text)));
            hint.into_iter().for_each(|hint| print::talk(&format!("hint: {hint}")));
        }
        if let Some(guard) = guard {
            self.print_guard(guard, folders);
        }
        let root = plain(&folders.location().root.display().to_string());
        match (self.dry_run, joins, leaves) {
            (true, true, _) => print::talk(&format!("{root} would take part")),
            (true, _, true) => print::talk(&format!("{root} would take part no more")),
            (true, false, false) => {}
            (false, _, true) => print::talk(&format!("{root} takes part no more")),
            (false, _, false) if self.remove && shown.is_empty() => print::talk("nothing to remove"),
            (false, _, false) if self.remove => {}
            (false, _, false) => print::talk("this repository takes part; try it: lockkeeper doctor"),
        }
        if self.remove && !self.project && !self.shared && !self.dry_run && !shown.is_empty() {
            print::talk("these were the user's settings: the hooks are gone in all repositories");
        }
    }
}

/// The folders of this user and project.
pub(super) fn folders(context: &Context) -> Result<Folders, Report> {
    let variable = |name: &str| std::env::var_os(name).filter(|value| !value.is_empty());
    Folders::new(variable, &context.location).ok_or_else(|| {
        Report::usage("the home folder is not known").with_hint("set HOME to an absolute path")
    })
}

/// The path of this program for the settings of harnesses.
pub(super) fn program() -> Result<String, Report> {
    let own = std::env::current_exe()
        .and_then(|own| own.canonicalize())
        .map_err(|error| Report::machine(&error))?;
    let path = stable_path(&own, std::env::var_os("PATH").as_deref());
    path.to_str().map(str::to_owned).ok_or_else(|| {
        Report::usage(format!("the path of this program is not UTF-8: {}", path.display()))
            .with_hint("install lockkeeper in another folder")
    })
}

/// Lets the repository take part.
fn join(context: &Context) -> Result<(), Report> {
    // Opening the store checks that the state folder can be used.
    context.engine()?;
    let made: io::Result<bool> = access::make_folder(&context.location.state.join("agents"));
    made.map(drop).map_err(|error| Report::machine(&error))
}
