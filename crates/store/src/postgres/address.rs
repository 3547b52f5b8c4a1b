//! Address of a PostgreSQL server: what a URL, the environment and password files say about how to reach it.

use std::fmt;
use std::path::{Path, PathBuf};

use tokio_postgres::Config;
use tokio_postgres::config::{Host, SslMode};
use tokio_postgres_rustls::MakeRustlsConnect;

use crate::address_error::AddressError;
use crate::server_address::{Variable, decoded, is_loopback, password_in_file, private_text, tls_config};

/// How to reach a server, with the password if it needs one.
#[derive(Clone)]
pub struct PostgresAddress {
    pub(super) config: Config,
    pub(super) tls: Option<MakeRustlsConnect>,
}

/// Shows no password.
impl fmt::Debug for PostgresAddress {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("PostgresAddress").field("address", &shown(&self.config)).finish_non_exhaustive()
    }
}

impl fmt::Display for PostgresAddress {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&shown(&self.config))
    }
}

impl PostgresAddress {
    /// Reads `postgres://USER@HOST:PORT/DATABASE?sslmode=…&sslrootcert=…`. What it leaves out comes from the variables that
    /// PostgreSQL's own programs read. The password comes from `PGPASSWORD`, `password_file`, `PGPASSFILE` or `~/.pgpass`.
    pub fn parse(
        text: &str,
        variable: Variable<'_>,
        password_file: Option<&Path>,
    ) -> Result<Self, AddressError> {
        let unreadable = |problem: &str| AddressError::Unreadable(problem.to_owned());
        if !text.starts_with("postgres://") && !text.starts_with("postgresql://") {
            return Err(unreadable("it does not begin with postgres://"));
        }
        let (base, options) = split_options(text);
        let mut config: Config = base.parse().map_err(|error: tokio_postgres::Error| {
            // The cause may quote the text, and so a password.
            unreadable(if error.to_string().contains("invalid") {
                "it is not a valid URL"
            } else {
                "an option is not known"
            })
        })?;
        if config.get_password().is_some() {
            return Err(AddressError::HasPassword);
        }
        if config.get_hosts().is_empty() {
            config.host(variable("PGHOST").as_deref().unwrap_or("/var/run/postgresql"));
        }
        if let (None, Some(user)) = (config.get_user(), variable("PGUSER").or_else(|| variable("USER"))) {
            config.user(user);
        }
        if let (None, Some(name)) = (config.get_dbname(), variable("PGDATABASE")) {
            config.dbname(name);
        }
        if let Some(password) = password(&config, variable, password_file)? {
            config.password(password);
        }
        config.application_name("lockkeeper");
        let tls = tls(&mut config, &options)?;
        Ok(Self { config, tls })
    }
}

/// A server that is reached without encryption, such as one on this machine.
impl From<Config> for PostgresAddress {
    fn from(config: Config) -> Self {
        Self { config, tls: None }
    }
}

/// The options that are ours to read.
#[derive(Default)]
struct TlsOptions {
    mode: Option<String>,
    roots: Option<PathBuf>,
}

/// Takes the options about TLS out of a URL.
fn split_options(text: &str) -> (String, TlsOptions) {
    let mut options = TlsOptions::default();
    let Some((base, query)) = text.split_once('?') else { return (text.to_owned(), options) };
    let mut rest = Vec::new();
    for option in query.split('&') {
        match option.split_once('=') {
            Some(("sslmode", mode)) => options.mode = Some(mode.to_owned()),
            Some(("sslrootcert", path)) => options.roots = Some(decoded(path).into()),
            _ => rest.push(option),
        }
    }
    let base = if rest.is_empty() { base.to_owned() } else { format!("{base}?{}", rest.join("&")) };
    (base, options)
}

/// Chooses how the connection is encrypted: always, and with the server's name checked, unless the server is on this machine.
fn tls(config: &mut Config, options: &TlsOptions) -> Result<Option<MakeRustlsConnect>, AddressError> {
    let remote = config.get_hosts().iter().find_map(|host| match host {
        Host::Tcp(name) if !is_loopback(name) => Some(name.clone()),
        Host::Tcp(_) | Host::Unix(_) => None,
    });
    let encrypts = match (options.mode.as_deref(), remote) {
        (Some("verify-full" | "require"), _) | (None, Some(_)) => true,
        (Some("disable") | None, None) => false,
        (Some(mode @ ("disable" | "allow" | "prefer" | "verify-ca")), Some(host)) => {
            return Err(AddressError::Unencrypted { mode: format!("sslmode={mode}"), host });
        }
        (Some(_), _) => return Err(AddressError::Unreadable("sslmode is verify-full or disable".to_owned())),
    };
    if !encrypts {
        config.ssl_mode(SslMode::Disable);
        return Ok(None);
    }
    config.ssl_mode(SslMode::Require);
    Ok(Some(MakeRustlsConnect::new(tls_config(options.roots.as_deref())?.with_no_client_auth())))
}

/// Looks for the password where PostgreSQL's own programs look, and in the file that a setting names.
fn password(
    config: &Config,
    variable: Variable<'_>,
    password_file: Option<&Path>,
) -> Result<Option<String>, AddressError> {
    if let Some(password) = variable("PGPASSWORD").filter(|text| !text.is_empty()) {
        return Ok(Some(password));
    }
    if let Some(path) = password_file {
        return password_in_file(path).map(Some);
    }
    let named = variable("PGPASSFILE").map(PathBuf::from);
    let path = named.or_else(|| variable("HOME").map(|home| Path::new(&home).join(".pgpass")));
    let Some(text) = path.map(|path| private_text(&path)).transpose()?.flatten() else { return Ok(None) };
    let host = match config.get_hosts().first() {
        Some(Host::Tcp(name)) => name.clone(),
        Some(Host::Unix(_)) | None => "localhost".to_owned(),
    };
    let port = config.get_ports().first().copied().unwrap_or(5432).to_string();
    let user = config.get_user().unwrap_or_default();
    let wanted = [host.as_str(), &port, config.get_dbname().unwrap_or(user), user];
    Ok(text.lines().filter(|line| !line.starts_with('#')).find_map(|line| password_in(line, wanted)))
}

