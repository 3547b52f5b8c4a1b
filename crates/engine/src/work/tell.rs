//! Telling what happens to runs: to whoever watches this process, and in the status log.

use lockkeeper_core::request::{Request, RequestStatus};
use lockkeeper_core::run::{Reason, Run, Status};
use serde_json::{Map, Value, json};

use super::Executor;
use lockkeeper_formats::status::{State, StatusLine};
use lockkeeper_platform::wall_clock::WallTime;

/// Something that people who watch a worker want to know.
#[derive(Clone, Debug)]
pub enum Told {
    /// The command of a run was started.
    Started(Run),
    /// A run has to wait for what others hold.
    Waiting(Run, String),
    /// An attempt failed; there will be another.
    Retrying(Run),
    /// A run has ended.
    Ended(Run),
    /// Another worker is gone, and its run is looked after here.
    Adopted(Run),
    /// The end of a run could not be said, because somebody else has it.
    Superseded(Run),
    /// The worker takes nothing more, and ends once what it executes has ended.
    Draining,
    /// The worker ends what it executes.
    Stopping,
    /// Something is wrong with the worker itself; it goes on.
    Trouble(String),
}

/// Something to be told of a run once it is on the disk.
pub(super) struct News {
    pub(super) told: Told,
    pub(super) request: Option<Request>,
    /// When it was written down.
    pub(super) at: WallTime,
    /// When the command was started, and the run as it was then, if the status log was not told of that yet.
    pub(super) started: Option<(WallTime, Run)>,
}

/// Whoever wants to be told.
pub type Teller = dyn Fn(&Told) + Send + Sync;

impl Executor {
    pub(super) fn tell(&self, told: &Told, request: Option<&Request>) {
        (self.teller)(told);
        self.log(told, request, WallTime::now());
    }

    /// Tells those who watch that the command of a run was started. The status log is told when that is known to take
    /// long, or together with the end.
    pub(super) fn tell_start(&self, run: &Run) -> WallTime {
        (self.teller)(&Told::Started(run.clone()));
        WallTime::now()
    }

    /// Notes in the status log when the command of a run was started.
    pub(super) fn log_start(&self, at: WallTime, run: &Run, request: &Request) {
        self.log(&Told::Started(run.clone()), Some(request), at);
    }

    pub(super) fn tell_news(&self, news: News) {
        if let Some((at, run)) = news.started {
            self.log(&Told::Started(run), news.request.as_ref(), at);
        }
        (self.teller)(&news.told);
        self.log(&news.told, news.request.as_ref(), news.at);
    }

    fn log(&self, told: &Told, request: Option<&Request>, at: WallTime) {
        let Some(log) = &self.status else { return };
        let (run, state, message) = match told {
            Told::Started(run) => (run, State::Start, request.map(|request| request.title.clone())),
            Told::Waiting(run, why) => (run, State::Wait, Some(why.clone())),
            Told::Retrying(run) => (run, State::Wait, Some("the next attempt".to_owned())),
            Told::Ended(run) => (run, end_state(run), run.message.clone()),
            Told::Adopted(_) | Told::Superseded(_) | Told::Draining | Told::Stopping | Told::Trouble(_) => {
                return;
            }
        };
        if let Err(error) = StatusLine::new(state, run.request.as_str(), at)
            .and_then(|line| line.with_meta(meta(run)))
            .and_then(|line| line.with_worker(self.worker.id.as_str()))
            .map(|line| match message {
                Some(message) => line.with_message(message),
                None => line,
            })
            .map_err(|error| error.to_string())
            .and_then(|line| log.append(&line).map_err(|error| error.to_string()))
        {
            (self.teller)(&Told::Trouble(format!("cannot write the status log: {error}")));
        }
    }
}

/// What the end of a run is called in the status log.
fn end_state(run: &Run) -> State {
    match RequestStatus::from(run) {
        RequestStatus::Done => State::Done,
        RequestStatus::NeedsInput => State::Help,
        RequestStatus::Canceled => State::Skip,
        RequestStatus::Failed if run.reason == Some(Reason::QueueTimeout) => State::Skip,
        RequestStatus::Failed | RequestStatus::Queued | RequestStatus::Running => State::Error,
    }
}

fn meta(run: &Run) -> Map<String, Value> {
    let mut meta = Map::new();
    meta.insert("run_id".to_owned(), json!(run.id.as_str()));
    meta.insert("attempt".to_owned(), json!(run.attempt));
    if run.status != Status::Running || run.retry_at.is_some() {
        meta.insert("status".to_owned(), json!(run.status.as_str()));
        if let Some(reason) = run.reason {
            meta.insert("error_type".to_owned(), json!(reason.as_str()));
        }
        if let Some(ending) = run.ending {
            meta.insert("exit_code".to_owned(), json!(ending.exit_code()));
        }
    }
    meta
}
