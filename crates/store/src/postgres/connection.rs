//! Connection to a PostgreSQL server: blocking calls over an asynchronous client that runs on a thread of its own.

use std::future::Future;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use futures_util::future::join_all;
use futures_util::{StreamExt, stream};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::runtime::{Builder, Runtime};
use tokio::sync::mpsc::{UnboundedReceiver, UnboundedSender, unbounded_channel};
use tokio::task::JoinHandle;
use tokio::time::{sleep, timeout};
use tokio_postgres::error::SqlState;
use tokio_postgres::types::{ToSql, Type};
use tokio_postgres::{AsyncMessage, Client, Connection, Error, NoTls, Notification, Row, Socket};

use super::address::PostgresAddress;
use crate::StoreError;

/// A statement's parameters, each with its type. So the statement needs no round trip for preparation, and works behind a pooler.
pub(crate) type Params<'p> = &'p [(&'p (dyn ToSql + Sync), Type)];

/// How long a store that is dropped waits for the statements that it has sent.
const LAST_WAIT: Duration = Duration::from_secs(1);
/// The code of the errors that `lockkeeper.commit` raises.
const MISFIT: &str = "LK001";
/// The code of the error that a change raises in a project that was moved to another store.
const MOVED: &str = "LK002";

/// The connections of one store to its server.
pub(crate) struct Server {
    /// Wakers share it: they may outlive the store.
    runtime: Arc<Runtime>,
    to: PostgresAddress,
    address: String,
    connect_timeout: Duration,
    /// The connection that all threads share: calls that are one statement each.
    shared: Mutex<Option<Arc<Client>>>,
    /// Idle connections for transactions of several statements.
    idle: Mutex<Vec<Client>>,
    /// Statements that were sent without waiting for their end.
    sent: Mutex<Vec<JoinHandle<()>>>,
}

impl Server {
    /// Prepares connections to a server. Does not connect yet.
    pub(crate) fn new(to: PostgresAddress, connect_timeout: Duration) -> Result<Self, StoreError> {
        let address = to.to_string();
        let runtime =
            Builder::new_multi_thread().worker_threads(1).thread_name("postgres").enable_all().build();
        let runtime = runtime.map_err(|source| StoreError::Io {
            action: "start a thread for",
            address: address.clone(),
            source,
        })?;
        let (shared, idle, sent) = (Mutex::new(None), Mutex::default(), Mutex::default());
        let runtime = Arc::new(runtime);
        Ok(Self { runtime, to, address, connect_timeout, shared, idle, sent })
    }

    /// The server, for people. It has no password.
    pub(crate) fn address(&self) -> &str {
        &self.address
    }

    /// Runs one statement in a transaction of its own.
    pub(crate) fn query(&self, sql: &str, params: Params<'_>) -> Result<Vec<Row>, Failure> {
        let client = self.shared()?;
        self.run(client.query_typed(sql, params))
    }

    /// Runs two statements one after the other, in one round trip.
    pub(crate) fn query_two(&self, one: Statement<'_>, two: Statement<'_>) -> Result<[Vec<Row>; 2], Failure> {
        let client = self.shared()?;
        self.run(async {
            let (one, two) =
                futures_util::join!(client.query_typed(one.0, one.1), client.query_typed(two.0, two.1));
            Ok([one?, two?])
        })
    }

    /// Runs statements without parameters.
    pub(crate) fn execute(&self, sql: &str) -> Result<(), Failure> {
        let client = self.shared()?;
        self.run(client.batch_execute(sql))
    }

    /// Runs one statement and does not wait for its end.
    pub(crate) fn send(&self, sql: &'static str, params: Vec<(String, Type)>) {
        self.send_after(Duration::ZERO, || (), sql, params);
    }

    /// Runs one statement after a pause and does not wait for its end. Calls `before` right before it is sent.
    pub(crate) fn send_after(
        &self,
        pause: Duration,
        before: impl FnOnce() + Send + 'static,
        sql: &'static str,
        params: Vec<(String, Type)>,
    ) {
        let client = self.shared();
        let task = self.runtime.spawn(async move {
            sleep(pause).await;
            before();
            let params: Vec<_> =
                params.iter().map(|(text, kind)| (text as &(dyn ToSql + Sync), kind.clone())).collect();
            // If it is lost, waiting processes still poll now and then.
            if let Ok(client) = client {
                let _ = client.query_typed(sql, &params).await;
            }
        });
        let mut sent = self.sent.lock().unwrap_or_else(PoisonError::into_inner);
        sent.retain(|task| !task.is_finished());
        sent.push(task);
    }

    /// A connection that nobody else uses until it is given back.
    pub(crate) fn exclusive(&self) -> Result<Exclusive<'_>, Failure> {
        let idle = self.idle.lock().unwrap_or_else(PoisonError::into_inner).pop();
        let client = match idle.filter(|client| !client.is_closed()) {
            Some(client) => client,
            None => self.connect(None)?,
        };
        Ok(Exclusive { server: self, client: Some(client) })
    }

    /// Opens a connection whose notifications go to `notified`. It ends when the receiver is dropped.
    pub(crate) fn listen(
        &self,
        channel: &str,
        notified: UnboundedSender<Notification>,
    ) -> Result<(Client, Arc<Runtime>), Failure> {
        let client = self.connect(Some(notified))?;
        self.run(client.batch_execute(&format!("LISTEN {channel}")))?;
        Ok((client, Arc::clone(&self.runtime)))
    }

    /// What a task needs to open such connections itself.
    pub(crate) fn reconnection(&self) -> Reconnection {
        Reconnection { to: self.to.clone(), connect_timeout: self.connect_timeout }
    }

    /// How long it may take to connect.
    pub(crate) fn connect_timeout(&self) -> Duration {
        self.connect_timeout
    }

    fn shared(&self) -> Result<Arc<Client>, Failure> {
        let mut shared = self.shared.lock().unwrap_or_else(PoisonError::into_inner);
        match &*shared {
            Some(client) if !client.is_closed() => Ok(Arc::clone(client)),
            Some(_) | None => Ok(Arc::clone(shared.insert(Arc::new(self.connect(None)?)))),
        }
    }

    fn connect(&self, notified: Option<UnboundedSender<Notification>>) -> Result<Client, Failure> {
        self.runtime.block_on(self.reconnection().connect(notified))
    }

    /// Waits for a call, at most for the timeout: a cut link may never report an error.
    fn run<T>(&self, call: impl Future<Output = Result<T, Error>>) -> Result<T, Failure> {
        match self.runtime.block_on(async { timeout(self.connect_timeout, call).await }) {
            Ok(called) => called.map_err(Failure::Call),
            Err(_) => {
                // The next call opens a new connection.
                *self.shared.lock().unwrap_or_else(PoisonError::into_inner) = None;
                Err(Failure::NoAnswer(self.connect_timeout))
            }
        }
    }
}

/// Drives a connection (reads and writes) until it ends.
async fn drive<T: AsyncRead + AsyncWrite + Unpin>(
    mut connection: Connection<Socket, T>,
    notified: Option<UnboundedSender<Notification>>,
) {
    let mut messages = stream::poll_fn(move |context| connection.poll_message(context));
    while let Some(Ok(message)) = messages.next().await {
        if let (AsyncMessage::Notification(notification), Some(notified)) = (message, &notified)
            && notified.send(notification).is_err()
        {
            return;
        }
    }
}

/// Lets the statements that were sent reach the server: a command ends right after its last commit.
impl Drop for Server {
    fn drop(&mut self) {
        let sent = std::mem::take(self.sent.get_mut().unwrap_or_else(PoisonError::into_inner));
        let all = async {
            for task in sent {
                let _ = task.await;
            }
        };
        let _ = self.runtime.block_on(async { timeout(LAST_WAIT, all).await });
    }
}

/// What is needed to connect to a server.
pub(crate) struct Reconnection {
    to: PostgresAddress,
    connect_timeout: Duration,
}

impl Reconnection {
    /// Listens to a channel again after the connection broke: tries until it has a new one. The pauses between two tries double
    /// from the first to the last.
    pub(crate) async fn listen(
        &self,
        channel: &str,
        (mut pause, longest): (Duration, Duration),
    ) -> (Client, UnboundedReceiver<Notification>) {
        loop {
            let (sender, notified) = unbounded_channel();
            if let Ok(client) = self.connect(Some(sender)).await
                && client.batch_execute(&format!("LISTEN {channel}")).await.is_ok()
            {
                return (client, notified);
            }
            sleep(pause).await;
            pause = (2 * pause).min(longest);
        }
    }

    /// Opens a connection. Its notifications go to `notified`.
    pub(crate) async fn connect(
        &self,
        notified: Option<UnboundedSender<Notification>>,
    ) -> Result<Client, Failure> {
        let PostgresAddress { config, tls } = &self.to;
        let connecting = async {
            Ok(match tls {
                None => {
                    let (client, connection) = config.connect(NoTls).await?;
                    tokio::spawn(drive(connection, notified));
                    client
                }
                Some(tls) => {
                    let (client, connection) = config.connect(tls.clone()).await?;
                    tokio::spawn(drive(connection, notified));
                    client
                }
            })
        };
        match timeout(self.connect_timeout, connecting).await {
            Ok(connected) => connected.map_err(Failure::Connect),
            Err(_) => Err(Failure::TimedOut(self.connect_timeout)),
        }
    }
}

/// A statement and its parameters.
pub(crate) type Statement<'s> = (&'s str, Params<'s>);

/// A connection for one transaction. It is closed unless it is given back.
pub(crate) struct Exclusive<'s> {
    server: &'s Server,
    client: Option<Client>,
}

