//! A machine that serves its folder: a host of its own, with a boot that can end.

use std::path::PathBuf;
use std::thread;
use std::time::Duration;

use lockkeeper_testing::{Dice, Relay, Signal, Started};

use crate::history::History;
use crate::host::Host;
use crate::network::{address, address_of};
use crate::server::{CLONE, LONG, Server};

/// The number of the serving host.
const SERVING: usize = 9;
/// The port of host 0; then those of host 1 …
const RELAYS: u16 = 7000;
const PORT: u16 = 7272;

pub(crate) struct Served {
    host: Host,
    server: Started,
    relays: Vec<Relay>,
}

#[derive(Clone, Copy, Debug)]
pub(crate) enum Fault {
    Frozen,
    Stopped,
    Killed,
    Rebooted,
}

impl Server for Served {
    type Fault = Fault;

    const FAULTS: &'static [Fault] = &[Fault::Frozen, Fault::Stopped, Fault::Killed, Fault::Rebooted];

    fn start(history: &History) -> Option<Self> {
        let host = Host::start(SERVING, "sqlite:state", None, history);
        let server = serve(&host);
        let relay = |host: usize| Relay::start(Self::port_for(host), &listens());
        Some(Self { host, server, relays: (0..=CLONE).map(relay).collect() })
    }

    fn url(&self, host: usize) -> String {
        format!("http://{}:{}?unencrypted=yes", address(host), Self::port_for(host))
    }

    fn fail(&mut self, fault: Fault, _victim: usize, dice: &mut Dice) {
        let moment = dice.span_below(Duration::from_secs(3));
        match fault {
            Fault::Frozen => {
                self.host.signal_all(Signal::STOP);
                thread::sleep(Duration::from_secs(1) + dice.span_below(LONG));
                self.host.wake();
                return;
            }
            Fault::Stopped => self.host.signal_each("serve", Signal::TERM),
            Fault::Killed => self.host.signal_each("serve", Signal::KILL),
            Fault::Rebooted => {
                self.host.lose_power();
                // A database from before the start of the machine is made anew. The boot itself stays the same, because
                // the time since then cannot be set back, and the server counts the silence from there.
                for suffix in ["", "-wal", "-shm"] {
                    let _ = std::fs::remove_file(self.state().join(format!("leases.db{suffix}")));
                }
            }
        }
        let _ = self.server.end();
        thread::sleep(moment);
        self.server = serve(&self.host);
    }

    fn token_file(&self) -> Option<String> {
        Some(self.state().join("server.token").display().to_string())
    }

    fn slow_down(&self, by: Duration) {
        self.relays.iter().for_each(|relay| relay.slow_down(by));
    }
}

impl Served {
    /// The folder that is served.
    fn state(&self) -> PathBuf {
        self.host.home().join("state")
    }

    fn port_for(host: usize) -> u16 {
        RELAYS + u16::try_from(host).unwrap()
    }
}

fn listens() -> String {
    format!("{}:{PORT}", address_of(SERVING))
}

fn serve(host: &Host) -> Started {
    let address = listens();
    let args = ["serve", "--log-level", "error", "--listen", &address];
    let mut started = Started::of(&mut host.command(&args));
    started.line_with(&address);
    started
}
