//! Redis. Hosts reach it through relays, which a failover switches to another server.

use std::process::Command;
use std::thread;
use std::time::Duration;

use lockkeeper_testing::{Certificate, Dice, RedisServer, Relay, Signal, until};
use tempfile::TempDir;

use crate::history::History;
use crate::network::address;
use crate::server::{CLONE, LONG, Server};

/// The port of host 0; then those of host 1 …
const RELAYS: u16 = 7000;
const HOUR: i64 = 3_600_000_000;
/// Where nobody listens.
const NOBODY: &str = "127.0.0.1:1";

pub(crate) struct Redis {
    server: RedisServer,
    /// Its port without TLS, for replicas. The next one is for clients.
    port: u16,
    /// By how many microseconds its clock was set forward.
    ahead: i64,
    relays: Vec<Relay>,
    certificate: Certificate,
    _folder: TempDir,
}

#[derive(Clone, Copy, Debug)]
pub(crate) enum Fault {
    Frozen,
    /// It has its file.
    Restarted,
    Emptied,
    OldFileRestored,
    ReplicaPromoted,
    ClockSetBack,
    ClockSetForward,
    TwoMasters,
}

impl Server for Redis {
    type Fault = Fault;

    const FAULTS: &'static [Fault] = &[
        Fault::Frozen,
        Fault::Restarted,
        Fault::Emptied,
        Fault::OldFileRestored,
        Fault::ReplicaPromoted,
        Fault::ClockSetBack,
        Fault::ClockSetForward,
        Fault::TwoMasters,
    ];

    fn start(_history: &History) -> Option<Self> {
        let folder = tempfile::tempdir().unwrap();
        let addresses: Vec<String> = (0..=CLONE).map(address).collect();
        let certificate = Certificate::make(folder.path(), &addresses);
        let port = 6000;
        let server = begin(port, &certificate, &[])?;
        let relay = |host: usize| Relay::start(Self::port_for(host), &clients_of(port));
        let relays = (0..=CLONE).map(relay).collect();
        Some(Self { server, port, ahead: 0, relays, certificate, _folder: folder })
    }

    fn url(&self, host: usize) -> String {
        let (address, port) = (address(host), Self::port_for(host));
        format!("rediss://{address}:{port}?sslrootcert={}", self.certificate.roots())
    }

    fn fail(&mut self, fault: Fault, victim: usize, dice: &mut Dice) {
        // What happens meanwhile is forgotten.
        let moment = Duration::from_secs(1) + dice.span_below(Duration::from_secs(2));
        match fault {
            Fault::Frozen => {
                self.server.signal(Signal::STOP);
                thread::sleep(Duration::from_secs(1) + dice.span_below(LONG));
                self.server.signal(Signal::CONT);
            }
            Fault::Restarted => {
                self.server.kill();
                thread::sleep(dice.span_below(LONG));
                self.server.begin();
            }
            Fault::Emptied => {
                self.server.kill();
                std::fs::remove_dir_all(self.file()).unwrap();
                self.switch_relays(NOBODY);
                self.server.begin();
                // It has lost its data, but not its time of day.
                self.set_about(&format!("ahead {}", self.ahead));
                self.switch_relays(&clients_of(self.port));
            }
            Fault::OldFileRestored => {
                let (file, copy) = (self.file(), self.server.folder().join("copy"));
                let copied = Command::new("cp").arg("-a").args([&file, &copy]).status().unwrap();
                assert!(copied.success());
                thread::sleep(moment);
                self.server.kill();
                std::fs::remove_dir_all(&file).unwrap();
                std::fs::rename(copy, file).unwrap();
                self.server.begin();
            }
            Fault::ReplicaPromoted => {
                let (port, replica) = self.promoted_replica();
                thread::sleep(moment);
                self.server.kill();
                self.replace(port, replica);
            }
            Fault::TwoMasters => {
                let (port, replica) = self.promoted_replica();
                self.relays[victim].switch_to(&clients_of(port));
                // The second one grants after one session.
                thread::sleep(2 * LONG);
                self.server.kill();
                self.replace(port, replica);
            }
            Fault::ClockSetBack => {
                // The store has seen the server's clock one hour ahead of where it is now.
                let seconds: i64 = self.server.command("TIME").lines().nth(2).unwrap().parse().unwrap();
                let (wall, ahead) = (seconds * 1_000_000 + HOUR, self.about("ahead") - HOUR);
                self.set_about(&format!("wall {wall} ahead {ahead}"));
                thread::sleep(LONG);
            }
            Fault::ClockSetForward => {
                self.ahead += HOUR;
                self.set_about(&format!("ahead {}", self.about("ahead") + HOUR));
                thread::sleep(LONG);
            }
        }
    }

    /// docs/guide/teams.md names both cases: `what_stores_cannot_hold_is_in_the_guide`.
    fn lets_two_in(fault: Fault) -> bool {
        matches!(fault, Fault::ClockSetForward | Fault::TwoMasters)
    }

    fn slow_down(&self, by: Duration) {
        self.relays.iter().for_each(|relay| relay.slow_down(by));
    }
}

impl Redis {
    fn port_for(host: usize) -> u16 {
        RELAYS + u16::try_from(host).unwrap()
    }

    /// A second server that has everything until now, and nothing that comes later.
    fn promoted_replica(&self) -> (u16, RedisServer) {
        let port = if self.port == 6000 { 6010 } else { 6000 };
        let master = self.port.to_string();
        let mut replica = begin(port, &self.certificate, &["--replicaof", "127.0.0.1", &master]).unwrap();
        until("the replica has everything", || {
            replica.command("INFO replication").contains("master_link_status:up")
        });
        replica.promote();
        (port, replica)
    }

    /// Another server takes the place of the killed one.
    fn replace(&mut self, port: u16, with: RedisServer) {
        (self.server, self.port) = (with, port);
        self.switch_relays(&clients_of(port));
    }

    fn switch_relays(&self, to: &str) {
        self.relays.iter().for_each(|relay| relay.switch_to(to));
    }

    /// The folder of its append-only file.
    fn file(&self) -> std::path::PathBuf {
        self.server.folder().join("appendonlydir")
    }

    /// A number of what the store notes about the server.
    fn about(&self, field: &str) -> i64 {
        self.server.command(&format!("HGET {ABOUT} {field}")).lines().nth(1).unwrap().parse().unwrap()
    }

    fn set_about(&self, fields: &str) {
        self.server.command(&format!("HSET {ABOUT} {fields}"));
    }
}

const ABOUT: &str = "lockkeeper:{hosts}:about";

fn begin(port: u16, shown: &Certificate, options: &[&str]) -> Option<RedisServer> {
    let ports = ["--port", &port.to_string(), "--tls-port", &(port + 1).to_string()];
    let files = [shown.server(), shown.key(), shown.roots()];
    let [server, key, roots] = files.each_ref().map(String::as_str);
    let tls = ["--tls-cert-file", server, "--tls-key-file", key, "--tls-ca-cert-file", roots];
    let others = ["--tls-auth-clients", "no", "--appendonly", "yes", "--appendfsync", "always"];
    RedisServer::start(&[&ports[..], &tls, &others, options].concat())
}

fn clients_of(port: u16) -> String {
    format!("127.0.0.1:{}", port + 1)
}
