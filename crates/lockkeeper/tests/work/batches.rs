//! Short runs that are claimed several at a time: each is executed once and has its own end, whatever happens to the
//! worker in between.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use lockkeeper_core::id::RunId;
use lockkeeper_core::record::Priority;
use lockkeeper_core::request::Request;
use lockkeeper_core::run::{Reason, Run, Status};
use lockkeeper_engine::runs::Blocked;
use rustix::process::Signal;

use super::site::{Site, until};

/// How often something is tried that is a matter of milliseconds, and of how loaded the machine is.
const ROUNDS: usize = 40;
/// Nobody waits for a command for longer than this before what is behind it is given back.
const SHORT: Duration = Duration::from_millis(8);

/// Says that it ran, and ends with this code.
fn noted(site: &Site, id: &str, rest: &str) -> Request {
    site.script(id, &format!("echo $LOCKKEEPER_REQUEST_ID $LOCKKEEPER_ATTEMPT >> record; {rest}"))
}

/// So many short runs; every third fails with the code 3.
fn short(site: &Site, name: &str, count: usize) -> Vec<RunId> {
    let rest = |number: usize| if number.is_multiple_of(3) { "exit 3" } else { "exit 0" };
    let request = |number| noted(site, &format!("{name}{number}"), rest(number));
    let requests: Vec<Request> = (0..count).map(request).collect();
    site.runs.submit_all(&requests, None).unwrap().into_iter().map(|submitted| submitted.run).collect()
}

/// Whether the command of a run said that it ran.
fn ran(site: &Site, run: &Run) -> bool {
    site.record().contains(&format!("{} 1", run.request))
}

fn living(site: &Site) -> Vec<Run> {
    site.runs.store().read(|tables| tables.living()).unwrap()
}

/// A worker that was killed while it had several runs.
struct Scene {
    site: Site,
    all: Vec<RunId>,
    /// The run whose command killed it.
    killer: RunId,
    /// Those whose command had ended, and the store was not told.
    ended: Vec<Run>,
    /// Those whose command had not begun.
    waiting: Vec<Run>,
}

impl Scene {
    /// Until there were some of each.
    fn new() -> Self {
        for round in 0..ROUNDS {
            let site = Site::new();
            // Its command is another one of those that were claimed together each time, neither always the first nor the last.
            let mut all = short(&site, "a", 24 + round % 8);
            let killer = site.submit(&noted(&site, "killer", "kill -9 $PPID"));
            all.push(killer.clone());
            all.extend(short(&site, "b", 15));
            site.unheard_worker(&["--jobs", "1"]).wait();
            let others = living(&site).into_iter().filter(|run| run.id != killer);
            let (ended, waiting): (Vec<Run>, Vec<Run>) = others.partition(|run| ran(&site, run));
            if !ended.is_empty() && !waiting.is_empty() {
                return Self { site, all, killer, ended, waiting };
            }
        }
        panic!("no worker had several runs at once");
    }

    /// The notes of the worker's only hand.
    fn notes(&self) -> PathBuf {
        let worker = self.ended[0].worker.as_ref().unwrap();
        self.site.store().join("spare").join(worker.as_str()).join("1.notes")
    }

    /// Each command ran once, and each run ended as its command did. Of the killer nobody may have seen the end.
    fn check(&self) {
        let mut times: BTreeMap<String, u32> = BTreeMap::new();
        for line in self.site.record() {
            *times.entry(line).or_default() += 1;
        }
        assert_eq!(times.len(), self.all.len());
        assert!(times.iter().all(|(line, times)| *times == 1 && line.ends_with(" 1")), "{times:?}");
        for id in self.all.iter().filter(|id| **id != self.killer) {
            check_end(&self.site.run(id));
        }
        self.site.assert_settled("after the kill");
    }
}

/// Its own end, with the times of its command.
fn check_end(run: &Run) {
    let number: usize = run.request.as_str()[1..].parse().unwrap();
    let expected = if number.is_multiple_of(3) {
        (Status::Failed, Some(Reason::ExitCode), Some(3))
    } else {
        (Status::Succeeded, None, Some(0))
    };
    assert_eq!((run.status, run.reason, run.ending.map(|ending| ending.exit_code())), expected, "{run:?}");
    assert!(run.started_at.unwrap().moment < run.completed_at.unwrap().moment, "{run:?}");
}

/// Requirements 88, 92. Invariants 9, 10.
#[test]
fn a_killed_worker_loses_no_end_that_it_saw_and_nothing_that_had_not_begun() {
    let scene = Scene::new();
    scene.site.drain("2");
    scene.check();
    for run in &scene.ended {
        assert_eq!(scene.site.kinds(&run.id), ["submitted", "claimed", "ended"]);
    }
    for run in &scene.waiting {
        assert_eq!(scene.site.kinds(&run.id), ["submitted", "claimed", "returned", "claimed", "ended"]);
        assert_eq!((scene.site.run(&run.id).attempt, scene.site.run(&run.id).claim), (1, 2));
    }
}

