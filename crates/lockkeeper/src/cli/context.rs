//! Context of a command: flags, settings and the state folder. Opens the stores when they are needed.

use std::cell::OnceCell;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use clap::ValueEnum;
use lockkeeper_core::git_command::GitCommand;
use lockkeeper_core::id::Owner;
use lockkeeper_engine::Engine;
use lockkeeper_engine::config::{Config, ProjectConfig, Source};
#[cfg(feature = "postgres")]
use lockkeeper_engine::config::{folder_of_store, shared_store_at};
use lockkeeper_engine::location::{Location, LocationError, LocationInputs, LocationSource};
use lockkeeper_engine::messages::{Language, Phrases};
use lockkeeper_engine::open::{OpenError, has_store, open_leases, open_leases_to_read, unique_owner};
use lockkeeper_engine::report::{Exit, Report};
use lockkeeper_engine::runs::Runs;
#[cfg(feature = "postgres")]
use lockkeeper_engine::shared_store::is_server;

use super::print;
use super::session_guardian::SessionGuardian;
use super::table::plain;

/// The heading of these flags in the help of commands.
const GLOBAL_OPTIONS: &str = "Global options";

/// Flags that every command has.
#[derive(clap::Args)]
pub(super) struct Globals {
    /// The state folder [default: inside the git folder, else .lockkeeper/]
    #[arg(long, global = true, help_heading = GLOBAL_OPTIONS, value_name = "DIR")]
    pub(super) dir: Option<String>,
    /// The store: sqlite:PATH, or one for several machines: postgres://, etcds://, rediss://
    #[arg(long, global = true, help_heading = GLOBAL_OPTIONS, value_name = "URL")]
    pub(super) store: Option<String>,
    /// Print one JSON object on stdout
    #[arg(long, global = true, help_heading = GLOBAL_OPTIONS)]
    pub(super) json: bool,
    /// Language of messages that have translations
    #[arg(long, global = true, help_heading = GLOBAL_OPTIONS, value_enum)]
    pub(super) lang: Option<Lang>,
    /// Whether to use colour
    #[arg(long, global = true, help_heading = GLOBAL_OPTIONS, value_enum, value_name = "WHEN")]
    pub(super) color: Option<When>,
}

/// Languages of messages.
#[derive(Clone, Copy, ValueEnum)]
pub(super) enum Lang {
    En,
    Ja,
    Zh,
}

/// When to use colour.
#[derive(Clone, Copy, ValueEnum)]
pub(super) enum When {
    Auto,
    Always,
    Never,
}

/// The settings and folders of a command.
pub(super) struct Context {
    pub(super) json: bool,
    pub(super) config: Config,
    pub(super) location: Location,
    /// Why the state folder is not known, if it is not.
    no_state: Option<LocationError>,
    pub(super) cwd: PathBuf,
    phrases: OnceCell<Arc<Phrases>>,
    /// Set once the user was told that the named folder does not exist.
    told_absent: OnceCell<()>,
}

impl Context {
    pub(super) fn new(globals: &Globals) -> Result<Self, Report> {
        let context = Self::without_store(globals)?;
        context.state()?;
        Ok(context)
    }

    /// The context of a file that may be in another repository than the current folder.
    pub(super) fn of_file(globals: &Globals, file: &Path) -> Result<Self, Report> {
        let folder = std::fs::canonicalize(file).ok().and_then(|file| Some(file.parent()?.to_owned()));
        let mut inputs = inputs()?;
        let cwd = inputs.cwd.clone();
        if let Some(folder) = folder.filter(|folder| !is_same_repository(folder, &inputs)) {
            inputs = LocationInputs { cwd: folder, ..LocationInputs::default() };
        }
        let context = Self::at(globals, inputs, cwd)?;
        context.state()?;
        Ok(context)
    }

    /// The context of the repository that a git command line uses.
    pub(super) fn of_git(globals: &Globals, command: &GitCommand<'_>) -> Result<Self, Report> {
        let mut inputs = inputs()?;
        let cwd = inputs.cwd.clone();
        inputs.cwd = command.folders().fold(cwd.clone(), |folder, next| folder.join(next));
        inputs.git_dir = command.git_dir().map(ToOwned::to_owned).or(inputs.git_dir);
        let context = Self::at(globals, inputs, cwd)?;
        context.state()?;
        Ok(context)
    }

    /// The context of commands that also work where the state folder is not known. The location then has only the root.
    pub(super) fn without_store(globals: &Globals) -> Result<Self, Report> {
        let inputs = inputs()?;
        let cwd = inputs.cwd.clone();
        Self::at(globals, inputs, cwd)
    }

