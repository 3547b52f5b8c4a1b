//! The store that several machines share, as the settings name it.

use std::path::{Path, PathBuf};
use std::time::Duration;

use lockkeeper_core::time::Ttl;
use lockkeeper_engine::open::OpenError;
use lockkeeper_engine::report::{Exit, Report};
use lockkeeper_engine::shared_store::{
    AddressError, SharedStore, SharedStoreError, SharedStoreSettings, is_server,
};
use lockkeeper_platform::random;

use crate::config::{Config, Setting};

/// Whether a setting names a folder of this machine.
pub(super) fn is_folder(setting: &&Setting) -> bool {
    !setting.value.as_deref().is_some_and(is_server)
}

/// The store that several machines share, if `store` names one.
pub(super) fn shared_store(config: &Config, root: &Path) -> Result<Option<SharedStore>, Report> {
    let address = config.text("store").filter(|address| is_server(address));
    address.map(|address| shared_store_at(address, config, root)).transpose()
}

/// The store at this address, with all other settings.
pub(super) fn shared_store_at(address: &str, config: &Config, root: &Path) -> Result<SharedStore, Report> {
    let (Some(connect_timeout), Some(session)) = (config.span("connect_timeout"), config.ttl("session"))
    else {
        return Err(Report::usage("`connect_timeout` and `session` have to be spans of time"));
    };
    let password_file = config.text("password_file").map(|path| root.join(path));
    let settings = SharedStoreSettings {
        address,
        project: config.text("project"),
        password_file: password_file.as_deref(),
        connect_timeout: connect_timeout.max(Duration::from_millis(1)),
        session,
    };
    SharedStore::new(settings).map_err(|error| refused(address, &error))
}

/// A project on this server that nobody else has.
pub(super) fn throw_away_project(address: &str) -> Result<SharedStore, Report> {
    let project = format!("demo-{:016x}", random::number().map_err(OpenError::Machine)?);
    let password_file = std::env::var_os("LOCKKEEPER_PASSWORD_FILE").map(PathBuf::from);
    let settings = SharedStoreSettings {
        address,
        project: Some(&project),
        password_file: password_file.as_deref(),
        connect_timeout: Duration::from_secs(5),
        session: Ttl::new(Duration::from_secs(30)).expect("half a minute is a TTL"),
    };
    let store = SharedStore::new(settings).map_err(|error| refused(address, &error))?;
    if store.keeps_runs() {
        return Ok(store);
    }
    Err(Report::usage(format!("{} keeps no requests and runs, which the demo shows", store.address()))
        .with_hint("name a PostgreSQL server, or no store"))
}

fn refused(address: &str, error: &SharedStoreError) -> Report {
    let report = Report::of(Exit::Usage, "STORE_SETTINGS", error);
    let hint = match error {
        SharedStoreError::NoProject => {
            "add `project = \"NAME\"` to lockkeeper.toml, the same for all clones, or set LOCKKEEPER_PROJECT"
                .to_owned()
        }
        SharedStoreError::BadProject(_) => "a name has up to 100 characters, and no blanks".to_owned(),
        SharedStoreError::Address(error) => match Hints::of(address).of_error(error) {
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
