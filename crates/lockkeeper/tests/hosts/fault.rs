//! Faults of hosts: what happens to one of them, or to its link.

use std::thread;
use std::time::Duration;

use lockkeeper_testing::processes::is_alive;
use lockkeeper_testing::{Dice, Signal, until};

use super::history::History;
use super::host::{Boot, Host};
use super::server::{CLONE, LONG, Server};
use super::workers::Workers;

#[derive(Clone, Copy, Debug)]
pub(crate) enum Fault {
    LinkCut,
    LinkCutToServer,
    LinkCutToHost,
    LinkFlaps,
    LinkSlow,
    Frozen,
    Cloned,
    RuntimeFolderCopied,
    WrapperKilled,
    GuardianKilled,
    BothKilled,
}

impl Fault {
    pub(crate) const ALL: &'static [Self] = &[
        Self::LinkCut,
        Self::LinkCutToServer,
        Self::LinkCutToHost,
        Self::LinkFlaps,
        Self::LinkSlow,
        Self::Frozen,
        Self::Cloned,
        Self::RuntimeFolderCopied,
        Self::WrapperKilled,
        Self::GuardianKilled,
        Self::BothKilled,
    ];

    /// Happens, lasts, and is over. Returns the tokens of commands beside which others may begin.
    pub(crate) fn happen(
        self,
        server: &impl Server,
        host: &Host,
        history: &History,
        dice: &mut Dice,
    ) -> Vec<u64> {
        let seen = history.len();
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
            Self::LinkSlow => {
                // A round trip takes up to two times as long; the limit of a call is 1 s.
                server.slow_down(dice.span_below(Duration::from_millis(400)));
                thread::sleep(LONG);
                server.slow_down(Duration::ZERO);
            }
            Self::Frozen => {
                host.signal_all(Signal::STOP);
                let frozen = host.processes();
                thread::sleep(LONG);
                host.wake();
                until("what was frozen has ended", || frozen.iter().all(|process| !is_alive(process.pid)));
                return history.tokens_since(host.number, seen);
            }
            Self::Cloned => cloned(host, Boot::Another, server, history, dice),
            Self::RuntimeFolderCopied => cloned(host, Boot::Same, server, history, dice),
            Self::WrapperKilled => host.signal_each("exec", Signal::KILL),
            Self::GuardianKilled => host.signal_each("session-guardian", Signal::KILL),
            Self::BothKilled => {
                host.signal_each("session-guardian", Signal::KILL);
                host.signal_each("exec", Signal::KILL);
                return history.tokens_since(host.number, seen);
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

/// A clone runs commands beside its original, gets its turn, and goes away.
fn cloned(host: &Host, boot: Boot, server: &impl Server, history: &History, dice: &mut Dice) {
    let clone = host.cloned(CLONE, &server.url(CLONE), boot);
    let workers = Workers::start(std::slice::from_ref(&clone), dice.number());
    thread::sleep(LONG);
    let seen = history.begins_of(CLONE);
    workers.finish();
    assert!(history.begins_of(CLONE) > seen, "the clone has had a turn");
}
