//! What the addresses of all servers share: passwords from files, TLS, and which hosts are this machine.

use std::fs;
use std::io;
use std::net::IpAddr;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::sync::Arc;

use rustls::client::WantsClientCert;
use rustls::pki_types::CertificateDer;
use rustls::pki_types::pem::PemObject;
use rustls::{ClientConfig, ConfigBuilder, RootCertStore};

use crate::address_error::AddressError;

/// Reads an environment variable.
#[cfg(any(feature = "etcd", feature = "postgres", feature = "redis"))]
pub type Variable<'v> = &'v dyn Fn(&str) -> Option<String>;

/// TLS settings: the server's name is checked against the root certificates of a file, or those of the system.
pub(crate) fn tls_config(
    roots_file: Option<&Path>,
) -> Result<ConfigBuilder<ClientConfig, WantsClientCert>, AddressError> {
    let mut roots = RootCertStore::empty();
    match roots_file {
        Some(path) => {
            let file = |error: rustls::pki_types::pem::Error| AddressError::File {
                path: path.to_owned(),
                source: io::Error::other(error),
            };
            let found = CertificateDer::pem_file_iter(path).map_err(file)?;
            roots.add_parsable_certificates(found.collect::<Result<Vec<_>, _>>().map_err(file)?);
        }
        None => {
            roots.add_parsable_certificates(rustls_native_certs::load_native_certs().certs);
        }
    }
    if roots.is_empty() {
        return Err(AddressError::NoRoots);
    }
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let builder = ClientConfig::builder_with_provider(provider).with_safe_default_protocol_versions();
    let builder = builder.map_err(|error| AddressError::Unreadable(error.to_string()))?;
    Ok(builder.with_root_certificates(roots))
}

/// Whether a host is this machine.
pub(crate) fn is_loopback(host: &str) -> bool {
    host == "localhost" || host.parse::<IpAddr>().is_ok_and(|address| address.is_loopback())
}

/// The first line of a file with a password.
pub(crate) fn password_in_file(path: &Path) -> Result<String, AddressError> {
    let text = private_text(path)?.ok_or_else(|| AddressError::File {
        path: path.to_owned(),
        source: io::ErrorKind::NotFound.into(),
    })?;
    Ok(text.lines().next().unwrap_or_default().to_owned())
}

/// The text of a file that only its owner may read; none if there is no such file.
pub(crate) fn private_text(path: &Path) -> Result<Option<String>, AddressError> {
    let failed = |source| AddressError::File { path: path.to_owned(), source };
    let file = match fs::File::open(path) {
        Ok(file) => file,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
        Err(error) => return Err(failed(error)),
    };
    if file.metadata().map_err(failed)?.permissions().mode() & 0o077 != 0 {
        return Err(AddressError::OpenFile(path.to_owned()));
    }
    io::read_to_string(file).map(Some).map_err(failed)
}

/// Percent-decodes a text.
pub(crate) fn decoded(text: &str) -> String {
    let mut bytes = Vec::with_capacity(text.len());
    let mut rest = text.as_bytes();
    while let [first, tail @ ..] = rest {
        let code = tail.get(..2).and_then(|hex| std::str::from_utf8(hex).ok());
        let code = code.and_then(|hex| u8::from_str_radix(hex, 16).ok());
        match (first, code) {
            (b'%', Some(byte)) => {
                bytes.push(byte);
                rest = &tail[2..];
            }
            _ => {
                bytes.push(*first);
                rest = tail;
            }
        }
    }
    String::from_utf8_lossy(&bytes).into_owned()
}
