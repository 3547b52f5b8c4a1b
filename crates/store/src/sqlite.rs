//! The embedded store: one SQLite database that every process opens.
//!
//! | file | what it is |
//! |---|---|
//! | `leases.db`, `-wal`, `-shm` | leases and tickets of this boot; made anew after another boot, when all are dead |
//! | `tokens` | the last number given, and a limit that survives a power cut |
//! | `gate` | one decision at a time: its kernel lock is fairer than SQLite's own waiting, and never sleeps; has the limit once more |
//! | `wake/` | the bells of those who sleep now |
//! | `clerk` | who decides for others in a crowd, if somebody does: its kernel lock, and which FIFO takes errands |
//!
//! A process that is killed leaves the database as it was before or after its decision, and nothing else but
//! perhaps its bell, which whoever buries its ticket or lease puts away, or else the next `locks cleanup`.

mod connections;
mod examine;
mod pace;
mod records;
mod rows;
mod schema;
mod tokens;

use std::fs;
use std::io;
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::fs::{DirBuilderExt, MetadataExt};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use lockkeeper_core::id::{BellId, LeaseId, Token};
use lockkeeper_core::time::Moment;
use rusqlite::Connection;

use super::{Bell, Decision, Examination, Granted, Store, StoreError};
pub(super) use connections::{Connections, Purpose};
pub(super) use examine::pages;
use lockkeeper_platform::desk::Desk;
use lockkeeper_platform::{bell, clock, fs as local, gate};
use pace::Pace;
use records::Rows;
pub(super) use schema::{Format, connect, explain, use_log, version};
use tokens::Tokens;

/// How long a folder has to be left alone before its time of change is trusted.
const SETTLED: Duration = Duration::from_millis(100);

/// A folder's inode and time of change.
type Stamp = (u64, i64, i64);

/// The embedded store.
pub struct SqliteStore {
    folder: PathBuf,
    path: PathBuf,
    gate: gate::Gate,
    /// The files that are open here, by name and inode.
    files: Vec<(PathBuf, u64)>,
    /// The folder when the files were found to be in place, and since when it is so.
    seen: Mutex<Option<(Stamp, Moment)>>,
    tokens: Tokens,
    connections: Connections,
    ringer: bell::Ringer,
    desk: Arc<Desk>,
    pace: Arc<Pace>,
}

impl SqliteStore {
    /// Opens the store in `folder`, which is made if it is not there.
    pub fn open(folder: &Path, boot: &str) -> Result<Self, StoreError> {
        make_folder(folder)?;
        if let Some(kind) =
            local::network_file_system(folder).map_err(|error| failed("look at", folder, error))?
        {
            return Err(StoreError::NetworkFileSystem { path: folder.to_owned(), kind });
        }
        let gate_path = folder.join("gate");
        let gate = gate::Gate::open(&gate_path).map_err(|error| failed("open", &gate_path, error))?;
        let tokens = Tokens::open(folder, boot)?;
        let path = folder.join("leases.db");
        if tokens.boot()?.is_none_or(|last| last != boot) {
            let _alone = gate.lock().map_err(|error| failed("lock", &gate_path, error))?;
            start_boot(&tokens, &path, boot)?;
        }
        let mut connection = schema::connect(&path)?;
        // Somebody else may be at it just now: anything but a yes is looked at again alone.
        if !matches!(schema::is_set_up(&connection, &path), Ok(true)) {
            let _alone = gate.lock().map_err(|error| failed("lock", &gate_path, error))?;
            if !schema::is_set_up(&connection, &path)? {
                // What lost its file and its database within a moment still finds the limit on the gate.
                let noted = gate.noted().map_err(|error| failed("read", &gate_path, error))?;
                schema::set_up(&connection, &path, tokens.limit()?.max(noted))?;
            }
        }
        let pace = Arc::new(Pace::default());
        schema::tune(&mut connection, &path, &pace)?;
        let mut files = Vec::new();
        for name in ["gate", "tokens", "leases.db", "leases.db-wal"] {
            let file = folder.join(name);
            let found = fs::metadata(&file).map_err(|error| failed("look at", &file, error))?;
            files.push((file, found.ino()));
        }
        let folder = folder.to_owned();
        let (seen, connections) = (Mutex::new(None), Connections::new(connection));
        let (ringer, desk) = (bell::Ringer::new(&folder), Desk::new(&folder));
        Ok(Self { folder, path, gate, files, seen, tokens, connections, ringer, desk, pace })
    }

