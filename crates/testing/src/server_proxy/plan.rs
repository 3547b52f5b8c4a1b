//! Which messages break their connections: the one with a chosen number, or some at random.

use super::messages::{Message, Protocol};
use crate::Dice;

/// When a connection breaks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Break {
    /// Before the server reads the message.
    Before,
    /// After the server has answered it. The client does not get the answer.
    After,
    /// No connection ends: before the server reads the message, all messages are held back, as by `ServerProxy::silence`.
    Silence,
}

/// Which message breaks its connection, and what was counted.
#[derive(Default)]
pub(super) struct Plan {
    /// How many messages of clients are left until the break, and its kind.
    at: Option<(usize, Break)>,
    /// Breaks at random: about one of this many messages breaks its connection, and how many breaks are left.
    sometimes: Option<(Dice, u64, usize)>,
    pub(super) breaks: usize,
    pub(super) round_trips: usize,
}

impl Plan {
    /// Breaks the connection of one message, counted from 1.
    pub(super) fn at(number: usize, when: Break) -> Self {
        Self { at: Some((number, when)), ..Self::default() }
    }

    /// Breaks the connection of about one message of `often`, `most` times.
    pub(super) fn sometimes(dice: Dice, often: u64, most: usize) -> Self {
        Self { sometimes: Some((dice, often, most)), ..Self::default() }
    }

    /// Whether the next message breaks its connection, and how.
    pub(super) fn next(&mut self, is_delicate: bool) -> Option<Break> {
        let when = match (&mut self.at, &mut self.sometimes) {
            (Some((1, when)), _) => {
                let when = *when;
                self.at = None;
                Some(when)
            }
            (Some((left, _)), _) => {
                *left -= 1;
                None
            }
            (None, Some((dice, often, left))) => {
                let [is_hit, is_before] = [*often, 2].map(|sides| dice.number() % sides == 0);
                let breaks = is_hit && !is_delicate && *left > 0;
                *left -= usize::from(breaks);
                breaks.then_some(if is_before { Break::Before } else { Break::After })
            }
            (None, None) => None,
        };
        self.breaks += usize::from(when.is_some());
        when
    }
}

/// The part of a connection in which no random break may come.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Delicate {
    No,
    /// Until the end of the statement.
    Statement,
    /// Until the end of the transaction.
    Transaction,
    /// For ever.
    Listens,
}

impl Delicate {
    /// The state of a new connection. Only a store on PostgreSQL has parts in which a break is not made good.
    pub(super) fn new(protocol: Protocol) -> Self {
        match protocol {
            Protocol::Postgres => Self::Statement,
            Protocol::Redis | Protocol::Etcd | Protocol::Http => Self::No,
        }
    }

    /// The next state, after a message.
    pub(super) fn after(self, message: &Message) -> Self {
        let has = |text: &str| message.bytes.windows(text.len()).any(|part| part == text.as_bytes());
        match self {
            Self::Listens => self,
            Self::No | Self::Statement | Self::Transaction if has("LISTEN ") => Self::Listens,
            Self::No | Self::Statement if has("READ ONLY") => Self::Transaction,
            Self::No | Self::Statement if has("pg_notify") => Self::Statement,
            Self::Transaction if has("ROLLBACK") => Self::Statement,
            Self::Statement if message.is_answered => Self::No,
            Self::No | Self::Statement | Self::Transaction => self,
        }
    }
}