/// The password of a line `host:port:database:user:password`, if the line fits. `*` fits everything; `\` protects `:` and `\`.
fn password_in(line: &str, wanted: [&str; 4]) -> Option<String> {
    let mut fields = vec![String::new()];
    let mut characters = line.chars();
    while let Some(character) = characters.next() {
        match character {
            '\\' => fields.last_mut()?.extend(characters.next()),
            ':' if fields.len() < 5 => fields.push(String::new()),
            other => fields.last_mut()?.push(other),
        }
    }
    let [host, port, database, user, password] = <[String; 5]>::try_from(fields).ok()?;
    let fits =
        [host, port, database, user].iter().zip(wanted).all(|(field, want)| field == "*" || field == want);
    fits.then_some(password)
}

/// Host, port and database, for messages.
pub(super) fn shown(config: &Config) -> String {
    let host = config.get_hosts().first().map_or_else(String::new, |host| match host {
        Host::Tcp(name) => name.clone(),
        Host::Unix(path) => path.display().to_string(),
    });
    let port = config.get_ports().first().map_or_else(String::new, |port| format!(":{port}"));
    format!("postgres://{host}{port}/{}", config.get_dbname().unwrap_or_default())
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::os::unix::fs::PermissionsExt;

    use super::*;

    fn parse(text: &str, variables: &[(&str, &str)]) -> Result<PostgresAddress, AddressError> {
        let variable = |name: &str| {
            variables.iter().find(|(known, _)| *known == name).map(|(_, value)| (*value).to_owned())
        };
        PostgresAddress::parse(text, &variable, None)
    }

    fn password_of(address: &PostgresAddress) -> Option<&[u8]> {
        address.config.get_password()
    }

    #[test]
    fn a_password_in_the_address_is_refused_and_never_shown() {
        for text in ["postgres://me:secret@db.example/x", "postgres://db.example/x?password=secret"] {
            let error = parse(text, &[]).unwrap_err();
            assert!(matches!(error, AddressError::HasPassword), "{error}");
            assert!(!format!("{error} {error:?}").contains("secret"));
        }
        for text in ["postgres://me:secret@[db/x", "postgres://me:secret@h:port/x", "mysql://me:secret@h/x"] {
            let error = parse(text, &[]).unwrap_err();
            assert!(!format!("{error} {error:?}").contains("secret"), "{error}");
        }
        let address = parse("postgres://me@localhost/x", &[("PGPASSWORD", "secret")]).unwrap();
        assert_eq!(password_of(&address), Some(&b"secret"[..]));
        assert!(!format!("{address} {address:?}").contains("secret"));
    }

    #[test]
    fn only_a_server_of_this_machine_may_be_reached_without_encryption() {
        for local in ["localhost", "127.0.0.1", "[::1]", "%2Frun%2Fpg"] {
            let address = parse(&format!("postgres://me@{local}/x"), &[]).unwrap();
            assert!(address.tls.is_none(), "{local}");
        }
        for mode in ["disable", "prefer", "allow", "verify-ca"] {
            let error = parse(&format!("postgres://me@db.example/x?sslmode={mode}"), &[]).unwrap_err();
            assert!(matches!(error, AddressError::Unencrypted { .. }), "{error}");
        }
        assert!(parse("postgres://me@localhost/x?sslmode=sure", &[]).is_err());
    }

    #[test]
    fn root_certificates_come_from_a_file_that_has_some() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("a root.pem");
        let text = format!(
            "postgres://me@db.example/x?sslrootcert={}",
            path.display().to_string().replace(' ', "%20")
        );
        assert!(matches!(parse(&text, &[]), Err(AddressError::File { .. })));
        fs::write(&path, "no certificate").unwrap();
        assert!(matches!(parse(&text, &[]), Err(AddressError::NoRoots)));
    }

    #[test]
    fn a_password_file_is_read_as_other_programs_read_it() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("pgpass");
        let lines = "# a comment\nother:*:*:*:no\n*:5433:x:me:port\n*:*:x:me:a\\:b\\\\c:d\n*:*:*:*:last\n";
        fs::write(&path, lines).unwrap();
        let file = path.to_str().unwrap();
        let parse = |text: &str| parse(text, &[("PGPASSFILE", file)]);
        fs::set_permissions(&path, PermissionsExt::from_mode(0o640)).unwrap();
        assert!(matches!(parse("postgres://me@localhost/x"), Err(AddressError::OpenFile(_))));
        fs::set_permissions(&path, PermissionsExt::from_mode(0o600)).unwrap();
        for (text, password) in [
            ("postgres://me@localhost/x", "a:b\\c:d"),
            ("postgres://me@localhost:5433/x", "port"),
            ("postgres://you@localhost/x", "last"),
        ] {
            assert_eq!(password_of(&parse(text).unwrap()), Some(password.as_bytes()), "{text}");
        }
    }

    #[test]
    fn what_the_address_leaves_out_comes_from_the_environment() {
        let variables = [("PGUSER", "me"), ("PGDATABASE", "locks"), ("PGHOST", "/run/x")];
        let address = parse("postgres://", &variables).unwrap();
        assert_eq!((address.config.get_user(), address.config.get_dbname()), (Some("me"), Some("locks")));
        assert_eq!(address.to_string(), "postgres:///run/x/locks");
    }
}