/// Requirement 92. Also when it is no worker that finds out, as the doctor does.
#[test]
fn whoever_ends_lost_runs_ends_them_as_they_were_noted() {
    let scene = Scene::new();
    for run in scene.ended.iter().chain(&scene.waiting) {
        scene.site.runs.end_lost(run).unwrap().unwrap();
    }
    scene.ended.iter().for_each(|run| check_end(&scene.site.run(&run.id)));
    assert!(scene.waiting.iter().all(|run| scene.site.run(&run.id).was_given_back()));
    scene.site.drain("1");
    scene.check();
}

/// Invariants 9, 10. Nobody begins because of half a note, of somebody else's, or of none.
#[test]
fn without_its_notes_a_run_may_have_begun_and_is_not_executed_again() {
    let spoil: [fn(&Path); 4] = [
        |path| std::fs::remove_file(path).unwrap(),
        |path| std::fs::write(path, "").unwrap(),
        // One word of each is another.
        |path| {
            let text = std::fs::read_to_string(path).unwrap();
            std::fs::write(path, text.replace(" waits ", " begun ").replace(" exited ", " waits  ")).unwrap();
        },
        // As after a power cut: nothing that another boot has noted counts.
        |path| {
            let text = std::fs::read_to_string(path).unwrap();
            let lines = text.lines().map(|line| format!("{}x\n", &line[..line.len() - 1]));
            std::fs::write(path, lines.collect::<String>()).unwrap();
        },
    ];
    for spoil in spoil {
        let scene = Scene::new();
        spoil(&scene.notes());
        let before = scene.site.record();
        scene.site.drain("1");
        for run in scene.ended.iter().chain(&scene.waiting).map(|run| scene.site.run(&run.id)) {
            assert_eq!((run.status, run.reason), (Status::Failed, Some(Reason::Lost)), "{run:?}");
        }
        let record = scene.site.record();
        assert_eq!(record[..before.len()], before);
        let again = |run: &&Run| record[before.len()..].contains(&format!("{} 1", run.request));
        assert_eq!(scene.ended.iter().chain(&scene.waiting).filter(again).count(), 0);
    }
}

/// Requirements 86, 89. Invariant 7. Nobody waits behind a long command, and what is given back keeps its place, but not before what is more
/// urgent.
#[test]
fn what_is_behind_a_long_command_is_given_back_and_keeps_its_place() {
    let shown = (0..ROUNDS).any(|_| {
        let site = Site::new();
        short(&site, "a", 20);
        let long = site.submit(&noted(&site, "long", "until [ -e go ]; do sleep 0.01; done"));
        let after = short(&site, "b", 12);
        let mut worker = site.unheard_worker(&["--jobs", "1"]);
        until("the long command runs", || {
            site.run(&long).process.is_some_and(|process| process.command.is_some())
        });
        let runs: Vec<Run> = after.iter().map(|id| site.run(id)).collect();
        assert!(runs.iter().all(|run| run.worker.is_none()), "{runs:?}");
        let back: Vec<&Run> = runs.iter().filter(|run| run.was_given_back()).collect();
        for run in &back {
            assert_eq!(site.runs.show(&run.id).unwrap().blocked, Some(Blocked::Position(0)));
        }
        let urgent = Request { priority: Priority::new(5).unwrap(), ..noted(&site, "urgent", "exit 0") };
        let urgent = site.submit(&urgent);
        std::fs::write(site.dir().join("go"), "").unwrap();
        after.iter().for_each(|id| check_end(&site.end_of(id)));
        assert_eq!(site.end_of(&urgent).status, Status::Succeeded);
        worker.signal(Signal::TERM);
        worker.wait();
        let order = (0..20).map(|n| format!("a{n} 1")).chain(["long 1".to_owned(), "urgent 1".to_owned()]);
        let order: Vec<String> = order.chain((0..12).map(|n| format!("b{n} 1"))).collect();
        assert_eq!(site.record(), order);
        !back.is_empty()
    });
    assert!(shown, "nothing was ever given back");
}

