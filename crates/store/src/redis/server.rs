//! A Redis server as one store uses it: idle connections, scripts, and the incarnation of the store.

use std::collections::BTreeMap;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use super::address::RedisAddress;
use super::connection::{Connection, Failure};
use super::resp::Reply;
use crate::StoreError;
use crate::optimistic::TRIES;

/// The version of what is stored.
const FORMAT: i64 = 1;
const OPEN: &str = include_str!("scripts/open.lua");
const READ: &str = concat!(include_str!("scripts/about.lua"), include_str!("scripts/read.lua"));
const COMMIT: &str = concat!(include_str!("scripts/about.lua"), include_str!("scripts/commit.lua"));
const SETTLE: &str = concat!(include_str!("scripts/about.lua"), include_str!("scripts/settle.lua"));

/// A script of the server.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Script {
    Read,
    Commit,
    Settle,
}

impl Script {
    const ALL: [(Self, &str); 3] = [(Self::Read, READ), (Self::Commit, COMMIT), (Self::Settle, SETTLE)];
}

/// The connections of one store to its server.
pub(super) struct Server {
    to: RedisAddress,
    address: String,
    limit: Duration,
    keys: [String; 7],
    idle: Mutex<Vec<Known>>,
    /// The incarnation of the store that this process has seen last.
    seen: Mutex<Option<String>>,
}

/// A connection on which the server knows the scripts.
struct Known {
    connection: Connection,
    incarnation: String,
    hashes: BTreeMap<Script, String>,
}

/// A reply, and the incarnation of the store that gave it.
pub(super) struct Called {
    pub(super) reply: Result<Reply, Failure>,
    pub(super) incarnation: String,
}

impl Server {
    /// Prepares connections to a server. Does not connect yet.
    pub(super) fn new(to: RedisAddress, project: &str, limit: Duration) -> Self {
        let prefix = prefix(project);
        let keys = ["about", "records", "keys", "parts", "gone", "log", "calls"];
        Self {
            address: to.to_string(),
            to,
            limit,
            keys: keys.map(|key| format!("{prefix}{key}")),
            idle: Mutex::default(),
            seen: Mutex::default(),
        }
    }

    /// The server, for people. It has no password.
    pub(super) fn address(&self) -> &str {
        &self.address
    }

    /// One of the keys, in the order of the scripts.
    pub(super) fn key(&self, place: usize) -> &str {
        &self.keys[place]
    }

    /// The address, for another connection.
    pub(super) fn to(&self) -> &RedisAddress {
        &self.to
    }

    /// How long a call may take.
    pub(super) fn limit(&self) -> Duration {
        self.limit
    }

    /// Connects for the first time. Returns the moment on the store's clock.
    pub(super) fn open(&self) -> Result<i64, StoreError> {
        let opened = self.retried(|| self.connect());
        let (known, moment) = opened.map_err(|failure| self.explain(failure))?;
        lock(&self.idle).push(known);
        Ok(moment)
    }

    /// The id of the incarnation. It changes with a restart, a failover or a loss of all data.
    pub(super) fn incarnation(&self) -> Option<String> {
        lock(&self.seen).clone()
    }

    /// Calls a script that may run twice. If its connection breaks, or the server has lost the store, tries again.
    pub(super) fn call(&self, script: Script, args: &[Vec<u8>]) -> Result<Reply, StoreError> {
        let called = self.retried(|| self.call_once(script, args)?.reply);
        called.map_err(|failure| self.explain(failure))
    }

    /// Calls a script once. Fails if there is no connection; then nothing was sent.
    pub(super) fn call_once(&self, script: Script, args: &[Vec<u8>]) -> Result<Called, Failure> {
        let mut known = self.connection()?;
        let command = known.command(script, &self.keys, None, args);
        Ok(self.run(known, command))
    }

    /// Calls a script for an earlier incarnation.
    pub(super) fn call_as(
        &self,
        script: Script,
        incarnation: &str,
        args: &[Vec<u8>],
    ) -> Result<Reply, StoreError> {
        let called = self.retried(|| {
            let mut known = self.connection()?;
            let command = known.command(script, &self.keys, Some(incarnation), args);
            match self.run(known, command).reply {
                // Another connection would not help.
                Err(failure @ Failure::Refused(_)) => Ok(Err(failure)),
                other => other.map(Ok),
            }
        });
        called.and_then(|called| called).map_err(|failure| self.explain(failure))
    }

    /// Runs plain commands that may run twice.
    pub(super) fn commands(&self, commands: &[Vec<String>]) -> Result<Vec<Reply>, StoreError> {
        let called = self.retried(|| {
            let mut known = self.connection()?;
            let replies = known.connection.pipeline(commands, self.limit)?;
            lock(&self.idle).push(known);
            Ok(replies)
        });
        called.map_err(|failure| self.explain(failure))
    }

