//! Address of a server of Lockkeeper: what a URL and a token file say about how to reach it.

use std::fmt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use crate::address_error::AddressError;
use crate::server_address::{decoded, is_loopback, password_in_file, tls_config};
use crate::server_stream::Place;

/// The ports of HTTP and HTTPS.
const PORTS: (u16, u16) = (80, 443);

/// How to reach a server, with its token if it needs one.
#[derive(Clone)]
pub struct HttpAddress {
    pub(super) place: Place,
    /// `HOST:PORT`, as requests name it.
    pub(super) host: String,
    /// The path before those of the server, for one behind a proxy.
    pub(super) path: String,
    pub(super) token: Option<String>,
    is_encrypted: bool,
}

/// Shows no token.
impl fmt::Debug for HttpAddress {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("HttpAddress").field("address", &self.to_string()).finish_non_exhaustive()
    }
}

impl fmt::Display for HttpAddress {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let scheme = if self.is_encrypted { "https" } else { "http" };
        write!(f, "{scheme}://{}{}", self.host, self.path)
    }
}

impl HttpAddress {
    /// Reads `http://HOST:PORT/PATH` and `https://…?sslrootcert=FILE`. The token comes from `token_file`. `?unencrypted=yes` allows
    /// a server on another machine without encryption.
    pub fn parse(text: &str, token_file: Option<&Path>) -> Result<Self, AddressError> {
        let unreadable = |what: &str| AddressError::Unreadable(what.to_owned());
        let (scheme, rest) = text.split_once("://").ok_or_else(|| unreadable("it has no scheme"))?;
        let is_encrypted = scheme == "https";
        let (rest, query) = rest.split_once('?').unwrap_or((rest, ""));
        let (host, path) =
            rest.split_once('/').map_or((rest, String::new()), |(host, path)| (host, format!("/{path}")));
        let path = path.trim_end_matches('/').to_owned();
        if host.contains('@') {
            return Err(AddressError::HasPassword);
        }
        let (mut roots, mut is_allowed) = (None, false);
        for option in query.split('&').filter(|option| !option.is_empty()) {
            match option.split_once('=') {
                Some(("sslrootcert", file)) => roots = Some(PathBuf::from(decoded(file))),
                Some(("unencrypted", "yes")) => is_allowed = true,
                _ => return Err(unreadable("it has an unknown option")),
            }
        }
        let (name, port) =
            match host.rsplit_once(':').filter(|(name, _)| !name.starts_with('[') || name.ends_with(']')) {
                Some((name, port)) => (name, port.parse().map_err(|_| unreadable("its port is no number"))?),
                None => (host, if is_encrypted { PORTS.1 } else { PORTS.0 }),
            };
        let name = name.trim_start_matches('[').trim_end_matches(']');
        if name.is_empty() {
            return Err(unreadable("it has no host"));
        }
        if !is_encrypted && !is_allowed && !is_loopback(name) {
            return Err(AddressError::Unencrypted { mode: scheme.to_owned(), host: name.to_owned() });
        }
        let tls = is_encrypted.then(|| tls_config(roots.as_deref())).transpose()?;
        let tls = tls.map(|tls| Arc::new(tls.with_no_client_auth()));
        let place = Place::Tcp { host: name.to_owned(), port, tls };
        let token = token_file.map(password_in_file).transpose()?;
        let is_header = |token: &String| token.bytes().all(|byte| byte.is_ascii_graphic());
        if !token.as_ref().is_none_or(is_header) {
            return Err(unreadable("the file has no token"));
        }
        let host = if name.contains(':') { format!("[{name}]:{port}") } else { format!("{name}:{port}") };
        Ok(Self { place, host, path, token, is_encrypted })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_are_read() {
        for (text, shown) in [
            ("http://127.0.0.1:7272", "http://127.0.0.1:7272"),
            ("http://localhost", "http://localhost:80"),
            ("http://[::1]:7272/", "http://[::1]:7272"),
            ("http://build1:7272/locks/?unencrypted=yes", "http://build1:7272/locks"),
        ] {
            assert_eq!(HttpAddress::parse(text, None).unwrap().to_string(), shown);
        }
    }

    #[test]
    fn what_would_be_read_by_others_is_refused() {
        let refused = |text: &str| HttpAddress::parse(text, None).unwrap_err();
        assert!(matches!(refused("http://build1:7272"), AddressError::Unencrypted { .. }));
        assert!(matches!(refused("http://secret@localhost"), AddressError::HasPassword));
        for text in ["http://", "http://localhost:x", "http://localhost?a=b", "http://:80"] {
            assert!(matches!(refused(text), AddressError::Unreadable(_)), "{text}");
        }
    }
}
