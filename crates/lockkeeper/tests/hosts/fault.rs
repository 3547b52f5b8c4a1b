//! Faults: what happens to a host, to its link, or to the server.

use std::thread;
use std::time::Duration;

use lockkeeper_testing::processes::is_alive;
use lockkeeper_testing::{Dice, PostgresServer, Signal, until};

use super::history::History;
use super::host::Host;

/// Longer than a session.
const LONG: Duration = Duration::from_secs(7);

#[derive(Clone, Copy, Debug)]
pub(crate) enum Fault {
    LinkCut,
    LinkCutToServer,
    LinkCutToHost,
    LinkFlaps,
    HostFrozen,
    WrapperKilled,
    GuardianKilled,
    BothKilled,
    ServerFrozen,
    ServerCrashed,
    ServerRestored,
    StandbyPromoted,
}

impl Fault {
    pub(crate) const ALL: [Self; 12] = [
        Self::LinkCut,
        Self::LinkCutToServer,
        Self::LinkCutToHost,
        Self::LinkFlaps,
        Self::HostFrozen,
        Self::WrapperKilled,
        Self::GuardianKilled,
        Self::BothKilled,
        Self::ServerFrozen,
        Self::ServerCrashed,
        Self::ServerRestored,
        Self::StandbyPromoted,
    ];

    /// Happens, lasts, and is over. Returns the tokens of commands beside which others may begin.
    pub(crate) fn happen(
        self,
        server: &mut PostgresServer,
        hosts: &[Host],
        victim: usize,
        history: &History,
        dice: &mut Dice,
    ) -> Vec<u64> {
        let (host, seen) = (&hosts[victim], history.len());
        match self {
            Self::LinkCut => cut(host, false, false),
            Self::LinkCutToServer => cut(host, false, true),
            Self::LinkCutToHost => cut(host, true, false),
            Self::LinkFlaps => {
                for _ in 0..8 {
                    host.link(false, false);
                    thread::sleep(dice.span_below(Duration::from_millis(600)));
                    host.link(true, true);
                    thread::sleep(dice.span_below(Duration::from_millis(300)));
                }
            }
            Self::HostFrozen => {
                host.signal_all(Signal::STOP);
                let frozen = host.processes();
                thread::sleep(LONG);
                host.wake();
                until("what was frozen has ended", || frozen.iter().all(|process| !is_alive(process.pid)));
                return history.tokens_since(victim, seen);
            }
            Self::WrapperKilled => host.signal_each("exec", Signal::KILL),
            Self::GuardianKilled => host.signal_each("session-guardian", Signal::KILL),
            Self::BothKilled => {
                host.signal_each("session-guardian", Signal::KILL);
                host.signal_each("exec", Signal::KILL);
                return history.tokens_since(victim, seen);
            }
            Self::ServerFrozen => {
                server.signal(Signal::STOP);
                thread::sleep(Duration::from_secs(1) + dice.span_below(LONG));
                server.signal(Signal::CONT);
            }
            Self::ServerCrashed => {
                server.crash();
                thread::sleep(dice.span_below(Duration::from_secs(3)));
                server.begin();
            }
            Self::ServerRestored | Self::StandbyPromoted => {
                let name = format!("backup-{:x}", dice.number());
                server.back_up(&name);
                // What happens now is forgotten.
                thread::sleep(Duration::from_secs(1) + dice.span_below(Duration::from_secs(2)));
                if matches!(self, Self::ServerRestored) {
                    server.restore(&name);
                } else {
                    server.promote_standby(&name);
                }
            }
        }
        Vec::new()
    }
}

fn cut(host: &Host, to_server: bool, to_host: bool) {
    host.link(to_server, to_host);
    thread::sleep(LONG);
    host.link(true, true);
}