    /// Paths of flags and variables are relative to `cwd`, also where the repository is looked for elsewhere.
    fn at(globals: &Globals, inputs: LocationInputs, cwd: PathBuf) -> Result<Self, Report> {
        let project = ProjectConfig::load(inputs, &flag_values(globals))?;
        choose_color(project.config.text("color").unwrap_or("auto"));
        let (config, root) = (project.config.clone(), project.root.clone());
        let (location, no_state) = match project.locate(&cwd)? {
            Ok(location) => (location, None),
            Err(error) => (
                Location { state: PathBuf::new(), root, source: LocationSource::Here, shared: None },
                Some(error),
            ),
        };
        let (json, phrases, told_absent) = (globals.json, OnceCell::new(), OnceCell::new());
        Ok(Self { json, config, location, no_state, cwd, phrases, told_absent })
    }

    /// The language of messages: the setting, else that of the environment.
    pub(super) fn language(&self) -> Language {
        let setting = self.config.text("lang").and_then(Language::of_tag);
        setting.unwrap_or_else(|| Language::of_environment(&|name| std::env::var(name).ok()))
    }

    /// A sentence in the language of the user.
    pub(super) fn say(&self, key: &str, values: &[(&str, &str)]) -> String {
        self.phrases().fill(key, values)
    }

    /// The sentences in the language of the user, also for other threads.
    pub(super) fn phrases(&self) -> &Arc<Phrases> {
        self.phrases.get_or_init(|| Arc::new(Phrases::load(self.language())))
    }

    /// The location of leases and runs in a store that an argument names.
    #[cfg(feature = "postgres")]
    pub(super) fn location_of(&self, address: &str) -> Result<Location, Report> {
        let root = self.location.root.clone();
        if is_server(address) {
            // Small files are in the state folder all the same.
            let shared = Some(shared_store_at(address, None, &self.config, &root)?);
            return Ok(Location { shared, ..self.location.clone() });
        }
        let state = self.cwd.join(folder_of_store(address)?);
        Ok(Location { state, root, source: LocationSource::Named, shared: None })
    }

    /// The state folder.
    fn state(&self) -> Result<&Path, Report> {
        match &self.no_state {
            Some(error) => Err(error.into()),
            None => Ok(&self.location.state),
        }
    }

    /// Opens the lease store. Creates it if it does not exist.
    pub(super) fn engine(&self) -> Result<Engine, Report> {
        self.state()?;
        Ok(open_leases(&self.location)?)
    }

    /// Opens the lease store to acquire a lease. Creates it if it does not exist, and warns if that is outside of git.
    pub(super) fn engine_to_lock(&self, quiet: bool) -> Result<Engine, Report> {
        self.warn_of_new_folder("lock.new_folder", quiet)?;
        self.engine()
    }

    /// Opens the run store to use its queue. Creates it if it does not exist, and warns if that is outside of git.
    pub(super) fn runs_to_queue(&self, quiet: bool) -> Result<Runs, Report> {
        self.warn_of_new_folder("queue.new_folder", quiet)?;
        self.runs()
    }

    /// Warns where a new state folder is made outside of git: processes in other folders would not find it. Where there is one
    /// already, the warning was shown when it was made.
    fn warn_of_new_folder(&self, key: &str, quiet: bool) -> Result<(), Report> {
        let is_here = self.location.source == LocationSource::Here && self.location.shared.is_none();
        if is_here && !self.json && !quiet {
            let state = plain(&self.state()?.display().to_string());
            print::talk(&self.say(key, &[("state", &state)]));
        }
        Ok(())
    }

    /// Opens the lease store for a process that holds leases for the commands that it starts, until it ends.
    pub(super) fn engine_to_execute(&self) -> Result<Engine, Report> {
        if let Some(guardian) = SessionGuardian::start(self, None)? {
            guardian.stay();
        }
        self.engine()
    }

    /// Opens the lease store if it exists. A command that only reads creates nothing.
    pub(super) fn existing_engine(&self) -> Result<Option<Engine>, Report> {
        let exists = self.location.shared.is_some() || has_store(self.state()?);
        if exists { self.engine().map(Some) } else { Ok(None) }
    }

    /// Opens the lease store, if it exists, for a command that only reads. It also works where the folder is read-only.
    pub(super) fn engine_to_read(&self) -> Result<Option<Engine>, Report> {
        self.state()?;
        let found = open_leases_to_read(&self.location)?;
        if found.is_none() {
            self.warn_if_absent();
        }
        Ok(found)
    }

