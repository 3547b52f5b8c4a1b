//! Address of a Redis server: what a URL, the environment and a password file say about how to reach it.

use std::fmt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use rustls::ClientConfig;

use crate::address_error::AddressError;
use crate::server_address::{Variable, decoded, is_loopback, password_in_file, tls_config};
use crate::server_stream::Place;

/// The port of Redis.
const PORT: u16 = 6379;

/// How to reach a server, with the password if it needs one.
#[derive(Clone)]
pub struct RedisAddress {
    pub(super) place: Place,
    pub(super) user: Option<String>,
    pub(super) password: Option<String>,
    pub(super) database: u32,
}

/// Shows no password.
impl fmt::Debug for RedisAddress {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RedisAddress").field("address", &self.to_string()).finish_non_exhaustive()
    }
}

impl fmt::Display for RedisAddress {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let database = self.database;
        match &self.place {
            Place::Tcp { host, port, tls } => {
                let scheme = if tls.is_some() { "rediss" } else { "redis" };
                let host = if host.contains(':') { format!("[{host}]") } else { host.clone() };
                write!(f, "{scheme}://{host}:{port}/{database}")
            }
            Place::Unix(path) if database == 0 => write!(f, "unix:{}", path.display()),
            Place::Unix(path) => write!(f, "unix:{}?db={database}", path.display()),
        }
    }
}

impl RedisAddress {
    /// Reads `redis://USER@HOST:PORT/DATABASE`, `rediss://…?sslrootcert=FILE` and `unix:PATH?db=NUMBER&user=NAME`. The password
    /// comes from `REDISCLI_AUTH`, which Redis's own program reads, or from `password_file`.
    pub fn parse(
        text: &str,
        variable: Variable<'_>,
        password_file: Option<&Path>,
    ) -> Result<Self, AddressError> {
        let (scheme, rest) = text.split_once(':').ok_or_else(|| unreadable("it has no scheme"))?;
        let (rest, query) = rest.split_once('?').unwrap_or((rest, ""));
        let mut options = Options::parse(query)?;
        let (place, user, database) = match scheme {
            "unix" | "redis+unix" => {
                let path = rest.strip_prefix("//").unwrap_or(rest);
                if !path.starts_with('/') {
                    return Err(unreadable("the path of a socket begins with a slash"));
                }
                (Place::Unix(decoded(path).into()), options.user.take(), options.database.take())
            }
            "redis" | "rediss" => {
                let rest = rest.strip_prefix("//").ok_or_else(|| unreadable("it has no host"))?;
                // A path has no @, so everything before the last one belongs to the user.
                let (user, rest) =
                    rest.rsplit_once('@').map_or((None, rest), |(user, rest)| (Some(user), rest));
                if user.is_some_and(|user| user.contains(':')) {
                    return Err(AddressError::HasPassword);
                }
                let (host, database) = rest.split_once('/').unwrap_or((rest, ""));
                let (host, port) = host_and_port(host)?;
                let tls = tls(scheme, &host, options.roots.take().as_deref())?;
                let database = Some(database).filter(|number| !number.is_empty()).map(str::to_owned);
                let user = user.filter(|user| !user.is_empty()).map(decoded);
                (Place::Tcp { host, port, tls }, user, database)
            }
            _ => return Err(unreadable("it does not begin with redis://, rediss:// or unix:")),
        };
        if options != Options::default() {
            return Err(unreadable("an option does not fit the scheme"));
        }
        let database = database.as_deref().unwrap_or("0").parse();
        let database = database.map_err(|_| unreadable("the database is a number"))?;
        let password = match variable("REDISCLI_AUTH").filter(|text| !text.is_empty()) {
            Some(password) => Some(password),
            None => password_file.map(password_in_file).transpose()?,
        };
        Ok(Self { place, user, password, database })
    }
}

/// What follows the question mark.
#[derive(Default, PartialEq, Eq)]
struct Options {
    roots: Option<PathBuf>,
    database: Option<String>,
    user: Option<String>,
}

impl Options {
    fn parse(query: &str) -> Result<Self, AddressError> {
        let mut options = Self::default();
        for option in query.split('&').filter(|option| !option.is_empty()) {
            match option.split_once('=') {
                Some(("sslrootcert", path)) => options.roots = Some(decoded(path).into()),
                Some(("db", number)) => options.database = Some(number.to_owned()),
                Some(("user", name)) => options.user = Some(decoded(name)),
                Some(("password", _)) => return Err(AddressError::HasPassword),
                _ => return Err(unreadable("an option is not known")),
            }
        }
        Ok(options)
    }
}

