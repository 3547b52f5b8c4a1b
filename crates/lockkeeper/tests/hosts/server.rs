//! What a simulation needs of the store's servers: how hosts reach them, and how they fail.

use std::fmt::Debug;
use std::time::Duration;

use lockkeeper_testing::Dice;

use super::history::History;

/// Simulated hosts, without clones of them.
pub(crate) const HOSTS: usize = 3;

/// The number of a host that is a clone of another one.
pub(crate) const CLONE: usize = HOSTS;

/// Longer than a session.
pub(crate) const LONG: Duration = Duration::from_secs(7);

/// The servers of one store.
pub(crate) trait Server: Sized {
    /// How the servers fail.
    type Fault: Copy + Debug + 'static;

    /// All kinds of faults.
    const FAULTS: &'static [Self::Fault];

    /// Starts the servers. None where they are not installed.
    fn start(history: &History) -> Option<Self>;

    /// The address of the store for a host or a clone.
    fn url(&self, host: usize) -> String;

    /// A fault happens, lasts, and is over. `victim` is the host whose command is inside.
    fn fail(&mut self, fault: Self::Fault, victim: usize, dice: &mut Dice);

    /// Whether the store lets two holders in at once during such a fault, and loses who waits, as its documents say.
    fn lets_two_in(_fault: Self::Fault) -> bool {
        false
    }

    /// The file with the token that hosts need.
    fn token_file(&self) -> Option<String> {
        None
    }

    /// Holds back everything between the servers and those hosts that have a relay.
    fn slow_down(&self, by: Duration);
}
