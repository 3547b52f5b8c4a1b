//! Host names: which names of the server a request may use. It stops DNS rebinding.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use axum::extract::Request;
use axum::http::StatusCode;
use axum::http::header::{HOST, HeaderValue};
use lockkeeper_engine::report::{Exit, Report};

use crate::error::ApiError;

/// The host names that the server accepts.
pub(super) struct HostNames {
    /// Names besides those of the loopback addresses, in lower case.
    pub(super) allowed: Vec<String>,
    /// Whether other machines can connect.
    pub(super) is_public: bool,
}

impl HostNames {
    /// The host that a request names, if the server accepts it.
    pub(super) fn check(&self, request: &Request) -> Result<String, ApiError> {
        let host = host(request)?;
        if self.accepts(name_of(&host)) { Ok(host) } else { Err(foreign_host(&host)) }
    }

    /// Whether the server accepts this host name. IP addresses are safe from DNS rebinding, names are not.
    fn accepts(&self, name: &str) -> bool {
        let number: Option<IpAddr> = match name.strip_prefix('[') {
            Some(rest) => {
                rest.strip_suffix(']').and_then(|inside| inside.parse::<Ipv6Addr>().ok()).map(Into::into)
            }
            None => name.parse::<Ipv4Addr>().ok().map(Into::into),
        };
        match number {
            Some(number) => self.is_public || number.is_loopback(),
            None => {
                let name = name.trim_end_matches('.').to_ascii_lowercase();
                name == "localhost" || name.ends_with(".localhost") || self.allowed.contains(&name)
            }
        }
    }
}

/// The host that the client named. There must be one `Host`, and an absolute address must name the same.
fn host(request: &Request) -> Result<String, ApiError> {
    let mut hosts = request.headers().get_all(HOST).into_iter();
    let host = match (hosts.next().map(HeaderValue::to_str), hosts.next()) {
        (Some(Ok(host)), None) => host.to_owned(),
        (Some(_) | None, _) => return Err(foreign_host("")),
    };
    match request.uri().authority() {
        Some(authority) if authority.as_str() != host => Err(foreign_host(authority.as_str())),
        Some(_) | None => Ok(host),
    }
}

/// The host without its port.
fn name_of(host: &str) -> &str {
    match (host.starts_with('['), host.find(']')) {
        (true, Some(end)) => &host[..=end],
        (true, None) => host,
        (false, _) => host.split_once(':').map_or(host, |(name, _)| name),
    }
}

fn foreign_host(host: &str) -> ApiError {
    let report = Report::new(Exit::Refused, "FOREIGN_HOST", "the server is not called by this name")
        .with_hint(
            "use http://127.0.0.1 or http://localhost, or start with `lockkeeper serve --allow-host NAME`",
        )
        .with_context("host", host);
    ApiError::new(StatusCode::FORBIDDEN, report)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn names(is_public: bool, allowed: &[&str]) -> HostNames {
        HostNames { allowed: allowed.iter().map(|name| (*name).to_owned()).collect(), is_public }
    }

    #[test]
    fn only_loopback_names_are_accepted() {
        let names = names(false, &["locks.example"]);
        for host in [
            "localhost",
            "LOCALHOST:7272",
            "a.localhost",
            "127.0.0.1:1",
            "127.9.9.9",
            "[::1]:7272",
            "locks.example",
        ] {
            assert!(names.accepts(name_of(host)), "{host}");
        }
        for host in [
            "",
            "evil.example",
            "localhost.evil.example",
            "127.0.0.1.evil.example",
            "10.0.0.1",
            "0.0.0.0",
            "[::2]",
            "[::1",
            "notlocalhost",
        ] {
            assert!(!names.accepts(name_of(host)), "{host}");
        }
    }

    #[test]
    fn a_public_server_accepts_any_ip_address_but_no_unknown_name() {
        let names = names(true, &[]);
        assert!(names.accepts(name_of("192.168.1.5:80")));
        assert!(!names.accepts(name_of("rebound.example")));
    }
}
