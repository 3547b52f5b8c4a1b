//! What a worker does, live on a terminal: what ended scrolls by, what runs and waits stays below it.

use std::collections::BTreeMap;
use std::io::Write;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use lockkeeper_core::id::RunId;
use lockkeeper_core::run::{Run, Status};
use lockkeeper_core::time::format_span;
use lockkeeper_engine::work::WorkerEvent;
use lockkeeper_platform::terminal::Size;

use super::table;

/// Ages are shown in seconds.
const TICK: Duration = Duration::from_secs(1);

/// The block at the bottom of the terminal. Dropping it takes it away.
pub(super) struct Live {
    shared: Arc<Shared>,
    ticker: Option<thread::JoinHandle<()>>,
}

struct Shared {
    board: Mutex<Board>,
    changed: Condvar,
}

/// Everything that is shown.
#[derive(Default)]
struct Board {
    jobs: u32,
    running: BTreeMap<RunId, Shown>,
    waiting: BTreeMap<RunId, (String, String)>,
    done: u64,
    failed: u64,
    /// How many lines are on the terminal now.
    drawn: usize,
    over: bool,
}

struct Shown {
    name: String,
    attempt: u32,
    since: Instant,
}

impl Live {
    /// Begins to show; ages grow while something runs, and nothing is drawn while nothing does.
    pub(super) fn begin(jobs: u32) -> std::io::Result<Self> {
        let board = Board { jobs, ..Board::default() };
        let shared = Arc::new(Shared { board: Mutex::new(board), changed: Condvar::new() });
        let ticking = Arc::clone(&shared);
        let ticker = thread::Builder::new().name("live".to_owned()).spawn(move || ticking.tick())?;
        shared.draw(&mut shared.board(), None);
        Ok(Self { shared, ticker: Some(ticker) })
    }

    /// A function that shows an event and its line.
    pub(super) fn listener(&self) -> impl Fn(&WorkerEvent, String) + Send + Sync + use<> {
        let shared = Arc::clone(&self.shared);
        move |event, line| shared.show(event, &line)
    }
}

impl Drop for Live {
    fn drop(&mut self) {
        let mut board = self.shared.board();
        board.over = true;
        erase(&mut board, &mut String::new());
        drop(board);
        self.shared.changed.notify_all();
        if let Some(ticker) = self.ticker.take() {
            let _ = ticker.join();
        }
    }
}

impl Shared {
    fn board(&self) -> MutexGuard<'_, Board> {
        self.board.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn tick(&self) {
        let mut board = self.board();
        while !board.over {
            if board.running.is_empty() {
                board = self.changed.wait(board).unwrap_or_else(PoisonError::into_inner);
                continue;
            }
            let waited = self.changed.wait_timeout(board, TICK);
            let (again, passed) = waited.unwrap_or_else(PoisonError::into_inner);
            board = again;
            if passed.timed_out() && !board.over {
                self.draw(&mut board, None);
            }
        }
    }

    fn show(&self, event: &WorkerEvent, line: &str) {
        let mut board = self.board();
        // What runs and waits is shown in the block for as long as it does; everything else gets a line.
        let stays = board.apply(event);
        self.draw(&mut board, (!stays).then_some(line));
        drop(board);
        self.changed.notify_all();
    }

    fn draw(&self, board: &mut Board, line: Option<&str>) {
        if board.over {
            return;
        }
        let mut text = String::new();
        let size = Size::of(std::io::stderr()).unwrap_or(Size { columns: 80, rows: 24 });
        let block = table::fit(&board.text(Instant::now()), size.columns, size.rows);
        if let Some(line) = line {
            text.push_str(line);
            text.push('\n');
        }
        text.push_str(&block);
        erase(board, &mut text);
        board.drawn = block.lines().count();
    }
}

/// Puts `text` in the place of the block.
fn erase(board: &mut Board, text: &mut String) {
    let up = if board.drawn > 0 { format!("\x1b[{}A\r\x1b[J", board.drawn) } else { String::new() };
    board.drawn = 0;
    let mut stderr = anstream::stderr().lock();
    // A line that cannot be printed is no reason to fail.
    let _ = stderr.write_all(format!("{up}{text}").as_bytes()).and_then(|()| stderr.flush());
}

impl Board {
    /// Applies an event; true when the block shows all of it.
    fn apply(&mut self, event: &WorkerEvent) -> bool {
        match event {
            WorkerEvent::Started(run) => {
                self.waiting.remove(&run.id);
                self.add(run);
                true
            }
            WorkerEvent::Adopted(run) => {
                self.add(run);
                false
            }
            WorkerEvent::Waiting(run, why) => {
                let name = table::plain(run.request.as_str());
                self.waiting.insert(run.id.clone(), (name, table::plain(why)));
                true
            }
            WorkerEvent::Retrying(run) | WorkerEvent::Superseded(run) => {
                self.running.remove(&run.id);
                false
            }
            WorkerEvent::Ended(run) => {
                self.running.remove(&run.id);
                self.waiting.remove(&run.id);
                match run.status {
                    Status::Succeeded => self.done += 1,
                    _ => self.failed += 1,
                }
                false
            }
            WorkerEvent::Draining | WorkerEvent::Stopping | WorkerEvent::Trouble(_) => false,
        }
    }

    fn add(&mut self, run: &Run) {
        let name = table::plain(run.request.as_str());
        let shown = Shown { name, attempt: run.attempt, since: Instant::now() };
        self.running.insert(run.id.clone(), shown);
    }

    fn text(&self, now: Instant) -> String {
        let mut text = format!(
            "{} of {} running, {} waiting, {} done, {} failed\n",
            self.running.len(),
            self.jobs,
            self.waiting.len(),
            self.done,
            self.failed
        );
        for (id, shown) in &self.running {
            let age = Duration::from_secs(now.saturating_duration_since(shown.since).as_secs());
            let again =
                if shown.attempt > 1 { format!(", attempt {}", shown.attempt) } else { String::new() };
            text.push_str(&format!("  runs   {id} {} for {}{again}\n", shown.name, format_span(age)));
        }
        for (id, (name, why)) in &self.waiting {
            text.push_str(&format!("  waits  {id} {name}: {why}\n"));
        }
        text
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_block_tells_who_runs_who_waits_and_why() {
        let mut board = Board { jobs: 4, done: 2, failed: 1, ..Board::default() };
        let now = Instant::now();
        let shown = Shown { name: "build".to_owned(), attempt: 2, since: now };
        board.running.insert("RUN-1".parse().unwrap(), shown);
        let why = "db is held by run:RUN-1, position 1".to_owned();
        board.waiting.insert("RUN-2".parse().unwrap(), ("deploy".to_owned(), why));
        let text = board.text(now + Duration::from_millis(65_400));
        assert_eq!(
            text,
            "1 of 4 running, 1 waiting, 2 done, 1 failed\n  runs   RUN-1 build for 1m 5s, attempt 2\n  \
             waits  RUN-2 deploy: db is held by run:RUN-1, position 1\n"
        );
    }
}
