//! A database of its own on the PostgreSQL server of the tests, for tests of the tables.

use tokio_postgres::{Config, Error, NoTls};

use super::on_server::SERVER;

/// An empty database. It is removed when it is dropped.
pub struct Database {
    server: Config,
    name: String,
}

impl Database {
    /// Makes a database; none if there is no server.
    pub fn new() -> Option<Self> {
        let server: Config = std::env::var(SERVER).ok()?.parse().unwrap();
        let name = format!("test_{:x}", lockkeeper_platform::random::number().unwrap());
        execute(&server, &format!("CREATE DATABASE {name}")).unwrap();
        Some(Self { server, name })
    }

    /// How to connect to it.
    pub fn config(&self) -> Config {
        let mut config = self.server.clone();
        config.dbname(&self.name);
        config
    }

    /// Runs statements in it.
    pub fn execute(&self, sql: &str) {
        self.try_execute(sql).unwrap();
    }

    /// Runs statements that the server may refuse.
    pub fn try_execute(&self, sql: &str) -> Result<(), Error> {
        execute(&self.config(), sql)
    }
}

impl Drop for Database {
    fn drop(&mut self) {
        execute(&self.server, &format!("DROP DATABASE {} WITH (FORCE)", self.name)).unwrap();
    }
}

fn execute(config: &Config, sql: &str) -> Result<(), Error> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    runtime.block_on(async {
        let (client, connection) = config.connect(NoTls).await.unwrap();
        let connection = tokio::spawn(connection);
        client.batch_execute(sql).await?;
        drop(client);
        let _ = connection.await;
        Ok(())
    })
}
