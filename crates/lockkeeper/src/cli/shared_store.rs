//! The store that several machines share, as the settings name it.

use std::path::Path;
use std::time::Duration;

use lockkeeper_engine::report::{Exit, Report};
use lockkeeper_engine::shared_store::{SharedStore, SharedStoreError, SharedStoreSettings, is_server};

use crate::config::{Config, Setting};

/// Whether a setting names a folder of this machine.
pub(super) fn is_folder(setting: &&Setting) -> bool {
    !setting.value.as_deref().is_some_and(is_server)
}

/// The store that several machines share, if `store` names one.
pub(super) fn shared_store(config: &Config, root: &Path) -> Result<Option<SharedStore>, Report> {
    let Some(address) = config.text("store").filter(|address| is_server(address)) else { return Ok(None) };
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
    SharedStore::new(settings).map(Some).map_err(|error| refused(address, &error))
}

#[cfg_attr(
    not(any(feature = "postgres", feature = "redis")),
    expect(unused_variables, reason = "no address can be used")
)]
fn refused(address: &str, error: &SharedStoreError) -> Report {
    let report = Report::of(Exit::Usage, "STORE_SETTINGS", error);
    match error {
        SharedStoreError::NoProject => report.with_hint(
            "add `project = \"NAME\"` to lockkeeper.toml, the same for all clones, or set LOCKKEEPER_PROJECT",
        ),
        SharedStoreError::BadProject(_) => report.with_hint("a name has up to 100 characters, and no blanks"),
        #[cfg(any(feature = "postgres", feature = "redis"))]
        SharedStoreError::Address(error) => of_address(report, address.starts_with("postgres"), error),
        _ => report,
    }
}

#[cfg(any(feature = "postgres", feature = "redis"))]
fn of_address(
    report: Report,
    is_postgres: bool,
    error: &lockkeeper_engine::shared_store::AddressError,
) -> Report {
    use lockkeeper_engine::shared_store::AddressError;

    match error {
        AddressError::HasPassword if is_postgres => report.with_hint(
            "everybody can read arguments and tracked files: put the password into ~/.pgpass, PGPASSFILE, PGPASSWORD or a file \
             that `password_file` names",
        ),
        AddressError::HasPassword => report.with_hint(
            "everybody can read arguments and tracked files: put the password into REDISCLI_AUTH or a file that `password_file` \
             names",
        ),
        AddressError::Unencrypted { .. } if is_postgres => {
            report.with_hint("use sslmode=verify-full, which is the default")
        }
        AddressError::Unencrypted { .. } => report.with_hint("use rediss://, which encrypts"),
        AddressError::OpenFile(path) => report.with_hint(format!("chmod 600 {}", path.display())),
        AddressError::NoRoots => report.with_hint("name a file with certificates: ?sslrootcert=FILE"),
        AddressError::Unreadable(_) if is_postgres => {
            report.with_hint("an address is postgres://USER@HOST:PORT/DATABASE")
        }
        AddressError::Unreadable(_) => {
            report.with_hint("an address is rediss://USER@HOST:PORT/NUMBER, or unix:/PATH of a socket")
        }
        _ => report,
    }
}
