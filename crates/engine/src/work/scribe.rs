//! Whoever sees to it that what was written is on the disk, and only then tells of it.
//!
//! Hands go on with the next run meanwhile. The disk is asked once for all that was written while it was busy or while
//! nobody waited for it, and once for the names of many runs that may begin before their claim is there.

use std::collections::HashSet;
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use lockkeeper_core::id::RunId;

use super::tell::News;
use super::{Executor, locked};
use lockkeeper_store::StoreError;
use lockkeeper_store::runs::AheadFile;

/// How long what was written may wait for more, when nobody waits for the disk.
const TOGETHER: Duration = Duration::from_millis(12);
/// So few names are left for each hand when the next ones are looked for: the disk has the time of so many runs for them.
const FEW: usize = 12;
/// By so many there are more of them then.
const MORE: usize = 24;
/// More hands than these do not begin more runs in that time.
const HANDS: usize = 4;
/// A queue that is shorter than this is not worth a file.
const WORTH_IT: usize = 8;
/// A file that has grown to so many bytes is begun anew.
const LONG: u64 = 64 * 1024;

/// Counts what was written and what is on the disk by now.
#[derive(Default)]
pub(super) struct Scribe {
    /// So many names are few.
    few: usize,
    state: Mutex<State>,
    /// There is something to do at once.
    wanted: Condvar,
    /// More is on the disk.
    forced: Condvar,
}

#[derive(Default)]
struct State {
    /// How many transactions were committed.
    written: u64,
    /// How many of them are on the disk.
    forced: u64,
    /// When the first of the others was committed.
    since: Option<Instant>,
    /// Whether somebody waits for the disk, or nothing more will come for now.
    urgent: bool,
    /// To be told once they are on the disk.
    news: Vec<News>,
    names: Names,
    /// Whether there is work, so that runs may have to be named soon.
    work: bool,
    over: bool,
}

/// Runs that may begin before their claim is on the disk.
#[derive(Default)]
struct Names {
    /// The disk knows of these.
    known: HashSet<RunId>,
    /// The disk is to hear of these.
    new: Vec<RunId>,
    /// The disk hears of these now, and nobody has claimed them since.
    coming: HashSet<RunId>,
    /// Whether somebody looks for more.
    looked_for: bool,
    /// Whether there were no more when somebody looked.
    are_all: bool,
    /// Whether the disk knows of any, of those that are not the next any more too.
    on_disk: bool,
    /// Whether the disk is to forget all of them.
    forget: bool,
}

/// What is done next.
struct Round {
    number: u64,
    news: Vec<News>,
    names: Vec<RunId>,
    forget: bool,
}

impl Scribe {
    /// For so many hands.
    pub(super) fn new(hands: u32) -> Self {
        let hands = usize::try_from(hands).unwrap_or(HANDS).clamp(1, HANDS);
        Self { few: FEW * hands, ..Self::default() }
    }

    /// There is work: the file for the names is made meanwhile, since nobody begins while that is done.
    pub(super) fn get_ready(&self) {
        let before = std::mem::replace(&mut locked(&self.state).work, true);
        if !before {
            self.wanted.notify_one();
        }
    }

    /// Something was committed, after which nothing more may come for now. Returns what to wait for until it is on the
    /// disk.
    pub(super) fn wrote(&self, news: Vec<News>, urgent: bool) -> u64 {
        let mut state = locked(&self.state);
        let asleep = state.since.is_none();
        state.written += 1;
        state.news.extend(news);
        state.since.get_or_insert_with(Instant::now);
        state.urgent |= urgent;
        let number = state.written;
        drop(state);
        // Whoever has heard of something to do looks again by itself.
        if asleep || urgent {
            self.wanted.notify_one();
        }
        number
    }

    /// Sleeps until what was written is on the disk.
    pub(super) fn wait_for(&self, number: u64) {
        let mut state = locked(&self.state);
        while state.forced < number {
            state.urgent = true;
            self.wanted.notify_one();
            state = self.forced.wait(state).unwrap_or_else(PoisonError::into_inner);
        }
    }

    /// How many runs may begin before their claim is on the disk.
    pub(super) fn named(&self) -> usize {
        locked(&self.state).names.known.len()
    }

    /// How many names of the next runs are wanted by whoever is about to claim one.
    pub(super) fn wants_names(&self) -> usize {
        let mut state = locked(&self.state);
        let names = &mut state.names;
        let enough = names.are_all || names.known.len() > self.few;
        if enough || names.looked_for || !names.new.is_empty() || !names.coming.is_empty() {
            return 0;
        }
        names.looked_for = true;
        self.few + MORE
    }