/// Requirements 78, 80. A run that was taken and has not begun is not started once it was called off.
#[test]
fn who_is_called_off_before_it_begins_is_not_started() {
    let shown = (0..ROUNDS).any(|_| {
        let site = Site::new();
        short(&site, "a", 20);
        // It stops its worker, as a debugger or a container that is frozen does.
        let stopper = site.submit(&noted(&site, "stopper", "kill -STOP $PPID"));
        short(&site, "b", 12);
        let mut worker = site.unheard_worker(&["--jobs", "1"]);
        until("the worker was stopped", || ran(&site, &site.run(&stopper)) && is_stopped(worker.pid()));
        let since = Instant::now();
        let living = living(&site);
        // It may have gone on for a while before it stopped: then what is next may be about to begin.
        let in_time = living.iter().any(|run| run.id == stopper && note_of(&site, run).contains(" begun "));
        let called_off = living.iter().rfind(|run| in_time && !ran(&site, run));
        let called_off = called_off.map(|run| site.runs.cancel(&run.id, None).unwrap().run);
        // Then the worker knows that it was away for long.
        until("time has passed", || since.elapsed() > SHORT * 4);
        worker.signal(Signal::CONT);
        if let Some(run) = &called_off {
            assert_eq!(run.status, Status::Cancelling);
            let ended = site.end_of(&run.id);
            assert_eq!((ended.status, ended.reason), (Status::Canceled, Some(Reason::UserCanceled)));
        }
        worker.signal(Signal::TERM);
        worker.wait();
        site.drain("1");
        let lines = site.record();
        if let Some(run) = &called_off {
            assert!(!lines.contains(&format!("{} 1", run.request)), "{lines:?}");
        }
        assert_eq!(lines.len(), 33 - usize::from(called_off.is_some()), "{lines:?}");
        called_off.is_some()
    });
    assert!(shown, "nothing ever waited");
}

/// What the only hand of its worker has noted of a run.
fn note_of(site: &Site, run: &Run) -> String {
    let (worker, process) = run.worker.as_ref().zip(run.process).unwrap();
    let path = site.store().join("spare").join(worker.as_str()).join("1.notes");
    let text = std::fs::read_to_string(path).unwrap_or_default();
    let number = format!("{:016x}", process.holder.0);
    text.lines().find(|line| line.starts_with(&number)).unwrap_or_default().to_owned()
}

/// Whether all of its threads are.
fn is_stopped(pid: u32) -> bool {
    let mut threads = std::fs::read_dir(format!("/proc/{pid}/task")).unwrap();
    threads.all(|thread| {
        let stat = std::fs::read_to_string(thread.unwrap().path().join("stat")).unwrap_or_default();
        stat.rsplit(')').next().is_some_and(|rest| rest.trim_start().starts_with('T'))
    })
}

/// Requirement 84. One hand executes one run at a time, in the order of the queue, and each has the times of its own
/// command.
#[test]
fn runs_that_were_claimed_together_have_their_own_times() {
    let shown = (0..ROUNDS).any(|_| {
        let site = Site::new();
        let ids = short(&site, "a", 60);
        let since = Instant::now();
        site.drain("1");
        let all = since.elapsed();
        let runs: Vec<Run> = ids.iter().map(|id| site.run(id)).collect();
        runs.iter().for_each(check_end);
        for pair in runs.windows(2) {
            let (ended, began) = (pair[0].completed_at.unwrap().moment, pair[1].started_at.unwrap().moment);
            assert!(ended <= began, "{pair:?}");
        }
        let order: Vec<String> = (0..60).map(|number| format!("a{number} 1")).collect();
        assert_eq!(site.record(), order);
        let stats = site.runs.stats(0).unwrap();
        assert!(stats.durations.mean * 60 <= all, "{stats:?} in {all:?}");
        let events = site.runs.store().read(|tables| tables.events_after(0, usize::MAX)).unwrap();
        let mut claims: Vec<i64> =
            events.iter().filter(|event| event.kind == "claimed").map(|event| event.at).collect();
        claims.dedup();
        claims.len() < 60
    });
    assert!(shown, "no two runs were ever claimed together");
}

/// Requirement 92. What was claimed comes to its end before a worker that is told to end is gone, or is given back.
#[test]
fn a_worker_that_is_told_to_end_leaves_nothing_that_it_has_claimed() {
    for jobs in ["1", "3"] {
        let site = Site::new();
        let ids = short(&site, "a", 300);
        let mut worker = site.worker(&["--jobs", jobs]);
        for _ in 0..40 {
            worker.until("started");
        }
        worker.signal(Signal::TERM);
        while worker.try_told().is_some() {}
        assert_eq!(worker.wait(), Some(0));
        let runs: Vec<Run> = ids.iter().map(|id| site.run(id)).collect();
        let (ended, others): (Vec<&Run>, Vec<&Run>) = runs.iter().partition(|run| run.status.is_terminal());
        ended.into_iter().for_each(check_end);
        assert!(!others.is_empty(), "it was too fast");
        // What was behind a command that took long was given back.
        let is_free = |run: &&Run| run.status == Status::Queued || run.was_given_back();
        assert!(others.iter().all(is_free), "{others:?}");
        site.drain("2");
        ids.iter().for_each(|id| check_end(&site.run(id)));
        assert_eq!(site.record().len(), ids.len());
    }
}
