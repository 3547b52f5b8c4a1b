//! Address of a collector, and the HTTP request that sends spans to it.

use std::fmt;
use std::io::{self, BufRead, BufReader, Write};
use std::net::{TcpStream, ToSocketAddrs};
use std::str::FromStr;
use std::time::Duration;

use thiserror::Error;

/// Timeout for connecting to the collector, and for each read and write.
const TIMEOUT: Duration = Duration::from_secs(2);
/// The path of traces below the address of a collector.
const TRACES: &str = "/v1/traces";
/// The default port of OTLP over HTTP.
const PORT: u16 = 4318;

/// The address of a collector, such as `http://127.0.0.1:4318`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Endpoint {
    host: String,
    port: u16,
    path: String,
    /// The service name of the spans.
    service: String,
}

/// Why a text is not an address of a collector.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum BadEndpoint {
    /// It needs TLS, which is not supported.
    #[error("cannot send spans to `{0}`: only http:// is supported")]
    Encrypted(String),
    /// It is not an `http://` address.
    #[error("`{0}` is no address of a collector")]
    Unknown(String),
}

impl BadEndpoint {
    /// What the user can do about it.
    pub fn hint(&self) -> &'static str {
        match self {
            Self::Encrypted(_) => "send to a collector on this machine, which passes them on encrypted",
            Self::Unknown(_) => "write it like http://127.0.0.1:4318",
        }
    }
}

impl FromStr for Endpoint {
    type Err = BadEndpoint;

    fn from_str(text: &str) -> Result<Self, BadEndpoint> {
        let unknown = || BadEndpoint::Unknown(text.to_owned());
        if text.starts_with("https://") {
            return Err(BadEndpoint::Encrypted(text.to_owned()));
        }
        let rest = text.strip_prefix("http://").ok_or_else(unknown)?;
        let (authority, path) = rest.find('/').map_or((rest, ""), |slash| rest.split_at(slash));
        let (host, port) = match authority.rsplit_once(':') {
            // An IPv6 address in brackets has colons of its own.
            Some((host, port)) if !port.ends_with(']') => (host, port.parse().map_err(|_| unknown())?),
            Some(_) | None => (authority, PORT),
        };
        let is_plain = |part: &str| part.chars().all(|c| c.is_ascii_graphic() && c != '@');
        if host.is_empty() || !is_plain(host) || !is_plain(path) {
            return Err(unknown());
        }
        let path = path.trim_end_matches('/');
        let path = if path.ends_with(TRACES) { path.to_owned() } else { format!("{path}{TRACES}") };
        Ok(Self { host: host.to_owned(), port, path, service: "lockkeeper".to_owned() })
    }
}

impl fmt::Display for Endpoint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "http://{}:{}{}", self.host, self.port, self.path)
    }
}

impl Endpoint {
    /// Sets the service name.
    #[must_use]
    pub fn named(mut self, service: &str) -> Self {
        service.clone_into(&mut self.service);
        self
    }

    pub(super) fn service(&self) -> &str {
        &self.service
    }

    /// Sends a document, and waits for the response.
    pub(super) fn post(&self, document: &str) -> io::Result<()> {
        let mut stream = self.connect()?;
        stream.set_read_timeout(Some(TIMEOUT))?;
        stream.set_write_timeout(Some(TIMEOUT))?;
        let head = format!(
            "POST {} HTTP/1.1\r\nhost: {}:{}\r\nuser-agent: lockkeeper/{}\r\ncontent-type: application/json\r\n\
             content-length: {}\r\nconnection: close\r\n\r\n",
            self.path,
            self.host,
            self.port,
            env!("CARGO_PKG_VERSION"),
            document.len()
        );
        stream.write_all(head.as_bytes())?;
        stream.write_all(document.as_bytes())?;
        let mut answer = String::new();
        BufReader::new(stream).read_line(&mut answer)?;
        match answer.split(' ').nth(1) {
            Some(code) if code.starts_with('2') => Ok(()),
            _ => Err(io::Error::other(format!(
                "the collector answered `{}`",
                answer.trim_end().escape_debug()
            ))),
        }
    }

    fn connect(&self) -> io::Result<TcpStream> {
        let host = self.host.trim_start_matches('[').trim_end_matches(']');
        let mut last = io::Error::new(io::ErrorKind::NotFound, "the name has no address");
        for address in (host, self.port).to_socket_addrs()? {
            match TcpStream::connect_timeout(&address, TIMEOUT) {
                Ok(stream) => return Ok(stream),
                Err(error) => last = error,
            }
        }
        Err(last)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_are_read_as_people_write_them() {
        let read = |text: &str| text.parse::<Endpoint>().map(|endpoint| endpoint.to_string());
        for (text, expected) in [
            ("http://127.0.0.1:4318", "http://127.0.0.1:4318/v1/traces"),
            ("http://collector/", "http://collector:4318/v1/traces"),
            ("http://[::1]:9/otlp", "http://[::1]:9/otlp/v1/traces"),
            ("http://[::1]", "http://[::1]:4318/v1/traces"),
            ("http://a:1/v1/traces", "http://a:1/v1/traces"),
        ] {
            assert_eq!(read(text).as_deref(), Ok(expected));
        }
        assert!(matches!(read("https://a"), Err(BadEndpoint::Encrypted(_))));
        for text in [
            "",
            "a:1",
            "http://",
            "http://a:b",
            "http://user@a",
            "http://a/b c",
            "ftp://a",
            "http://a:1\r\nx: y",
        ] {
            assert!(matches!(read(text), Err(BadEndpoint::Unknown(_))), "{text}");
        }
    }
}