impl Exclusive<'_> {
    /// Runs one statement.
    pub(crate) fn query(&self, sql: &str, params: Params<'_>) -> Result<Vec<Row>, Failure> {
        let client = self.client.as_ref().ok_or(Failure::Ended)?;
        self.server.run(client.query_typed(sql, params))
    }

    /// Runs statements one after the other, in one round trip. Each is a transaction of its own, unless one of them is `BEGIN`.
    /// Returns the first failure.
    pub(crate) fn pipeline(&self, statements: &[Statement<'_>]) -> Result<Vec<Vec<Row>>, Failure> {
        let client = self.client.as_ref().ok_or(Failure::Ended)?;
        self.server.run(async {
            let calls = statements.iter().map(|(sql, params)| client.query_typed(sql, params));
            // The calls are sent in their order: each is sent when it is polled for the first time.
            join_all(calls).await.into_iter().collect()
        })
    }

    /// Keeps the connection for the next transaction. The last one has ended.
    pub(crate) fn give_back(mut self) {
        if let Some(client) = self.client.take().filter(|client| !client.is_closed()) {
            self.server.idle.lock().unwrap_or_else(PoisonError::into_inner).push(client);
        }
    }

    /// Runs statements without parameters and then one with them, in one round trip.
    pub(crate) fn begin(&self, begin: &str, sql: &str, params: Params<'_>) -> Result<Vec<Row>, Failure> {
        let client = self.client.as_ref().ok_or(Failure::Ended)?;
        self.server.run(async {
            let (begun, rows) =
                futures_util::join!(client.batch_execute(begin), client.query_typed(sql, params));
            begun.and(rows)
        })
    }
}

