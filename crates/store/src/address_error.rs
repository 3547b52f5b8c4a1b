//! Why the address of a server cannot be used.

use std::io;
use std::path::PathBuf;

use thiserror::Error;

/// Why an address cannot be used. No message contains a password.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum AddressError {
    /// It is not an address of such a server.
    #[error("the address of the store cannot be read: {0}")]
    Unreadable(String),
    /// It contains a password, which everybody could read.
    #[error("the address of the store contains a password")]
    HasPassword,
    /// Its connection would not be encrypted.
    #[error("{mode} would send everything to {host} unencrypted")]
    Unencrypted {
        /// The setting, or the scheme.
        mode: String,
        /// The server.
        host: String,
    },
    /// Others can read the file with the password.
    #[error("others can read the password in {}", .0.display())]
    OpenFile(PathBuf),
    /// A file with a password or with certificates cannot be read.
    #[error("cannot read {}", path.display())]
    File {
        /// The file.
        path: PathBuf,
        /// Why.
        source: io::Error,
    },
    /// There is no certificate to check the server with.
    #[error("there are no root certificates to check the server with")]
    NoRoots,
}
