//! The other side of each comparison: a bare connection, and what both sides need.

use std::future::{pending, poll_fn};
use std::sync::Barrier;
use std::sync::mpsc::{self, Receiver};
use std::thread;
use std::time::{Duration, Instant};

use lockkeeper_platform::random;
use lockkeeper_testing::ServerProxy;
use tokio::runtime::{Builder, Runtime};
use tokio_postgres::types::ToSql;
use tokio_postgres::{AsyncMessage, Client, NoTls, Statement};

use crate::measure::Row;

/// The name of a new project.
pub fn project() -> String {
    format!("bench-{:x}", random::number().unwrap())
}

/// Lets workers work at the same time. Returns how long all of them took.
pub fn at_once<W: Send>(workers: Vec<W>, work: impl Fn(W) + Sync) -> Duration {
    let barrier = Barrier::new(workers.len() + 1);
    thread::scope(|scope| {
        for worker in workers {
            let (barrier, work) = (&barrier, &work);
            scope.spawn(move || {
                barrier.wait();
                work(worker);
            });
        }
        barrier.wait();
        Instant::now()
    })
    .elapsed()
}

/// A bare connection.
pub struct Bare {
    pub runtime: Runtime,
    pub client: Client,
}

impl Bare {
    pub fn connect(server: &str) -> Self {
        let runtime = Builder::new_current_thread().enable_all().build().unwrap();
        let client = runtime.block_on(async {
            let config: tokio_postgres::Config = server.parse().unwrap();
            let (client, connection) = config.connect(NoTls).await.expect("the server answers");
            tokio::spawn(connection);
            client
        });
        Self { runtime, client }
    }

    pub fn execute(&self, sql: &str) {
        self.runtime.block_on(self.client.batch_execute(sql)).expect("the server answers");
    }

    pub fn prepare(&self, sql: &str) -> Statement {
        self.runtime.block_on(self.client.prepare(sql)).expect("the server answers")
    }

    pub fn run(&self, statement: &Statement, params: &[&(dyn ToSql + Sync)]) {
        self.runtime.block_on(self.client.execute(statement, params)).expect("the server answers");
    }

    /// When each notification of a channel arrives on a connection of its own. The thread ends with the process.
    pub fn listen(server: &str, channel: &str) -> Receiver<Instant> {
        let (arrived, arrivals) = mpsc::channel();
        let (listens, is_listening) = mpsc::channel();
        let (server, sql) = (server.to_owned(), format!("LISTEN {channel}"));
        thread::spawn(move || {
            let runtime = Builder::new_current_thread().enable_all().build().unwrap();
            runtime.block_on(async {
                let config: tokio_postgres::Config = server.parse().unwrap();
                let (client, mut connection) = config.connect(NoTls).await.expect("the server answers");
                tokio::spawn(async move {
                    client.batch_execute(&sql).await.expect("it listens");
                    let _ = listens.send(());
                    // The connection ends with its client.
                    pending::<()>().await;
                });
                while let Some(Ok(message)) = poll_fn(|context| connection.poll_message(context)).await {
                    if matches!(message, AsyncMessage::Notification(_))
                        && arrived.send(Instant::now()).is_err()
                    {
                        return;
                    }
                }
            });
        });
        is_listening.recv().expect("it listens");
        arrivals
    }
}

/// How often a call waits for the server, behind a proxy that counts.
pub fn counted(proxy: &ServerProxy, what: &str, expected: usize, call: impl FnOnce()) -> Row {
    proxy.reset();
    call();
    Row::exactly(format!("round trips: {what}"), proxy.round_trips(), expected)
}