    /// Opens the run store. Creates it if it does not exist.
    pub(super) fn runs(&self) -> Result<Runs, Report> {
        self.state()?;
        Runs::at(&self.location).map_err(Report::from)
    }

    /// Opens the run store if it exists. A command that only reads creates nothing.
    pub(super) fn existing_runs(&self) -> Result<Option<Runs>, Report> {
        self.state()?;
        let runs = Runs::existing_at(&self.location)?;
        if runs.is_none() {
            self.warn_if_absent();
        }
        Ok(runs)
    }

    /// Warns, once, if the state folder was named and does not exist: its name may be misspelt, and nothing is ever found there.
    fn warn_if_absent(&self) {
        let Location { state, source, .. } = &self.location;
        if *source == LocationSource::Named && !state.exists() && self.told_absent.set(()).is_ok() {
            let state = plain(&state.display().to_string());
            print::talk(&format!(
                "warning: there is no state folder {state}; the first lock or request makes it\n  \
                 `lockkeeper config` shows which flag, variable or file names it"
            ));
        }
    }

    /// The folder that a setting names. A path in the project's file is relative to the project, others to the current folder.
    pub(super) fn folder(&self, key: &str) -> Option<PathBuf> {
        let setting = self.config.settings().iter().find(|setting| setting.key == key)?;
        let base = match setting.source {
            Source::Project(_) => &self.location.root,
            Source::Default | Source::User(_) | Source::Environment(_) | Source::Flag(_) => &self.cwd,
        };
        setting.value.as_ref().map(|path| base.join(path))
    }

    /// The owner that the flag or the settings name.
    pub(super) fn named_owner(&self, flag: Option<&Owner>) -> Option<Owner> {
        flag.cloned().or_else(|| self.config.text("owner").and_then(|text| text.parse().ok()))
    }

    /// The named owner, or a new unique one. Also returns whether it was named.
    pub(super) fn owner(&self, flag: Option<&Owner>, kind: &str) -> Result<(Owner, bool), Report> {
        match self.named_owner(flag) {
            Some(owner) => Ok((owner, true)),
            None => Ok((unique_owner(kind).map_err(OpenError::Machine)?, false)),
        }
    }
}

/// What the location of this process depends on.
fn inputs() -> Result<LocationInputs, Report> {
    LocationInputs::of_process(None).map_err(|error| {
        Report::new(Exit::Failed, "MACHINE", format!("cannot find out the current folder: {error}"))
            .with_hint("it may have been removed: change to another folder")
    })
}

/// Whether a folder belongs to the repository of the current folder.
fn is_same_repository(folder: &Path, inputs: &LocationInputs) -> bool {
    let there = LocationInputs { cwd: folder.to_owned(), ..LocationInputs::default() }.locate();
    matches!((there, inputs.locate()), (Ok(there), Ok(here)) if (&there.state, &there.root) == (&here.state, &here.root))
}

/// The language of an error, also if the settings cannot be read.
pub(super) fn language(globals: &Globals) -> Language {
    match Context::without_store(globals) {
        Ok(context) => context.language(),
        Err(_) => {
            let flag = globals.lang.and_then(|lang| lang.to_possible_value());
            language_of(flag.as_ref().map(|lang| lang.get_name()))
        }
    }
}

/// The language that a flag or the environment names.
pub(super) fn language_of(flag: Option<&str>) -> Language {
    let variable = |name: &str| std::env::var(name).ok();
    let setting = flag.map(str::to_owned).or_else(|| variable("LOCKKEEPER_LANG"));
    let named = setting.as_deref().and_then(Language::of_tag);
    named.unwrap_or_else(|| Language::of_environment(&variable))
}

/// The settings from the flags, as key, flag and value.
fn flag_values(globals: &Globals) -> Vec<(&'static str, &'static str, String)> {
    let mut values = Vec::new();
    values.extend(globals.dir.clone().map(|dir| ("dir", "--dir", dir)));
    values.extend(globals.store.clone().map(|store| ("store", "--store", store)));
    let lang = globals.lang.and_then(|lang| lang.to_possible_value());
    values.extend(lang.map(|lang| ("lang", "--lang", lang.get_name().to_owned())));
    let color = globals.color.and_then(|when| when.to_possible_value());
    values.extend(color.map(|when| ("color", "--color", when.get_name().to_owned())));
    values
}

fn choose_color(when: &str) {
    let choice = match when {
        "always" => anstream::ColorChoice::Always,
        "never" => anstream::ColorChoice::Never,
        _ => anstream::ColorChoice::Auto,
    };
    choice.write_global();
}
