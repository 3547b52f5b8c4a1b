//! Live display of a worker on a terminal: one line for each ended run, and below them the running and waiting runs.

use std::collections::BTreeMap;
use std::io::Write;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use lockkeeper_core::id::RunId;
use lockkeeper_core::run::{Run, Status};
use lockkeeper_core::time::format_span;
use lockkeeper_engine::messages::Phrases;
use lockkeeper_engine::with_short_ids;
use lockkeeper_engine::work::WorkerEvent;
use lockkeeper_platform::terminal::Size;

use super::runs::rows::named;
use super::table;

/// The display shows ages in seconds.
const TICK: Duration = Duration::from_secs(1);

/// The display. Dropping it removes it from the terminal.
pub(super) struct Live {
    shared: Arc<Shared>,
    ticker: Option<thread::JoinHandle<()>>,
}

struct Shared {
    content: Mutex<Content>,
    changed: Condvar,
}

/// The content of the display.
struct Content {
    phrases: Arc<Phrases>,
    jobs: u32,
    running: BTreeMap<RunId, Shown>,
    waiting: BTreeMap<RunId, (String, String)>,
    done: u64,
    failed: u64,
    /// How many lines are on the terminal now.
    drawn: usize,
    closed: bool,
}

struct Shown {
    name: String,
    attempt: u32,
    since: Instant,
}

impl Live {
    /// Starts the display. It is drawn every second while a run is active, and else only after events.
    pub(super) fn begin(jobs: u32, phrases: Arc<Phrases>) -> std::io::Result<Self> {
        let content = Content::new(jobs, phrases);
        let shared = Arc::new(Shared { content: Mutex::new(content), changed: Condvar::new() });
        let ticking = Arc::clone(&shared);
        let ticker = thread::Builder::new().name("live".to_owned()).spawn(move || ticking.tick())?;
        shared.draw(&mut shared.content(), None);
        Ok(Self { shared, ticker: Some(ticker) })
    }

    /// A function that shows an event. The line is printed if the display does not show the event.
    pub(super) fn listener(&self) -> impl Fn(&WorkerEvent, String) + Send + Sync + use<> {
        let shared = Arc::clone(&self.shared);
        move |event, line| shared.show(event, &line)
    }
}

impl Drop for Live {
    fn drop(&mut self) {
        let mut content = self.shared.content();
        content.closed = true;
        replace(&mut content, &mut String::new());
        drop(content);
        self.shared.changed.notify_all();
        if let Some(ticker) = self.ticker.take() {
            let _ = ticker.join();
        }
    }
}

impl Shared {
    fn content(&self) -> MutexGuard<'_, Content> {
        self.content.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn tick(&self) {
        let mut content = self.content();
        while !content.closed {
            if content.running.is_empty() {
                content = self.changed.wait(content).unwrap_or_else(PoisonError::into_inner);
                continue;
            }
            let waited = self.changed.wait_timeout(content, TICK);
            let (again, passed) = waited.unwrap_or_else(PoisonError::into_inner);
            content = again;
            if passed.timed_out() && !content.closed {
                self.draw(&mut content, None);
            }
        }
    }

    fn show(&self, event: &WorkerEvent, line: &str) {
        let mut content = self.content();
        // The display shows running and waiting runs. Every other event gets a line.
        let is_shown = content.apply(event);
        self.draw(&mut content, (!is_shown).then_some(line));
        drop(content);
        self.changed.notify_all();
    }

    fn draw(&self, content: &mut Content, line: Option<&str>) {
        if content.closed {
            return;
        }
        let mut text = String::new();
        let size = Size::of(std::io::stderr()).unwrap_or(Size { columns: 80, rows: 24 });
        let block = table::fit(&content.text(Instant::now()), size.columns, size.rows);
        if let Some(line) = line {
            text.push_str(line);
            text.push('\n');
        }
        text.push_str(&block);
        replace(content, &mut text);
        content.drawn = block.lines().count();
    }
}