    fn run(&self, mut known: Known, command: Vec<Vec<u8>>) -> Called {
        let reply = known.connection.pipeline(&[command], self.limit);
        let reply = reply.map(|mut replies| replies.pop().unwrap_or(Reply::Nothing));
        let incarnation = known.incarnation.clone();
        if reply.is_ok() {
            lock(&self.idle).push(known);
        }
        Called { reply, incarnation }
    }

    fn retried<T>(&self, call: impl Fn() -> Result<T, Failure>) -> Result<T, Failure> {
        // After a timeout there is no second try: this call has waited long enough.
        let is_closed = |failure: &Failure| matches!(failure, Failure::Broken(_)) || failure.is_restarted();
        let mut called = call();
        for _ in 1..TRIES {
            if !called.as_ref().is_err_and(is_closed) {
                break;
            }
            called = call();
        }
        called
    }

    fn connection(&self) -> Result<Known, Failure> {
        let seen = lock(&self.seen).clone();
        let idle = || lock(&self.idle).pop();
        while let Some(known) = idle() {
            if Some(&known.incarnation) == seen.as_ref() && !known.connection.is_closed() {
                return Ok(known);
            }
        }
        self.retried(|| self.connect()).map(|(known, _)| known)
    }

    /// Opens a connection, loads the scripts into the server, and opens the store.
    fn connect(&self) -> Result<(Known, i64), Failure> {
        let broken = |failure: Failure| match failure {
            // No script has run yet, so nothing was changed.
            Failure::NoAnswer(span) => Failure::Connect(format!("no answer within {span:?}").into()),
            other => other,
        };
        let mut connection = Connection::open(&self.to, self.limit)?;
        let mut commands: Vec<Vec<String>> = Script::ALL
            .iter()
            .map(|(_, text)| ["SCRIPT", "LOAD", text].map(str::to_owned).to_vec())
            .collect();
        commands.push(self.opening(false));
        let replies = connection.pipeline(&commands, self.limit).map_err(broken)?;
        let hashes = Script::ALL.iter().zip(&replies);
        let hashes = hashes.filter_map(|((script, _), reply)| Some((*script, reply.text()?.to_owned())));
        let opened = replies.last().and_then(Reply::list).unwrap_or_default();
        let [incarnation, moment] = opened else { return Err(no_sense()) };
        let (incarnation, moment) = (incarnation.text(), moment.number());
        let (Some(incarnation), Some(moment)) = (incarnation.map(str::to_owned), moment) else {
            return Err(no_sense());
        };
        *lock(&self.seen) = Some(incarnation.clone());
        Ok((Known { connection, incarnation, hashes: hashes.collect() }, moment))
    }

    /// The command that opens the store. `has_forgotten`: the store has an older version than this process has seen.
    fn opening(&self, has_forgotten: bool) -> Vec<String> {
        let mut open = vec!["EVAL".to_owned(), OPEN.to_owned(), self.keys.len().to_string()];
        open.extend(self.keys.iter().cloned());
        open.push(FORMAT.to_string());
        open.push(lock(&self.seen).clone().unwrap_or_default());
        open.push(u8::from(has_forgotten).to_string());
        open
    }

    /// Begins a new incarnation of the store, because it has an older version than this process has seen.
    pub(super) fn begin_anew(&self) -> Result<(), StoreError> {
        let replies = self.commands(&[self.opening(true)])?;
        let opened = replies.first().and_then(Reply::list).unwrap_or_default();
        let incarnation = opened.first().and_then(Reply::text).map(str::to_owned);
        *lock(&self.seen) = Some(incarnation.ok_or_else(|| self.explain(no_sense()))?);
        Ok(())
    }

    pub(super) fn explain(&self, failure: Failure) -> StoreError {
        if let Failure::Refused(text) = &failure
            && let Some(found) = text.strip_prefix("TOONEW ").and_then(|found| found.parse().ok())
        {
            return StoreError::TooNew { address: self.address.clone(), found, known: FORMAT };
        }
        failure.explain(&self.address)
    }
}

impl Known {
    /// The command that calls a script.
    fn command(
        &mut self,
        script: Script,
        keys: &[String],
        incarnation: Option<&str>,
        args: &[Vec<u8>],
    ) -> Vec<Vec<u8>> {
        let hash = self.hashes.get(&script).cloned().unwrap_or_default();
        let head = ["EVALSHA".to_owned(), hash, keys.len().to_string()];
        let head = head.into_iter().chain(keys.iter().cloned());
        let head = head.chain([incarnation.unwrap_or(&self.incarnation).to_owned()]);
        head.map(String::into_bytes).chain(args.iter().cloned()).collect()
    }
}

/// What all keys of a project begin with. The braces put them into one slot of a cluster.
pub(super) fn prefix(project: &str) -> String {
    let project = project.replace('%', "%25").replace('{', "%7B").replace('}', "%7D");
    format!("lockkeeper:{{{project}}}:")
}

pub(super) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    // Each value is replaced as a whole, so it is sound after a panic of another thread.
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

fn no_sense() -> Failure {
    Failure::Refused("ERR the server returned something else".to_owned())
}
