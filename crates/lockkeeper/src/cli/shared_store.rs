//! The store that several machines share, as the settings name it.

use std::path::Path;
use std::time::Duration;

use lockkeeper_engine::report::{Exit, Report};
use lockkeeper_engine::shared_store::{
    AddressError, SharedStore, SharedStoreError, SharedStoreSettings, is_server,
};

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

fn refused(address: &str, error: &SharedStoreError) -> Report {
    let report = Report::of(Exit::Usage, "STORE_SETTINGS", error);
    match error {
        SharedStoreError::NoProject => report.with_hint(
            "add `project = \"NAME\"` to lockkeeper.toml, the same for all clones, or set LOCKKEEPER_PROJECT",
        ),
        SharedStoreError::BadProject(_) => report.with_hint("a name has up to 100 characters, and no blanks"),
        SharedStoreError::Address(error) if address.starts_with("etcd") => of_etcd_address(report, error),
        SharedStoreError::Address(error) => of_address(report, error),
        _ => report,
    }
}

fn of_address(report: Report, error: &AddressError) -> Report {
    match error {
        AddressError::HasPassword => report.with_hint(
            "everybody can read arguments and tracked files: put the password into ~/.pgpass, PGPASSFILE, PGPASSWORD or a file \
             that `password_file` names",
        ),
        AddressError::Unencrypted { .. } => report.with_hint("use sslmode=verify-full, which is the default"),
        AddressError::OpenFile(path) => report.with_hint(format!("chmod 600 {}", path.display())),
        AddressError::NoRoots => report.with_hint("name a file with certificates: ?sslrootcert=FILE"),
        AddressError::Unreadable(_) => report.with_hint("an address is postgres://USER@HOST:PORT/DATABASE"),
        _ => report,
    }
}

fn of_etcd_address(report: Report, error: &AddressError) -> Report {
    match error {
        AddressError::HasPassword => report.with_hint(
            "everybody can read arguments and tracked files: put the password into ETCDCTL_PASSWORD or a file that `password_file` \
             names",
        ),
        AddressError::Unencrypted { .. } => report.with_hint("use etcds://, with ?cacert=FILE for an authority of your own"),
        AddressError::OpenFile(path) => report.with_hint(format!("chmod 600 {}", path.display())),
        AddressError::NoRoots => report.with_hint("name a file with certificates: ?cacert=FILE"),
        AddressError::Unreadable(_) => {
            report.with_hint("an address is etcds://USER@HOST:PORT,HOST:PORT?cacert=FILE&cert=FILE&key=FILE")
        }
        _ => report,
    }
}