    /// The next runs, the first one first, or none when nobody could look.
    pub(super) fn name(&self, mut next: Vec<RunId>) {
        let mut state = locked(&self.state);
        let names = &mut state.names;
        (names.looked_for, names.are_all) = (false, next.len() < self.few + MORE);
        if next.len() < WORTH_IT {
            return;
        }
        next.retain(|run| !names.known.contains(run));
        names.new = next;
        drop(state);
        self.wanted.notify_one();
    }

    /// Whether the command of a run that was claimed may begin before that is on the disk.
    pub(super) fn may_begin(&self, run: &RunId) -> bool {
        let mut state = locked(&self.state);
        let names = &mut state.names;
        let named = names.known.remove(run);
        let comes = names.coming.remove(run) || names.new.contains(run);
        names.new.retain(|new| new != run);
        if !named && !comes {
            // Others have claimed what was named, or something more urgent came: the next ones have to be looked for.
            state.names.known.clear();
            state.names.are_all = false;
        }
        named
    }

    /// Has the disk forget the names: who is named and does not begin soon would be doubted for nothing.
    pub(super) fn forget_names(&self) {
        let mut state = locked(&self.state);
        let names = &mut state.names;
        names.new.clear();
        names.are_all = false;
        names.known.clear();
        if names.on_disk {
            names.forget = true;
            drop(state);
            self.wanted.notify_one();
        }
    }

    /// Nothing more will be written.
    pub(super) fn end(&self) {
        locked(&self.state).over = true;
        self.wanted.notify_one();
    }

    /// Forces and tells, until everything is on the disk and nothing more will come.
    pub(super) fn work(&self, executor: &Executor) {
        // That it fails costs only time.
        let mut file = if self.wait_for_work() { make_file(executor).ok() } else { None };
        while let Some(Round { number, news, names, forget }) = self.next() {
            executor.insist("force what was written to the disk", || executor.runs.store().force());
            locked(&self.state).forced = number;
            self.forced.notify_all();
            if forget || file.as_ref().is_some_and(|file| file.length() > LONG) {
                self.clear_names(executor, file.as_mut(), !names.is_empty());
            }
            // That it fails costs only time.
            let named = !names.is_empty() && name(executor, &mut file, &names).is_ok();
            let names = &mut locked(&self.state).names;
            let come = std::mem::take(&mut names.coming);
            names.known.extend(come.into_iter().filter(|_| named));
            for news in news {
                executor.tell_news(news);
            }
        }
    }

    /// Nobody begins because of a name from here on, and the claims of all who did are forced before it is forgotten.
    /// `more` when others will be named at once.
    fn clear_names(&self, executor: &Executor, file: Option<&mut AheadFile>, more: bool) {
        locked(&self.state).names.known.clear();
        let cleared = executor.runs.store().force().and_then(|()| file.map_or(Ok(()), AheadFile::clear));
        locked(&self.state).names.on_disk = cleared.is_err() || more;
    }

    /// False when there will be none.
    fn wait_for_work(&self) -> bool {
        let mut state = locked(&self.state);
        while !state.work && !state.over {
            state = self.sleep(state, None);
        }
        state.work
    }

    fn next(&self) -> Option<Round> {
        let mut state = locked(&self.state);
        loop {
            let unwritten = state.forced < state.written;
            let due = state.since.map(|since| (since + TOGETHER).saturating_duration_since(Instant::now()));
            let names = state.names.forget || !state.names.new.is_empty();
            let at_once = state.urgent || state.over || due.is_none_or(|due| due.is_zero());
            if names || (unwritten && at_once) {
                (state.since, state.urgent) = (None, false);
                state.names.on_disk |= !state.names.new.is_empty();
                let names = std::mem::take(&mut state.names.new);
                state.names.coming = names.iter().cloned().collect();
                return Some(Round {
                    number: state.written,
                    news: std::mem::take(&mut state.news),
                    names,
                    forget: std::mem::take(&mut state.names.forget),
                });
            }
            if state.over {
                return None;
            }
            state = self.sleep(state, due);
        }
    }

    fn sleep<'s>(&self, state: MutexGuard<'s, State>, limit: Option<Duration>) -> MutexGuard<'s, State> {
        match limit {
            Some(limit) => {
                let woken = self.wanted.wait_timeout(state, limit);
                woken.unwrap_or_else(PoisonError::into_inner).0
            }
            None => self.wanted.wait(state).unwrap_or_else(PoisonError::into_inner),
        }
    }
}

fn name(executor: &Executor, file: &mut Option<AheadFile>, names: &[RunId]) -> Result<(), StoreError> {
    let file = match file {
        Some(file) => file,
        None => file.insert(make_file(executor)?),
    };
    file.name(names)
}

fn make_file(executor: &Executor) -> Result<AheadFile, StoreError> {
    executor.runs.store().ahead_file(&executor.worker.id)
}