/// A server on another machine is always reached over TLS.
fn tls(scheme: &str, host: &str, roots: Option<&Path>) -> Result<Option<Arc<ClientConfig>>, AddressError> {
    if scheme == "rediss" {
        return Ok(Some(Arc::new(tls_config(roots)?.with_no_client_auth())));
    }
    if !is_loopback(host) {
        return Err(AddressError::Unencrypted { mode: "redis://".to_owned(), host: host.to_owned() });
    }
    if roots.is_some() {
        return Err(unreadable("an option does not fit the scheme"));
    }
    Ok(None)
}

fn host_and_port(text: &str) -> Result<(String, u16), AddressError> {
    let (host, port) = match text.strip_prefix('[').and_then(|rest| rest.split_once(']')) {
        Some((host, rest)) => (host, rest.strip_prefix(':').unwrap_or(rest)),
        None => text.rsplit_once(':').unwrap_or((text, "")),
    };
    if host.is_empty() {
        return Err(unreadable("it has no host"));
    }
    let port = if port.is_empty() { Ok(PORT) } else { port.parse() };
    Ok((host.to_owned(), port.map_err(|_| unreadable("the port is a number"))?))
}

/// The reason quotes nothing of the text, which may contain a password.
fn unreadable(problem: &str) -> AddressError {
    AddressError::Unreadable(problem.to_owned())
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::os::unix::fs::PermissionsExt;

    use super::*;

    fn parse(text: &str) -> Result<RedisAddress, AddressError> {
        RedisAddress::parse(text, &|_| None, None)
    }

    #[test]
    fn addresses_are_shown_as_they_are_understood() {
        for (text, shown) in [
            ("redis://localhost", "redis://localhost:6379/0"),
            ("redis://me@127.0.0.1:7000/3", "redis://127.0.0.1:7000/3"),
            ("redis://[::1]:7000", "redis://[::1]:7000/0"),
            ("unix:/run/redis/redis.sock", "unix:/run/redis/redis.sock"),
            ("unix:///run/a%20b.sock?db=2&user=me", "unix:/run/a b.sock?db=2"),
            ("redis+unix:/run/redis.sock", "unix:/run/redis.sock"),
        ] {
            assert_eq!(parse(text).unwrap().to_string(), shown, "{text}");
        }
        assert_eq!(parse("redis://me@localhost").unwrap().user.as_deref(), Some("me"));
        assert_eq!(parse("unix:/x?user=me").unwrap().user.as_deref(), Some("me"));
    }

    #[test]
    fn a_password_in_the_address_is_refused_and_never_shown() {
        for text in [
            "redis://me:secret@localhost",
            "redis://:secret@localhost",
            "rediss://me:sec@ret@host/0",
            "unix:/run/x?password=secret",
        ] {
            let error = parse(text).unwrap_err();
            assert!(matches!(error, AddressError::HasPassword), "{error}");
        }
        for text in [
            "redis://localhost/secret",
            "redis://h:secret",
            "mysql://me:secret@h",
            "unix:secret",
            "redis:secret",
        ] {
            let error = parse(text).unwrap_err();
            assert!(!format!("{error} {error:?}").contains("secret"), "{error}");
        }
        let variable = |name: &str| (name == "REDISCLI_AUTH").then(|| "secret".to_owned());
        let address = RedisAddress::parse("redis://localhost", &variable, None).unwrap();
        assert_eq!(address.password.as_deref(), Some("secret"));
        assert!(!format!("{address} {address:?}").contains("secret"));
    }

    #[test]
    fn a_password_file_is_for_its_owner_alone() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("password");
        let parse = || RedisAddress::parse("redis://localhost", &|_| None, Some(&path));
        assert!(matches!(parse(), Err(AddressError::File { .. })));
        fs::write(&path, "secret\n").unwrap();
        fs::set_permissions(&path, PermissionsExt::from_mode(0o644)).unwrap();
        assert!(matches!(parse(), Err(AddressError::OpenFile(_))));
        fs::set_permissions(&path, PermissionsExt::from_mode(0o600)).unwrap();
        assert_eq!(parse().unwrap().password.as_deref(), Some("secret"));
    }

    #[test]
    fn only_a_server_of_this_machine_may_be_reached_without_encryption() {
        let error = parse("redis://redis.example").unwrap_err();
        assert_eq!(error.to_string(), "redis:// would send everything to redis.example unencrypted");
        for text in ["redis://localhost?db=1", "unix:/x?sslrootcert=/y", "redis://localhost?x=1", "redis://"]
        {
            assert!(matches!(parse(text), Err(AddressError::Unreadable(_))), "{text}");
        }
        assert!(matches!(parse("rediss://h?sslrootcert=/none"), Err(AddressError::File { .. })));
    }
}
