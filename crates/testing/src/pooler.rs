//! A connection pooler (pgbouncer) in transaction mode in front of a PostgreSQL server.

use std::net::{Ipv4Addr, TcpListener, TcpStream};
use std::path::Path;
use std::process::{Child, Stdio};

use crate::{PostgresServer, is_installed, skip, until};

/// The pooler of one test.
pub struct Pooler {
    process: Child,
    port: u16,
}

impl Pooler {
    /// Starts a pooler on loopback. None where pgbouncer is not installed; with `CI=true` that is a failure.
    #[must_use]
    pub fn start(server: &PostgresServer) -> Option<Self> {
        let port = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap().local_addr().unwrap().port();
        Self::start_on("127.0.0.1", port, server)
    }

    /// Starts a pooler on an address, or on all of them (`*`). It shows the certificate of the server, if that has one.
    #[must_use]
    pub fn start_on(address: &str, port: u16, server: &PostgresServer) -> Option<Self> {
        if !is_installed("pgbouncer") {
            assert!(std::env::var("CI").is_err(), "pgbouncer is not installed");
            skip("pgbouncer (Debian's package pgbouncer)");
            return None;
        }
        let folder = server.folder().display();
        let encryption = server.certificate().map_or_else(String::new, |shown| {
            format!(
                "client_tls_sslmode = require\nclient_tls_key_file = {}\nclient_tls_cert_file = {}\n",
                shown.key(),
                shown.server()
            )
        });
        let settings = format!(
            "[databases]\npostgres = host={folder} dbname=postgres user=lockkeeper\n\
             [pgbouncer]\nlisten_addr = {address}\nlisten_port = {port}\nunix_socket_dir =\nauth_type = any\n\
             pool_mode = transaction\ndefault_pool_size = 5\nserver_login_retry = 1\n{encryption}"
        );
        let file = server.folder().join("pgbouncer.ini");
        std::fs::write(&file, settings).unwrap();
        let mut command = server.as_owner(Path::new("pgbouncer"));
        let process = command.arg(file).stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap();
        until("the pooler listens", || TcpStream::connect((Ipv4Addr::LOCALHOST, port)).is_ok());
        Some(Self { process, port })
    }

    /// The address for clients on this machine, without TLS.
    #[must_use]
    pub fn url(&self) -> String {
        format!("postgres://lockkeeper@127.0.0.1:{}/postgres", self.port)
    }
}

impl Drop for Pooler {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}
