//! Address of etcd: the members that a URL names, and how a connection to them is protected.

use std::fmt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use tokio_rustls::TlsConnector;

use crate::address_error::AddressError;
use crate::server_address::{Variable, decoded, is_loopback, password_in_file, tls_config};

const PORT: u16 = 2379;

/// How to reach the members of an etcd cluster, with the password if they need one.
#[derive(Clone)]
pub struct EtcdAddress {
    pub(super) endpoints: Vec<Endpoint>,
    pub(super) user: Option<(String, String)>,
    pub(super) tls: Option<TlsConnector>,
}

/// Where one member listens for clients.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Endpoint {
    pub(super) host: String,
    pub(super) port: u16,
}

impl fmt::Display for Endpoint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { host, port } = self;
        if host.contains(':') { write!(f, "[{host}]:{port}") } else { write!(f, "{host}:{port}") }
    }
}

impl fmt::Display for EtcdAddress {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let endpoints: Vec<String> = self.endpoints.iter().map(ToString::to_string).collect();
        let scheme = if self.tls.is_some() { "etcds" } else { "etcd" };
        write!(f, "{scheme}://{}", endpoints.join(","))
    }
}

/// Shows no password.
impl fmt::Debug for EtcdAddress {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("EtcdAddress").field("address", &self.to_string()).finish_non_exhaustive()
    }
}

impl EtcdAddress {
    /// Reads `etcds://USER@HOST:PORT,HOST:PORT?cacert=…&cert=…&key=…`, or `etcd://` for members on this machine. The user comes
    /// also from `ETCDCTL_USER`, and the password from there, from `ETCDCTL_PASSWORD` or from a file.
    pub fn parse(
        text: &str,
        variable: Variable<'_>,
        password_file: Option<&Path>,
    ) -> Result<Self, AddressError> {
        let unreadable = |problem: &str| AddressError::Unreadable(problem.to_owned());
        let (scheme, rest) = text.split_once("://").unwrap_or_default();
        if !matches!(scheme, "etcd" | "etcds") {
            return Err(unreadable("it does not begin with etcd:// or etcds://"));
        }
        let (rest, options) = rest.split_once('?').unwrap_or((rest, ""));
        let (user, hosts) = rest.rsplit_once('@').map_or((None, rest), |(user, hosts)| (Some(user), hosts));
        if user.is_some_and(|user| user.contains(':')) || options.contains("password=") {
            return Err(AddressError::HasPassword);
        }
        let hosts = hosts.strip_suffix('/').unwrap_or(hosts);
        let endpoints: Option<Vec<Endpoint>> = hosts.split(',').map(endpoint).collect();
        let endpoints = endpoints.ok_or_else(|| unreadable("its hosts are not HOST:PORT,HOST:PORT"))?;
        let remote = endpoints.iter().find(|endpoint| !is_loopback(&endpoint.host));
        let tls = match (scheme, remote) {
            ("etcds", _) => Some(tls(options)?),
            (_, None) if options.is_empty() => None,
            (_, None) => return Err(unreadable("options are for etcds://")),
            (_, Some(endpoint)) => {
                let host = endpoint.host.clone();
                return Err(AddressError::Unencrypted { mode: "etcd://".to_owned(), host });
            }
        };
        let user = login(user.map(decoded), variable, password_file)?;
        Ok(Self { endpoints, user, tls })
    }
}

fn endpoint(text: &str) -> Option<Endpoint> {
    let (host, port) = match text.strip_prefix('[') {
        Some(rest) => {
            let (host, port) = rest.split_once(']')?;
            (host, if port.is_empty() { None } else { Some(port.strip_prefix(':')?) })
        }
        None => text.split_once(':').map_or((text, None), |(host, port)| (host, Some(port))),
    };
    let is_host = !host.is_empty() && !host.contains(['/', ' ', '@']);
    let port = port.map_or(Some(PORT), |port| port.parse().ok())?;
    is_host.then(|| Endpoint { host: host.to_owned(), port })
}

/// The user and the password.
fn login(
    user: Option<String>,
    variable: Variable<'_>,
    password_file: Option<&Path>,
) -> Result<Option<(String, String)>, AddressError> {
    let from_environment = variable("ETCDCTL_USER").unwrap_or_default();
    let (name, password) = match from_environment.split_once(':') {
        Some((name, password)) => (name, Some(password.to_owned())),
        None => (from_environment.as_str(), None),
    };
    let Some(name) = user.or_else(|| Some(name.to_owned()).filter(|name| !name.is_empty())) else {
        return Ok(None);
    };
    let password = variable("ETCDCTL_PASSWORD").filter(|text| !text.is_empty()).or(password);
    let password = match (password, password_file) {
        (Some(password), _) => password,
        (None, Some(path)) => password_in_file(path)?,
        (None, None) => {
            return Err(AddressError::Unreadable(format!("there is no password for the user {name}")));
        }
    };
    Ok(Some((name, password)))
}