/// Replaces the display on the terminal by `text`.
fn replace(content: &mut Content, text: &mut String) {
    let up = if content.drawn > 0 { format!("\x1b[{}A\r\x1b[J", content.drawn) } else { String::new() };
    content.drawn = 0;
    // Not through `anstream`: without colours it would also drop the movements of the cursor.
    let mut stderr = std::io::stderr().lock();
    // A line that cannot be printed is no reason to fail.
    let _ = stderr.write_all(format!("{up}{text}").as_bytes()).and_then(|()| stderr.flush());
}

impl Content {
    fn new(jobs: u32, phrases: Arc<Phrases>) -> Self {
        let (running, waiting) = (BTreeMap::new(), BTreeMap::new());
        Self { phrases, jobs, running, waiting, done: 0, failed: 0, drawn: 0, closed: false }
    }

    /// Applies an event. Returns whether the display shows it.
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
                let why = table::plain(&with_short_ids(why));
                self.waiting.insert(run.id.clone(), (named(run), why));
                true
            }
            WorkerEvent::Retrying(run) | WorkerEvent::Superseded(run) => {
                self.running.remove(&run.id);
                false
            }
            WorkerEvent::Ended(run) => {
                self.running.remove(&run.id);
                self.waiting.remove(&run.id);
                match run.status() {
                    Status::Succeeded => self.done += 1,
                    _ => self.failed += 1,
                }
                false
            }
            WorkerEvent::Draining | WorkerEvent::Stopping | WorkerEvent::Warning(_) => false,
        }
    }

    fn add(&mut self, run: &Run) {
        let shown = Shown { name: named(run), attempt: run.attempt(), since: Instant::now() };
        self.running.insert(run.id.clone(), shown);
    }

    fn text(&self, now: Instant) -> String {
        let [running, jobs] = [self.running.len().to_string(), self.jobs.to_string()];
        let waiting = self.waiting.len().to_string();
        let [done, failed] = [self.done, self.failed].map(|count| count.to_string());
        let values = [
            ("running", &*running),
            ("jobs", &*jobs),
            ("waiting", &*waiting),
            ("done", &*done),
            ("failed", &*failed),
        ];
        let mut lines = vec![self.phrases.fill("work.live", &values)];
        for shown in self.running.values() {
            let age = format_span(Duration::from_secs(now.saturating_duration_since(shown.since).as_secs()));
            let values = [("run", &*shown.name), ("age", &age)];
            let mut line = self.phrases.fill("work.live_runs", &values);
            if shown.attempt > 1 {
                let attempt = shown.attempt.to_string();
                line.push_str(&self.phrases.fill("work.live_again", &[("attempt", &attempt)]));
            }
            lines.push(line);
        }
        for (name, why) in self.waiting.values() {
            let values = [("run", name.as_str()), ("why", why)];
            lines.push(self.phrases.fill("work.live_waits", &values));
        }
        lines.iter().map(|line| format!("{line}\n")).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use lockkeeper_engine::messages::Language;

    #[test]
    fn the_block_tells_who_runs_who_waits_and_why() {
        let phrases = Arc::new(Phrases::load(Language::En));
        let mut content = Content { done: 2, failed: 1, ..Content::new(4, phrases) };
        let now = Instant::now();
        let shown = Shown { name: "7bxm0zhgdx build".to_owned(), attempt: 2, since: now };
        content.running.insert("RUN-1".parse().unwrap(), shown);
        let why = "db is held by run 7bxm0zhgdx, position 1".to_owned();
        content.waiting.insert("RUN-2".parse().unwrap(), ("6zvdpzz02j deploy".to_owned(), why));
        let text = content.text(now + Duration::from_millis(65_400));
        assert_eq!(
            text,
            "1 of 4 running, 1 waiting, 2 done, 1 failed\n  runs   7bxm0zhgdx build for 1m 5s, attempt 2\n  \
             waits  6zvdpzz02j deploy: db is held by run 7bxm0zhgdx, position 1\n"
        );
    }
}
