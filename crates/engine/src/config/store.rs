//! Which store the settings name: a folder of this machine, or a server that several machines share.

use std::path::{Path, PathBuf};
use std::time::Duration;

use lockkeeper_core::time::format_span;

use super::{Config, ConfigError, Flags, Inputs, Setting, Source};
use crate::location::{Location, LocationError, LocationInputs};
use crate::report::{Exit, Report};
use crate::shared_store::{AddressError, SharedStore, SharedStoreError, SharedStoreSettings, is_server};

/// How long a command may take to end by itself, unless a setting says otherwise.
pub const GRACE: Duration = Duration::from_secs(10);

/// The settings of the project around a folder.
pub struct ProjectConfig {
    /// The settings.
    pub config: Config,
    /// The root of the project, also where its state folder cannot be found.
    pub root: PathBuf,
    inputs: LocationInputs,
    /// Where the state folder is if no setting names one.
    unnamed: Result<Location, LocationError>,
}

impl ProjectConfig {
    /// Reads the settings that hold at a place.
    pub fn load(inputs: LocationInputs, flags: &Flags) -> Result<Self, ConfigError> {
        let unnamed = inputs.locate();
        let root = unnamed.as_ref().map_or_else(|_| inputs.root(), |found| found.root.clone());
        let variable = |name: &str| std::env::var(name).ok();
        let config = Config::load(&Inputs { root: &root, variable: &variable, flags })?;
        Ok(Self { config, root, inputs, unnamed })
    }

    /// Finds the stores that the settings name. Paths of flags and variables are relative to `cwd`. Fails if the settings name no
    /// store that can be; the inner result fails if the git folder cannot be looked at.
    pub fn locate(self, cwd: &Path) -> Result<Result<Location, LocationError>, Report> {
        let runs = runs_setting(&self.config)?;
        let named = named_folder(&self.config, runs, &self.root)?.map(|named| cwd.join(named));
        let shared = shared_store(&self.config, runs, &self.root)?;
        let located = match named {
            Some(named) => LocationInputs { named: Some(named), ..self.inputs }.locate(),
            None => self.unnamed,
        };
        Ok(located.map(|location| Location { shared, ..location }))
    }
}

/// A setting that has a value.
fn setting<'c>(config: &'c Config, key: &str) -> Option<&'c Setting> {
    config.settings().iter().find(|setting| setting.key == key && setting.value.is_some())
}

/// The setting `runs`, if it counts: a folder that a stronger source names as `store` has both, leases and runs. Fails if the leases
/// are those of one machine, because they would not protect the runs of others.
fn runs_setting(config: &Config) -> Result<Option<&Setting>, Report> {
    let Some(runs) = setting(config, "runs") else { return Ok(None) };
    let address = runs.value.as_deref().unwrap_or_default();
    if is_folder(&runs) {
        folder_of_store(address)?;
    }
    let (what, hint) = match setting(config, "store") {
        Some(store) if !is_folder(&store) => return Ok(Some(runs)),
        Some(store) if store.source.rank() > runs.source.rank() => return Ok(None),
        Some(_) | None if is_folder(&runs) => (
            "leases and runs of one machine are in one folder",
            format!("write `store = {address:?}` instead of `runs`"),
        ),
        Some(_) | None => (
            "`runs` names a server, and the leases of one machine do not protect the runs of others",
            "write `store = \"postgres://HOST/DATABASE\"` instead of `runs`, which keeps both, or name the server of the leases as well: `store = \"etcds://HOST,HOST\"`".to_owned(),
        ),
    };
    Err(Report::new(Exit::Usage, "STORE_SETTINGS", what.to_owned()).with_hint(hint))
}

/// The state folder that `dir`, `store` or `runs` names. If several are set, the one from the stronger source wins, and `dir` loses a
/// tie.
fn named_folder(config: &Config, runs: Option<&Setting>, root: &Path) -> Result<Option<PathBuf>, Report> {
    let dir = setting(config, "dir");
    let store = setting(config, "store").filter(is_folder).or(runs.filter(is_folder));
    let store_wins = match (dir, store) {
        (Some(dir), Some(store)) => store.source.rank() >= dir.source.rank(),
        (None, Some(_)) => true,
        (Some(_) | None, None) => false,
    };
    let chosen = if store_wins { store } else { dir };
    let Some(value) = chosen.and_then(|setting| setting.value.as_deref()) else { return Ok(None) };
    let path = if store_wins { folder_of_store(value)? } else { value };
    // A path in the project's file is relative to the project. Other paths are relative to the current folder.
    let in_file = chosen.is_some_and(|setting| matches!(setting.source, Source::Project(_)));
    Ok(Some(if in_file { root.join(path) } else { PathBuf::from(path) }))
}

/// Whether a setting names a folder of this machine.
fn is_folder(setting: &&Setting) -> bool {
    !setting.value.as_deref().is_some_and(is_server)
}

/// The folder in an address `sqlite:FOLDER`.
pub fn folder_of_store(address: &str) -> Result<&str, Report> {
    match address.split_once(':') {
        Some(("sqlite", path)) if !path.is_empty() => Ok(path),
        _ => Err(Report::new(
            Exit::Usage,
            "UNKNOWN_STORE",
            format!("`{}` is not a store that this program knows", without_password(address)),
        )
        .with_hint("a folder of this machine is sqlite:FOLDER, a server for several machines postgres://HOST/DATABASE, etcds://HOST,HOST, rediss://HOST or https://HOST")),
    }
}