    /// Whether a store was ever made in `folder`. One that cannot be looked at may be there: opening it tells why.
    pub fn exists(folder: &Path) -> bool {
        folder.join("leases.db").try_exists().unwrap_or(true)
    }

    /// Does something on a connection that no other thread uses meanwhile.
    fn connected<T>(&self, work: impl FnOnce(&Connection) -> Result<T, StoreError>) -> Result<T, StoreError> {
        let another = || {
            // By now the path may lead elsewhere.
            self.check_place()?;
            let mut connection = schema::connect(&self.path)?;
            schema::tune(&mut connection, &self.path, &self.pace)?;
            Ok(connection)
        };
        self.connections.with(Purpose::Write, another, work)
    }

    /// Whether the files are still those that were opened: others would not see what is written to them.
    fn check_place(&self) -> Result<(), StoreError> {
        let folder = fs::metadata(&self.folder).map_err(|error| self.gone_or(error, &self.folder))?;
        let stamp = (folder.ino(), folder.ctime(), folder.ctime_nsec());
        let now = clock::now();
        // Nothing is made, renamed or removed in a folder without its time of change moving on, once the tick
        // in which it last did is over.
        let mut seen = self.seen.lock().unwrap_or_else(PoisonError::into_inner);
        let since = seen.filter(|(known, _)| *known == stamp).map_or(now, |(_, since)| since);
        if now.since(since) > SETTLED {
            return Ok(());
        }
        for (path, inode) in &self.files {
            let found = fs::metadata(path).map_err(|error| self.gone_or(error, path))?;
            if found.ino() != *inode {
                return Err(StoreError::Removed { path: path.clone() });
            }
        }
        *seen = Some((stamp, since));
        Ok(())
    }

    fn gone_or(&self, error: io::Error, path: &Path) -> StoreError {
        match error.kind() {
            io::ErrorKind::NotFound => StoreError::Removed { path: path.to_owned() },
            _ => failed("look at", path, error),
        }
    }

    fn database<T>(&self, result: rusqlite::Result<T>) -> Result<T, StoreError> {
        result.map_err(|error| schema::explain(&self.path, error))
    }

    fn commit(&self, connection: &Connection, decide: Decision<'_>) -> Result<(), StoreError> {
        self.database(execute(connection, "BEGIN IMMEDIATE"))?;
        let mut rows = Rows::new(self, connection);
        let decided = decide(&mut rows);
        // Also the numbers of a decision that failed are never given again.
        let (limit, kept) = match rows.drawing.take().map_or(Ok(None), |mut drawing| drawing.keep()) {
            Ok(limit) => (limit, Ok(())),
            Err(error) => (None, Err(error)),
        };
        let (changed, met, hands_on) = (rows.changed, rows.met, rows.hands_on);
        let ended = decided.and(kept).and_then(|()| {
            self.pace.note(met, hands_on);
            limit.map_or(Ok(()), |limit| self.note_limit(connection, limit))?;
            let end = if changed || limit.is_some() { "COMMIT" } else { "ROLLBACK" };
            self.database(execute(connection, end))
        });
        if ended.is_err() {
            // What failed counts, not how the clearing up went.
            if !connection.is_autocommit() {
                let _ = execute(connection, "ROLLBACK");
            }
            if let Some(limit) = limit {
                let _ = self.note_limit(connection, limit);
            }
        }
        ended
    }

    /// Notes the limit of numbers, for when the file of tokens is lost; on the gate too, for when the database is lost
    /// with it. That one is only the third copy: it may be missing.
    fn note_limit(&self, connection: &Connection, limit: u64) -> Result<(), StoreError> {
        let _ = self.gate.note(limit);
        let noted = connection.execute("UPDATE numbers SET highest = ?1", [limit.cast_signed()]);
        self.database(noted).map(|_| ())
    }
}

impl Store for SqliteStore {
    fn transact(&self, decide: Decision<'_>) -> Result<(), StoreError> {
        let _alone = self.gate.lock().map_err(|error| failed("lock", &self.folder.join("gate"), error))?;
        self.check_place()?;
        self.connected(|connection| self.commit(connection, decide))
    }

    fn snapshot(&self, look: Decision<'_>) -> Result<(), StoreError> {
        self.connected(|connection| {
            self.database(execute(connection, "BEGIN"))?;
            let mut rows = Rows::new(self, connection);
            let looked = look(&mut rows);
            let ended = self.database(execute(connection, "ROLLBACK"));
            looked.and(ended)
        })
    }

