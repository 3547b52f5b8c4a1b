//! Server: blocking calls of an etcd cluster over an asynchronous client that runs on a thread of its own.
//!
//! All calls share one connection to one member. When that member cannot be reached, or has no leader, the next member is
//! asked.

use std::error::Error;
use std::future::Future;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use prost::Message;
use tokio::runtime::{Builder, Runtime};
use tokio::sync::Mutex;
use tokio::time::{Instant, sleep, timeout};

use super::address::EtcdAddress;
use super::channel::{CallError, Channel, Status, framed};
use super::messages::{TxnRequest, TxnResponse};
use crate::StoreError;

/// How long to wait before a call is tried again.
const PAUSE: Duration = Duration::from_millis(20);
pub(super) const TXN: &str = "etcdserverpb.KV/Txn";

/// The connection of one store to its cluster.
pub(super) struct Server {
    /// Wakers share it: they may outlive the store.
    pub(super) runtime: Arc<Runtime>,
    pub(super) link: Arc<Link>,
    address: String,
}

impl Server {
    /// Prepares a connection. Does not connect yet.
    pub(super) fn new(to: EtcdAddress, limit: Duration) -> Result<Self, StoreError> {
        let address = to.to_string();
        let runtime = Builder::new_multi_thread().worker_threads(1).thread_name("etcd").enable_all().build();
        let runtime = runtime.map_err(|source| StoreError::Io {
            action: "start a thread for",
            address: address.clone(),
            source,
        })?;
        let current = Mutex::new(Current { endpoint: 0, channel: None });
        Ok(Self { runtime: Arc::new(runtime), link: Arc::new(Link { to, limit, current }), address })
    }

    /// The cluster, for people. It has no password.
    pub(super) fn address(&self) -> &str {
        &self.address
    }

    /// Blocks until calls have ended.
    pub(super) fn wait<T>(&self, calls: impl Future<Output = T>) -> T {
        self.runtime.block_on(calls)
    }

    /// A transaction that may be made twice.
    pub(super) fn txn(&self, request: &TxnRequest) -> Result<TxnResponse, StoreError> {
        let called = self.wait(self.link.call(TXN, framed(request)));
        called.map_err(|failure| failure.explain(&self.address))
    }

    /// A transaction that is sent once.
    pub(super) fn txn_once(&self, request: &TxnRequest) -> Result<TxnResponse, Failure> {
        self.wait(self.link.once(TXN, framed(request), self.link.share()))
    }
}

/// The connection to the members, for calls and for wakers.
pub(super) struct Link {
    to: EtcdAddress,
    /// How long a call may take over all members.
    limit: Duration,
    current: Mutex<Current>,
}

struct Current {
    /// The member that is asked: it grows, and is taken modulo the number of members.
    endpoint: usize,
    channel: Option<Channel>,
}

impl Link {
    /// How long a call may take.
    pub(super) fn limit(&self) -> Duration {
        self.limit
    }

    /// The share of the timeout that one member gets, so that there is time to ask the others.
    pub(super) fn share(&self) -> Duration {
        self.limit / u32::try_from(self.to.endpoints.len()).unwrap_or(1).max(1)
    }

    /// Makes a call that may be made twice, until a member answers.
    pub(super) async fn call<A: Message + Default>(
        &self,
        method: &str,
        request: Bytes,
    ) -> Result<A, Failure> {
        let until = Instant::now() + self.limit;
        loop {
            let left = until.saturating_duration_since(Instant::now());
            let failure = match self.once(method, request.clone(), left.min(self.share())).await {
                Err(failure) if failure.is_broken() => failure,
                done => return done,
            };
            if Instant::now() + PAUSE >= until {
                return Err(match failure {
                    Failure::NoAnswer(_) => Failure::NoAnswer(self.limit),
                    other => other,
                });
            }
            sleep(PAUSE).await;
        }
    }

    /// Makes a call once.
    pub(super) async fn once<A: Message + Default>(
        &self,
        method: &str,
        request: Bytes,
        limit: Duration,
    ) -> Result<A, Failure> {
        let channel = self.channel().await?;
        let called = timeout(limit, channel.call(method, request)).await;
        let failure = match called {
            Ok(Ok(answer)) => return Ok(answer),
            Ok(Err(error)) => Failure::from(error),
            Err(_) => Failure::NoAnswer(limit),
        };
        if failure.is_broken() {
            self.give_up(&channel).await;
        }
        Err(failure)
    }

    /// The connection that all calls share.
    pub(super) async fn channel(&self) -> Result<Channel, Failure> {
        let mut current = self.current.lock().await;
        if let Some(channel) = current.channel.as_ref().filter(|channel| !channel.is_closed()) {
            return Ok(channel.clone());
        }
        let members = &self.to.endpoints;
        let mut last = Failure::NoAnswer(self.limit);
        for _ in members {
            let member = &members[current.endpoint % members.len()];
            last = match timeout(self.share(), Channel::connect(&self.to, member)).await {
                Ok(Ok(channel)) => return Ok(current.channel.insert(channel).clone()),
                Ok(Err(error)) => match Failure::from(error) {
                    Failure::Broken(source) => Failure::NoConnection(source),
                    refused => return Err(refused),
                },
                Err(_) => Failure::NoConnection(format!("no answer within {:?}", self.limit).into()),
            };
            current.endpoint += 1;
        }
        Err(last)
    }

    /// Closes a connection that does not work. The next call asks the next member.
    pub(super) async fn give_up(&self, channel: &Channel) {
        let mut current = self.current.lock().await;
        if current.channel.as_ref().is_some_and(|open| open.is(channel)) {
            current.channel = None;
            current.endpoint += 1;
        }
        channel.close();
    }
}

/// Why a call failed.
#[derive(Debug)]
pub(super) enum Failure {
    /// No member can be reached. Nothing was sent.
    NoConnection(Box<dyn Error + Send + Sync>),
    /// The connection broke, or the member does not know the outcome of the call.
    Broken(Box<dyn Error + Send + Sync>),
    /// No member answered in time.
    NoAnswer(Duration),
    /// A member refused the call, which has changed nothing.
    Refused(Status),
}

impl From<CallError> for Failure {
    fn from(error: CallError) -> Self {
        match error {
            CallError::Status(status) if status.is_unavailable() => Self::Broken(Box::new(status)),
            CallError::Status(status) => Self::Refused(status),
            CallError::Broken(source) => Self::Broken(source),
        }
    }
}

impl Failure {
    /// Whether the outcome of the call is unknown.
    pub(super) fn is_broken(&self) -> bool {
        matches!(self, Self::Broken(_) | Self::NoAnswer(_))
    }

    /// The error of a call that has changed nothing.
    pub(super) fn explain(self, address: &str) -> StoreError {
        let address = address.to_owned();
        match self {
            Self::NoConnection(source) | Self::Broken(source) => StoreError::Unreachable { address, source },
            Self::NoAnswer(span) => {
                StoreError::Unreachable { address, source: format!("no answer within {span:?}").into() }
            }
            Self::Refused(status) => StoreError::Database { address, source: Box::new(status) },
        }
    }
}