/// The address of a store of an unknown kind. Nobody can say where its password is, so it ends before anything that could be one.
fn without_password(address: &str) -> String {
    let may_have_one = address.contains(['@', '=']);
    let kind = address.split(|c: char| !c.is_ascii_alphanumeric() && c != '+').next().unwrap_or_default();
    if may_have_one { format!("{kind}…") } else { address.to_owned() }
}

/// The store that several machines share, if `store` names one.
fn shared_store(config: &Config, runs: Option<&Setting>, root: &Path) -> Result<Option<SharedStore>, Report> {
    let address = config.text("store").filter(|address| is_server(address));
    let runs = runs.and_then(|setting| setting.value.as_deref());
    address.map(|address| shared_store_at(address, runs, config, root)).transpose()
}

/// The store at this address, with all other settings. `runs` names another one for requests and runs.
pub fn shared_store_at(
    address: &str,
    runs: Option<&str>,
    config: &Config,
    root: &Path,
) -> Result<SharedStore, Report> {
    let (Some(connect_timeout), Some(session)) = (config.span("connect_timeout"), config.ttl("session"))
    else {
        return Err(Report::usage("`connect_timeout` and `session` have to be spans of time"));
    };
    let password_file = config.text("password_file").map(|path| root.join(path));
    let settings = SharedStoreSettings {
        address,
        runs,
        project: config.text("project"),
        password_file: password_file.as_deref(),
        connect_timeout: connect_timeout.max(Duration::from_millis(1)),
        session,
        grace: config.span("grace").unwrap_or(GRACE),
    };
    checked_store(settings)
}

/// Reads the settings of a store. An error says what can be done about it.
pub fn checked_store(settings: SharedStoreSettings<'_>) -> Result<SharedStore, Report> {
    let address = settings.address;
    SharedStore::new(settings).map_err(|error| refused(address, &error))
}

fn refused(address: &str, error: &SharedStoreError) -> Report {
    let report = Report::of(Exit::Usage, "STORE_SETTINGS", error);
    let hint = match error {
        SharedStoreError::NoProject => {
            "add `project = \"NAME\"` to lockkeeper.toml, the same for all clones, or set LOCKKEEPER_PROJECT"
                .to_owned()
        }
        SharedStoreError::ShortSession { shortest, longest, .. } => format!(
            "commands are stopped before the session can end: set `session` to {} or more, or `grace` to {} or less",
            format_span(Duration::from_secs(shortest.as_secs_f64().ceil() as u64)),
            format_span(Duration::from_secs(longest.as_secs()))
        ),
        SharedStoreError::BadProject(_) => "a name has up to 100 characters, and no blanks".to_owned(),
        SharedStoreError::KeepsNoRuns(_) | SharedStoreError::RunsWithoutLeases => {
            "write `runs = \"postgres://HOST/DATABASE\"`, or remove it: then they are beside the leases, or in the state folder of each machine where the leases are in etcd or Redis".to_owned()
        }
        SharedStoreError::Address(error) => match Hints::of(address).of_error(error) {
            Some(hint) => hint,
            None => return report,
        },
        SharedStoreError::Runs(error) => match Hints::of("postgres").of_error(error) {
            Some(hint) => hint,
            None => return report,
        },
        _ => return report,
    };
    report.with_hint(hint)
}

/// What can be done about an address, by the kind of server.
struct Hints {
    passwords: &'static str,
    encrypted: &'static str,
    roots: &'static str,
    form: &'static str,
}

impl Hints {
    fn of(address: &str) -> Self {
        if address.starts_with("postgres") {
            Self {
                passwords: "~/.pgpass, PGPASSFILE, PGPASSWORD",
                encrypted: "use sslmode=verify-full, which is the default",
                roots: "?sslrootcert=FILE",
                form: "postgres://USER@HOST:PORT/DATABASE",
            }
        } else if address.starts_with("etcd") {
            Self {
                passwords: "ETCDCTL_PASSWORD",
                encrypted: "use etcds://, with ?cacert=FILE for an authority of your own",
                roots: "?cacert=FILE",
                form: "etcds://USER@HOST:PORT,HOST:PORT?cacert=FILE&cert=FILE&key=FILE",
            }
        } else if address.starts_with("http") {
            Self {
                passwords: "the file of the token,",
                encrypted: "use https://, with a proxy before the server; in a network of your own, ?unencrypted=yes allows it",
                roots: "?sslrootcert=FILE",
                form: "https://HOST:PORT, or http://localhost:PORT",
            }
        } else {
            Self {
                passwords: "REDISCLI_AUTH",
                encrypted: "use rediss://, which encrypts",
                roots: "?sslrootcert=FILE",
                form: "rediss://USER@HOST:PORT/NUMBER, or unix:/PATH of a socket",
            }
        }
    }

    fn of_error(&self, error: &AddressError) -> Option<String> {
        Some(match error {
            AddressError::HasPassword => format!(
                "everybody can read arguments and tracked files: put the password into {} or a file that `password_file` names",
                self.passwords
            ),
            AddressError::Unencrypted { .. } => self.encrypted.to_owned(),
            AddressError::OpenFile(path) => format!("chmod 600 {}", path.display()),
            AddressError::NoRoots => format!("name a file with certificates: {}", self.roots),
            AddressError::Unreadable(_) => format!("an address is {}", self.form),
            _ => return None,
        })
    }
}