    fn bell(&self) -> Result<Box<dyn Bell>, StoreError> {
        let made = bell::Bell::create(&self.folder)
            .map_err(|error| failed("make a bell in", &self.folder, error))?;
        Ok(Box::new(made))
    }

    fn bell_with_id(&self, id: BellId) -> Result<Box<dyn Bell>, StoreError> {
        let made = bell::Bell::create_with_id(&self.folder, id);
        Ok(Box::new(made.map_err(|error| failed("make a bell in", &self.folder, error))?))
    }

    fn ring(&self, id: BellId) {
        // Whoever sleeps there looks again by itself after a while, so a ring that failed only delays.
        let _ = self.ringer.ring(id, None);
    }

    fn hand_over(&self, id: BellId, granted: Granted) {
        let _ = self.ringer.ring(id, Some(&word_of(granted)));
    }

    fn alert(&self, id: BellId) {
        // In a crowd whoever is awake too soon takes a core from somebody who decides; but for where one decides for all.
        if !self.pace.several() || self.desk.is_ours() {
            self.ringer.alert(id);
        }
    }

    fn dismantle(&self, id: BellId) {
        let _ = self.ringer.remove(id);
    }

    fn sweep(&self) -> Result<(), StoreError> {
        bell::sweep(&self.folder).map_err(|error| failed("clear", &self.folder.join("wake"), error))
    }

    fn desk(&self) -> Option<&Arc<Desk>> {
        self.pace.several().then_some(&self.desk)
    }

    fn examine(&self, thorough: bool) -> Result<Examination, StoreError> {
        self.connected(|connection| examine::examine(self, connection, thorough))
    }
}

impl Bell for bell::Bell {
    fn id(&self) -> BellId {
        self.id()
    }

    fn as_fd(&self) -> BorrowedFd<'_> {
        AsFd::as_fd(self)
    }

    fn quiet(&self) {
        let _ = bell::Bell::hear(self);
    }

    fn hear(&self) -> Option<Granted> {
        bell::Bell::hear(self).ok()?.1.map(granted_by)
    }
}

fn word_of(granted: Granted) -> bell::Word {
    let mut word = bell::Word::default();
    let parts = [granted.id.0, granted.token.0, granted.at.as_micros().cast_unsigned()];
    word.as_chunks_mut().0.iter_mut().zip(parts).for_each(|(place, part)| *place = part.to_ne_bytes());
    word
}

fn granted_by(word: bell::Word) -> Granted {
    let part = |place: usize| u64::from_ne_bytes(word.as_chunks().0[place]);
    Granted { id: LeaseId(part(0)), token: Token(part(1)), at: Moment::from_micros(part(2).cast_signed()) }
}

fn execute(connection: &Connection, sql: &str) -> rusqlite::Result<()> {
    connection.prepare_cached(sql)?.execute([]).map(|_| ())
}

pub(super) fn make_folder(folder: &Path) -> Result<(), StoreError> {
    let made = fs::DirBuilder::new().recursive(true).mode(0o700).create(folder);
    made.map_err(|error| failed("make the folder", folder, error))
}

/// Makes the database anew after another boot: nobody who is in it lives. The caller is alone.
fn start_boot(tokens: &Tokens, path: &Path, boot: &str) -> Result<(), StoreError> {
    match tokens.boot()? {
        // Nothing is known of a file that lies there: whoever opens it will tell.
        None => return Ok(()),
        Some(last) if last == boot => return Ok(()),
        Some(_) => {}
    }
    // A power cut may have damaged it, which does not matter; what others made is none of ours.
    let known = schema::connect(path).and_then(|connection| schema::is_set_up(&connection, path));
    if let Err(error @ (StoreError::Foreign { .. } | StoreError::TooNew { .. })) = known {
        return Err(error);
    }
    for suffix in ["", "-wal", "-shm"] {
        let mut name = path.as_os_str().to_owned();
        name.push(suffix);
        match fs::remove_file(&name) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => {
                return Err(failed("remove", Path::new(&name), error));
            }
            Ok(()) | Err(_) => {}
        }
    }
    let mut drawing = tokens.draw(0)?;
    drawing.next();
    drawing.keep().map(|_| ())
}

fn failed(action: &'static str, path: &Path, source: io::Error) -> StoreError {
    StoreError::Io { action, path: path.to_owned(), source }
}
