//! PostgreSQL. One host reaches the server directly, one through a relay that can be slow, one through a pooler.

use std::thread;
use std::time::Duration;

use lockkeeper_testing::{Dice, Pooler, PostgresServer, Relay, Signal};

use crate::history::History;
use crate::network::address;
use crate::server::{CLONE, LONG, Server};

const RELAY: u16 = 7000;
const POOLER: u16 = 6432;
const DAY: i64 = 86_400;

pub(crate) struct Postgres {
    server: PostgresServer,
    relay: Relay,
    pooler: Option<Pooler>,
    /// How many seconds its clock is ahead of that of the machine.
    ahead: i64,
}

#[derive(Clone, Copy, Debug)]
pub(crate) enum Fault {
    Frozen,
    Stopped,
    Crashed,
    Restored,
    StandbyPromoted,
    ClockSetBack,
    ClockSetForward,
    PoolerRestarted,
}

impl Server for Postgres {
    type Fault = Fault;

    const FAULTS: &'static [Fault] = &[
        Fault::Frozen,
        Fault::Stopped,
        Fault::Crashed,
        Fault::Restored,
        Fault::StandbyPromoted,
        Fault::ClockSetBack,
        Fault::ClockSetForward,
        Fault::PoolerRestarted,
    ];

    fn start(_history: &History) -> Option<Self> {
        let addresses: Vec<String> = (0..=CLONE).map(address).collect();
        let server = PostgresServer::start_on(&addresses)?;
        let relay = Relay::start(RELAY, "127.0.0.1:5432");
        let pooler = Some(Pooler::start_on("*", POOLER, &server)?);
        Some(Self { server, relay, pooler, ahead: 0 })
    }

    fn url(&self, host: usize) -> String {
        let port = match host {
            1 => RELAY,
            2 => POOLER,
            _ => 5432,
        };
        let roots = self.server.certificate().unwrap().roots();
        format!("postgres://lockkeeper@{}:{port}/postgres?sslrootcert={roots}", address(host))
    }

    fn fail(&mut self, fault: Fault, _victim: usize, dice: &mut Dice) {
        let moment = dice.span_below(Duration::from_secs(3));
        match fault {
            Fault::Frozen => {
                self.server.signal(Signal::STOP);
                thread::sleep(Duration::from_secs(1) + dice.span_below(LONG));
                self.server.signal(Signal::CONT);
            }
            Fault::Stopped => {
                self.server.stop();
                thread::sleep(moment);
                self.server.begin();
            }
            Fault::Crashed => {
                self.server.crash();
                thread::sleep(moment);
                self.server.begin();
            }
            Fault::Restored | Fault::StandbyPromoted => {
                let name = format!("backup-{:x}", dice.number());
                self.server.back_up(&name);
                // What happens now is forgotten.
                thread::sleep(Duration::from_secs(1) + moment);
                if matches!(fault, Fault::Restored) {
                    self.server.restore(&name);
                } else {
                    self.server.promote_standby(&name);
                }
            }
            Fault::ClockSetBack | Fault::ClockSetForward => {
                let span = *dice.pick(&[60, DAY]);
                self.ahead += if matches!(fault, Fault::ClockSetBack) { -span } else { span };
                self.server.set_clock(self.ahead);
                thread::sleep(LONG);
            }
            Fault::PoolerRestarted => {
                self.pooler = None;
                thread::sleep(moment);
                self.pooler = Pooler::start_on("*", POOLER, &self.server);
            }
        }
    }

    /// docs/guide/teams.md names the case: `what_stores_cannot_hold_is_in_the_guide`.
    fn lets_two_in(fault: Fault) -> bool {
        matches!(fault, Fault::ClockSetForward)
    }

    fn slow_down(&self, by: Duration) {
        self.relay.slow_down(by);
    }
}