/// Encrypts the connection and checks the name of each member.
fn tls(options: &str) -> Result<TlsConnector, AddressError> {
    let (mut roots, mut certificate, mut key) = (None, None, None);
    for option in options.split('&').filter(|option| !option.is_empty()) {
        let (name, value) = option.split_once('=').unwrap_or_default();
        let place = match name {
            "cacert" => &mut roots,
            "cert" => &mut certificate,
            "key" => &mut key,
            _ => return Err(AddressError::Unreadable("an option is not known".to_owned())),
        };
        *place = Some(PathBuf::from(decoded(value)));
    }
    let config = tls_config(roots.as_deref())?;
    let mut config = match (certificate, key) {
        (None, None) => config.with_no_client_auth(),
        (Some(certificate), Some(key)) => {
            let file = |path: &Path, error: rustls::pki_types::pem::Error| AddressError::File {
                path: path.to_owned(),
                source: std::io::Error::other(error),
            };
            let chain: Result<Vec<_>, _> = CertificateDer::pem_file_iter(&certificate)
                .map_err(|error| file(&certificate, error))?
                .collect();
            let chain = chain.map_err(|error| file(&certificate, error))?;
            let secret = PrivateKeyDer::from_pem_file(&key).map_err(|error| file(&key, error))?;
            let config = config.with_client_auth_cert(chain, secret);
            config.map_err(|error| AddressError::Unreadable(error.to_string()))?
        }
        (Some(_), None) | (None, Some(_)) => {
            return Err(AddressError::Unreadable("cert and key belong together".to_owned()));
        }
    };
    config.alpn_protocols = vec![b"h2".to_vec()];
    Ok(TlsConnector::from(Arc::new(config)))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(text: &str, variables: &[(&str, &str)]) -> Result<EtcdAddress, AddressError> {
        let variable = |name: &str| {
            variables.iter().find(|(known, _)| *known == name).map(|(_, value)| (*value).to_owned())
        };
        EtcdAddress::parse(text, &variable, None)
    }

    #[test]
    fn several_members_are_named() {
        let address = parse("etcd://127.0.0.1,localhost:2390,[::1]:7,[::1]", &[]).unwrap();
        assert_eq!(address.to_string(), "etcd://127.0.0.1:2379,localhost:2390,[::1]:7,[::1]:2379");
        for bad in ["etcd://", "etcd://a,,b", "etcd://localhost:x", "etcd://[::1", "redis://localhost"] {
            assert!(parse(bad, &[]).is_err(), "{bad}");
        }
    }

    #[test]
    fn a_password_in_the_address_is_refused_and_never_shown() {
        for text in ["etcd://me:secret@localhost", "etcds://me:secret@h", "etcds://h?password=secret"] {
            let error = parse(text, &[]).unwrap_err();
            assert!(matches!(error, AddressError::HasPassword), "{error}");
            assert!(!format!("{error} {error:?}").contains("secret"));
        }
        for variables in
            [&[("ETCDCTL_USER", "me:secret")][..], &[("ETCDCTL_USER", "me"), ("ETCDCTL_PASSWORD", "secret")]]
        {
            let address = parse("etcd://localhost", variables).unwrap();
            assert_eq!(address.user, Some(("me".to_owned(), "secret".to_owned())));
            assert!(!format!("{address} {address:?}").contains("secret"));
        }
        assert!(parse("etcd://me@localhost", &[]).is_err(), "a user without a password");
        assert!(parse("etcd://localhost", &[]).unwrap().user.is_none());
    }

    #[test]
    fn only_members_on_this_machine_may_be_reached_without_encryption() {
        let error = parse("etcd://localhost,etcd.example", &[]).unwrap_err();
        assert!(matches!(error, AddressError::Unencrypted { .. }), "{error}");
        assert!(matches!(parse("etcds://h?cacert=/no/such/file", &[]), Err(AddressError::File { .. })));
        assert!(parse("etcds://h?cert=/no/such/file", &[]).is_err());
        assert!(parse("etcds://h?color=blue", &[]).is_err());
    }
}
