//! Context of a command: flags, settings and the state folder. Opens the stores when they are needed.

use std::path::{Path, PathBuf};

use clap::ValueEnum;
use lockkeeper_core::id::Owner;
use lockkeeper_engine::Engine;
use lockkeeper_engine::location::{Location, LocationError, LocationInputs, LocationSource};
use lockkeeper_engine::open::{OpenError, has_store, open_engine, open_engine_to_read, unique_owner};
use lockkeeper_engine::report::{Exit, Report};
use lockkeeper_engine::runs::Runs;

use crate::config::{Config, Inputs, Source};

/// Flags that every command has.
#[derive(clap::Args)]
pub(super) struct Globals {
    /// The state folder [default: inside the git folder, else .lockkeeper/]
    #[arg(long, global = true, value_name = "DIR")]
    pub(super) dir: Option<String>,
    /// The store: sqlite:PATH
    #[arg(long, global = true, value_name = "URL")]
    pub(super) store: Option<String>,
    /// Print one JSON object on stdout
    #[arg(long, global = true)]
    pub(super) json: bool,
    /// Language of messages that have translations
    #[arg(long, global = true, value_enum)]
    pub(super) lang: Option<Lang>,
    /// Whether to use colour
    #[arg(long, global = true, value_enum, value_name = "WHEN")]
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
}

impl Context {
    pub(super) fn new(globals: &Globals) -> Result<Self, Report> {
        let context = Self::without_store(globals)?;
        context.state()?;
        Ok(context)
    }

    /// For commands that also work where the state folder is not known. The location then has only the root.
    pub(super) fn without_store(globals: &Globals) -> Result<Self, Report> {
        let no_cwd = |error: std::io::Error| {
            Report::new(Exit::Failed, "MACHINE", format!("cannot find out the current folder: {error}"))
                .with_hint("it may have been removed: change to another folder")
        };
        let mut inputs = LocationInputs::of_process(None).map_err(no_cwd)?;
        let unnamed = inputs.locate();
        let root = unnamed.as_ref().map_or_else(|_| inputs.root(), |found| found.root.clone());
        let flags = flag_values(globals);
        let variable = |name: &str| std::env::var(name).ok();
        let config = Config::load(&Inputs { root: &root, variable: &variable, flags: &flags })?;
        choose_color(config.text("color").unwrap_or("auto"));
        inputs.named = named_folder(&config, &root)?;
        let located = if inputs.named.is_some() { inputs.locate() } else { unnamed };
        let (location, no_state) = match located {
            Ok(location) => (location, None),
            Err(error) => {
                (Location { state: PathBuf::new(), root, source: LocationSource::Here }, Some(error))
            }
        };
        Ok(Self { json: globals.json, config, location, no_state, cwd: inputs.cwd })
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
        Ok(open_engine(self.state()?)?)
    }

    /// Opens the lease store if it exists. A command that only reads creates nothing.
    pub(super) fn existing_engine(&self) -> Result<Option<Engine>, Report> {
        if has_store(self.state()?) { self.engine().map(Some) } else { Ok(None) }
    }

    /// Opens the lease store, if it exists, for a command that only reads. It also works where the folder is read-only.
    pub(super) fn engine_to_read(&self) -> Result<Option<Engine>, Report> {
        let state = self.state()?;
        Ok(if has_store(state) { Some(open_engine_to_read(state)?) } else { None })
    }

    /// Opens the run store. Creates it if it does not exist.
    pub(super) fn runs(&self) -> Result<Runs, Report> {
        Runs::open(self.state()?).map_err(Report::from)
    }

    /// Opens the run store if it exists. A command that only reads creates nothing.
    pub(super) fn existing_runs(&self) -> Result<Option<Runs>, Report> {
        Runs::open_existing(self.state()?).map_err(Report::from)
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

/// The state folder that `dir` or `store` names. If both are set, the one from the stronger source wins, and `store` wins a
/// tie.
fn named_folder(config: &Config, root: &Path) -> Result<Option<PathBuf>, Report> {
    let setting =
        |key: &str| config.settings().iter().find(|setting| setting.key == key && setting.value.is_some());
    let (dir, store) = (setting("dir"), setting("store"));
    let store_wins = match (dir, store) {
        (Some(dir), Some(store)) => store.source >= dir.source,
        (None, Some(_)) => true,
        (Some(_) | None, None) => false,
    };
    let chosen = if store_wins { store } else { dir };
    let Some(value) = chosen.and_then(|setting| setting.value.as_deref()) else { return Ok(None) };
    let path = if store_wins { store_path(value)? } else { value };
    // A path in the project's file is relative to the project. Other paths are relative to the current folder.
    let in_file = chosen.is_some_and(|setting| matches!(setting.source, Source::Project(_)));
    Ok(Some(if in_file { root.join(path) } else { PathBuf::from(path) }))
}

fn store_path(address: &str) -> Result<&str, Report> {
    match address.split_once(':') {
        Some(("sqlite", path)) if !path.is_empty() => Ok(path),
        _ => Err(Report::new(
            Exit::Usage,
            "UNKNOWN_STORE",
            format!("`{address}` is not a store that this program knows"),
        )
        .with_hint("the embedded one is sqlite:FOLDER")),
    }
}

fn choose_color(when: &str) {
    let choice = match when {
        "always" => anstream::ColorChoice::Always,
        "never" => anstream::ColorChoice::Never,
        _ => anstream::ColorChoice::Auto,
    };
    choice.write_global();
}