/// Ends the transaction and keeps the connection for the next one.
impl Drop for Exclusive<'_> {
    fn drop(&mut self) {
        let Some(client) = self.client.take().filter(|client| !client.is_closed()) else { return };
        if self.server.run(client.batch_execute("ROLLBACK")).is_ok() {
            self.server.idle.lock().unwrap_or_else(PoisonError::into_inner).push(client);
        }
    }
}

/// Why a call of the server failed.
#[derive(Debug)]
pub(crate) enum Failure {
    /// There is no connection.
    Connect(Error),
    /// Connecting took too long.
    TimedOut(Duration),
    /// The server did not answer in time.
    NoAnswer(Duration),
    /// The call failed, or its connection broke.
    Call(Error),
    /// The transaction is over.
    Ended,
}

impl Failure {
    /// Whether another transaction conflicted. The call has changed nothing.
    pub(crate) fn is_conflict(&self) -> bool {
        let codes = [SqlState::T_R_DEADLOCK_DETECTED, SqlState::T_R_SERIALIZATION_FAILURE];
        matches!(self, Self::Call(error) if error.code().is_some_and(|code| codes.contains(code)))
    }

    /// Whether the connection broke, so that the outcome of the call is unknown.
    pub(crate) fn is_broken(&self) -> bool {
        match self {
            Self::Call(error) => error.as_db_error().is_none() || is_shutdown(error),
            Self::NoAnswer(_) => true,
            Self::Connect(_) | Self::TimedOut(_) | Self::Ended => false,
        }
    }

    /// The error of a call that has changed nothing.
    pub(crate) fn explain(self, address: &str) -> StoreError {
        let address = address.to_owned();
        match self {
            Self::Call(error) if error.code().is_some_and(|code| code.code() == MISFIT) => {
                StoreError::Mismatch(
                    error.as_db_error().map_or_else(String::new, |error| error.message().to_owned()),
                )
            }
            Self::Call(error) if error.code().is_some_and(|code| code.code() == MOVED) => {
                let to = error.as_db_error().map_or_else(String::new, |error| error.message().to_owned());
                StoreError::Moved { address, to }
            }
            Self::Call(error)
                if error.as_db_error().is_some() && !is_shutdown(&error) && !is_standby(&error) =>
            {
                StoreError::Database { address, source: Box::new(error) }
            }
            Self::Connect(error) | Self::Call(error) => {
                StoreError::Unreachable { address, source: Box::new(error) }
            }
            Self::TimedOut(span) | Self::NoAnswer(span) => {
                StoreError::Unreachable { address, source: format!("no answer within {span:?}").into() }
            }
            Self::Ended => StoreError::Unreachable { address, source: "the connection was closed".into() },
        }
    }
}

/// Whether the server is a standby that was not promoted yet: it is read-only.
fn is_standby(error: &Error) -> bool {
    let codes = [SqlState::READ_ONLY_SQL_TRANSACTION, SqlState::OBJECT_NOT_IN_PREREQUISITE_STATE];
    error.code().is_some_and(|code| codes.contains(code))
}

/// Whether the server ended the connection because it shuts down or has crashed.
fn is_shutdown(error: &Error) -> bool {
    let codes = [SqlState::ADMIN_SHUTDOWN, SqlState::CRASH_SHUTDOWN, SqlState::CANNOT_CONNECT_NOW];
    error.code().is_some_and(|code| codes.contains(code))
}
