//! The whole control flow, with a scripted machine and user.

use std::cell::{Cell, RefCell};
use std::fs;
use std::path::Path;
use std::sync::Barrier;

use super::*;
use crate::sprint::{Input, Lang};

const NOW: WallTime = WallTime::from_micros(1_770_503_400_000_000);
const FILE: &str = ".sprint-running";
const DEAD: u32 = 4_000_001;
const LIVE: u32 = 4_000_002;

/// A project with a scripted machine and user. Processes with a pid of [`LIVE`] or above are alive.
struct Project {
    root: tempfile::TempDir,
    asked: RefCell<Vec<String>>,
    told: RefCell<Vec<String>>,
    paused: Cell<Duration>,
}

impl Project {
    fn new() -> Self {
        let root = tempfile::tempdir().unwrap();
        Self { root, asked: RefCell::default(), told: RefCell::default(), paused: Cell::default() }
    }

    fn path(&self) -> &Path {
        self.root.path()
    }

    /// Writes a lock with an old modification time.
    fn has_lock(&self, content: &str) {
        write_old(&self.path().join(FILE), content);
    }

    fn lock(&self) -> Option<String> {
        fs::read_to_string(self.path().join(FILE)).ok()
    }

    fn acquire(&self, session: &str, force: bool, answer: bool) -> Answer {
        self.acquire_with(session, force, &mut |_| answer)
    }

    fn acquire_with(&self, session: &str, force: bool, answer: &mut dyn FnMut(&str) -> bool) -> Answer {
        let text = |text: &str| Some(text.to_owned());
        let input =
            Input { session_id: text(session), epic_spec: text("epic5"), force, ..self.input("acquire") };
        self.run(&input, answer)
    }

    fn release(&self, session: Option<&str>) -> Answer {
        let input = Input { session_id: session.map(str::to_owned), ..self.input("release") };
        self.run(&input, &mut |_| panic!("release asks nothing"))
    }

    fn check(&self) -> Answer {
        self.run(&self.input("check"), &mut |_| panic!("check asks nothing"))
    }

    fn input(&self, mode: &str) -> Input {
        Input { mode: mode.to_owned(), project_root: Some(self.path().to_owned()), ..Input::default() }
    }

    fn run(&self, input: &Input, answer: &mut dyn FnMut(&str) -> bool) -> Answer {
        let machine = Machine {
            now: &|| NOW,
            is_alive: &|pid| Ok(pid >= i64::from(LIVE)),
            pause: &|span| {
                self.paused.set(span);
                let file = fs::File::options().write(true).open(self.path().join(FILE)).unwrap();
                file.set_modified(std::time::UNIX_EPOCH).unwrap();
            },
        };
        let mut caller = Caller {
            lang: Lang::Zh,
            answer_lang: Lang::Zh,
            confirm: &mut |question| {
                self.asked.borrow_mut().push(question.to_owned());
                answer(question)
            },
            tell: &mut |notice| {
                self.told.borrow_mut().push(match notice {
                    Notice::Sentence(sentence) => sentence.to_owned(),
                    Notice::Warning(warning) => warning.printable(),
                });
            },
            pid: LIVE + 1,
        };
        run(&input.check().unwrap(), &machine, &mut caller)
    }
}

fn write_old(path: &Path, content: &str) {
    fs::write(path, content).unwrap();
    fs::File::options().write(true).open(path).unwrap().set_modified(std::time::UNIX_EPOCH).unwrap();
}

fn record(pid: u32, session: &str) -> String {
    Record::new(pid, session, "epic5", NOW).to_yaml()
}

fn errors(answer: &Answer) -> Vec<String> {
    answer.problems.iter().map(ToString::to_string).collect()
}

/// Requirements 10, 14, 17, 36.
#[test]
fn without_a_lock_one_is_created() {
    let project = Project::new();
    let answer = project.acquire("s1", false, false);
    assert_eq!(
        (answer.status, answer.message.as_str()),
        (Status::Acquired, "Lock acquired successfully for session s1")
    );
    assert_eq!(answer.lock_info, LockInfo::taken(&Record::new(LIVE + 1, "s1", "epic5", NOW)));
    assert_eq!(project.lock().unwrap(), record(LIVE + 1, "s1"));
    assert!(project.asked.borrow().is_empty() && project.told.borrow().is_empty());
}

/// Requirements 11, 31, 32.
#[test]
fn a_running_sprint_blocks_at_once() {
    let project = Project::new();
    project.has_lock(&record(LIVE, "s1"));
    let answer = project.acquire("s2", false, true);
    assert_eq!(answer.status, Status::Blocked);
    assert_eq!(
        answer.message,
        format!("Sprint already running (PID: {LIVE}, session: s1, started: 2026-02-07T22:30:00Z)")
    );
    assert!(matches!(answer.lock_info, LockInfo::Present { pid_alive: Some(true), is_zombie: false, .. }));
    assert!(project.asked.borrow().is_empty());
    assert_eq!(project.lock().unwrap(), record(LIVE, "s1"));
}

/// Requirements 12, 28, 29, 32.
#[test]
fn a_zombie_is_taken_over_only_after_a_yes() {
    let project = Project::new();
    project.has_lock(&record(DEAD, "s1"));
    let answer = project.acquire("s2", false, false);
    assert_eq!(answer.status, Status::Blocked);
    assert!(matches!(answer.lock_info, LockInfo::Present { is_zombie: true, .. }));
    assert_eq!(project.lock().unwrap(), record(DEAD, "s1"));
    let expected = format!(
        "检测到僵尸锁：\n- PID: {DEAD} (进程状态: dead)\n- Session: s1\n- 启动时间: 2026-02-07T22:30:00Z (0h ago)\n\
         - Epic: epic5\n\n是否覆盖此锁并启动新 Sprint? [y/N]"
    );
    assert_eq!(*project.asked.borrow(), [expected]);
    assert_eq!(project.acquire("s2", false, true).status, Status::Acquired);
    assert_eq!(project.lock().unwrap(), record(LIVE + 1, "s2"));
}

/// Requirement 27.
#[test]
fn force_takes_over_a_zombie_without_a_question_and_prints_a_notice() {
    let project = Project::new();
    project.has_lock(&record(DEAD, "s1"));
    assert_eq!(project.acquire("s2", true, false).status, Status::Acquired);
    assert!(project.asked.borrow().is_empty());
    assert!(project.told.borrow()[0].contains("--force") && project.told.borrow()[0].contains("s1"));
}

/// Requirements 10, 30.
#[test]
fn force_takes_the_lock_of_a_running_sprint_only_after_a_yes() {
    let project = Project::new();
    project.has_lock(&record(LIVE, "s1"));
    let answer = project.acquire("s2", true, false);
    assert_eq!((answer.status, project.lock().unwrap()), (Status::Blocked, record(LIVE, "s1")));
    assert!(project.asked.borrow()[0].starts_with("警告: 检测到活跃的 Sprint 进程！"));
    assert_eq!(project.acquire("s2", true, true).status, Status::Acquired);
}

/// Requirements 151, 200.
#[test]
fn an_answer_about_one_lock_is_never_used_for_another() {
    for force in [false, true] {
        let project = Project::new();
        project.has_lock(&record(DEAD, "s1"));
        let faster = record(LIVE, "faster");
        let mut answer_late = |_: &str| {
            project.has_lock(&faster);
            true
        };
        if force {
            project.has_lock(&record(LIVE, "s1"));
        }
        let answer = project.acquire_with("s2", force, &mut answer_late);
        assert_eq!(answer.status, Status::Blocked);
        assert!(answer.message.contains("session: faster"), "{}", answer.message);
        assert_eq!(project.lock().unwrap(), faster);
    }
}

#[test]
fn a_lock_that_was_released_during_the_question_is_free() {
    let project = Project::new();
    project.has_lock(&record(DEAD, "s1"));
    let answer =
        project.acquire_with("s2", false, &mut |_| fs::remove_file(project.path().join(FILE)).is_ok());
    assert_eq!(answer.status, Status::Acquired);
}

/// Requirements 18, 25, 50.
#[test]
fn an_invalid_lock_is_a_zombie_in_every_mode() {
    let project = Project::new();
    project.has_lock("pid: [");
    let answer = project.check();
    assert_eq!(answer.status, Status::ZombieDetected);
    assert_eq!(errors(&answer), ["Lock file exists but has invalid format"]);
    assert!(matches!(answer.lock_info, LockInfo::Present { pid: None, is_zombie: true, .. }));
    let answer = project.acquire("s1", false, true);
    assert_eq!(answer.status, Status::Acquired);
    assert_eq!(errors(&answer), ["Lock file exists but has invalid format"]);
    project.has_lock("");
    let answer = project.release(Some("s1"));
    assert_eq!((answer.status, project.lock()), (Status::Released, None));
}

/// Requirement 201.
#[test]
fn an_invalid_lock_that_may_still_be_written_is_read_again_later() {
    let project = Project::new();
    project.has_lock("pid: 4");
    let just_now = std::time::UNIX_EPOCH + Duration::from_micros(NOW.as_micros().cast_unsigned() - 500_000);
    let file = fs::File::options().write(true).open(project.path().join(FILE)).unwrap();
    file.set_modified(just_now).unwrap();
    assert_eq!(project.check().status, Status::ZombieDetected);
    assert_eq!(project.paused.get(), Duration::from_millis(1500));
}

/// Requirement 50.
#[test]
fn a_newer_format_that_cannot_be_read_is_held_and_force_takes_it() {
    let project = Project::new();
    project.has_lock("lock_version: 2\nholder: {pid: 1}\n");
    assert_eq!(project.acquire("s2", false, true).status, Status::Blocked);
    let answer = project.acquire("s2", true, true);
    assert_eq!(answer.status, Status::Acquired);
    assert_eq!(errors(&answer), ["Lock file has an unknown lock_version (2)"]);
}

/// Requirements 17, 26, 40, 41, 42, 44.
#[test]
fn release_removes_any_lock() {
    let project = Project::new();
    for (content, session, warning) in [
        (record(LIVE, "s1"), Some("s1"), None),
        (record(LIVE, "s1"), None, None),
        (record(DEAD, "s1"), Some("s1"), None),
        (record(LIVE, "s1"), Some("s2"), Some("Lock session mismatch (expected: s2, actual: s1)")),
    ] {
        project.has_lock(&content);
        fs::write(project.path().join(".sprint-running.tmp"), "half").unwrap();
        let answer = project.release(session);
        assert_eq!(answer.message, "Lock released successfully");
        assert_eq!((answer.status, &answer.lock_info), (Status::Released, &LockInfo::Absent));
        assert_eq!(errors(&answer), warning.map(str::to_owned).into_iter().collect::<Vec<_>>());
        assert_eq!(fs::read_dir(project.path()).unwrap().count(), 0);
    }
    assert_eq!(
        project.release(Some("s1")).status,
        Status::Released,
        "and it does not matter if there is none"
    );
}

#[test]
fn the_temporary_file_of_a_program_that_is_about_to_acquire_stays() {
    let project = Project::new();
    let temporary = project.path().join(".sprint-running.tmp");
    fs::write(&temporary, "half").unwrap();
    project.release(None);
    assert!(temporary.exists(), "it is younger than ten seconds: its time is that of the real clock");
    write_old(&temporary, "half");
    project.release(None);
    assert!(!temporary.exists());
}

/// Requirements 35, 39.
#[test]
fn a_lock_that_does_not_read_back_is_a_failure_and_only_our_own_is_deleted() {
    let machine = Machine { now: &|| NOW, is_alive: &|_| Ok(true), pause: &|_| {} };
    let (mut confirm, mut tell) = (|_: &str| false, |_: Notice<'_>| {});
    let mut caller =
        Caller { lang: Lang::En, answer_lang: Lang::En, confirm: &mut confirm, tell: &mut tell, pid: LIVE };
    let ours = Record::new(LIVE, "ours", "epic5", NOW);
    let taken = |project: &Project, content: &str| {
        let lock = open(&project.input("check").check().unwrap()).unwrap();
        match lock.take(content.as_bytes(), &mut |_| panic!("nothing is there")).unwrap() {
            Take::Taken { held, .. } => held,
            Take::Busy { .. } => panic!("nothing is there"),
        }
    };
    let project = Project::new();
    let call = project.input("check").check().unwrap();
    let flow = Flow { call: &call, machine: &machine, caller: &mut caller };
    let answer = flow.verify(&ours, taken(&project, &record(LIVE, "other")));
    assert_eq!((answer.status, project.lock()), (Status::Failure, None), "what we wrote is gone");
    assert_eq!(errors(&answer), ["Lock file verification failed"]);

    let held = taken(&project, &ours.to_yaml());
    fs::remove_file(project.path().join(FILE)).unwrap();
    project.has_lock(&record(LIVE, "stranger"));
    let answer = flow.verify(&ours, held);
    assert_eq!((answer.status, project.lock()), (Status::Failure, Some(record(LIVE, "stranger"))));
    assert!(matches!(answer.lock_info, LockInfo::Present { .. }));
}

/// Requirements 51, 151, 200.
#[test]
fn exactly_one_of_many_threads_gets_the_lock() {
    const THREADS: usize = 16;
    for (round, zombie) in (0..300).map(|round| (round, round % 3)) {
        let root = tempfile::tempdir().unwrap();
        let force = match zombie {
            0 => false,
            1 => {
                write_old(&root.path().join(FILE), &record(DEAD, "gone"));
                false
            }
            _ => {
                write_old(&root.path().join(FILE), "torn");
                true
            }
        };
        let barrier = Barrier::new(THREADS);
        let acquired: Vec<Option<String>> = std::thread::scope(|scope| {
            let threads: Vec<_> = (0..THREADS)
                .map(|thread| {
                    scope.spawn({
                        let (barrier, root) = (&barrier, root.path());
                        move || contend(root, &format!("s{thread}"), force, barrier)
                    })
                })
                .collect();
            threads.into_iter().map(|thread| thread.join().unwrap()).collect()
        });
        let winners: Vec<String> = acquired.into_iter().flatten().collect();
        assert_eq!(winners.len(), 1, "round {round}");
        let text = fs::read_to_string(root.path().join(FILE)).unwrap();
        assert_eq!(Record::parse(text.as_bytes()).unwrap().session_id.as_ref(), Some(&winners[0]));
        assert_eq!(fs::read_dir(root.path()).unwrap().count(), 1, "nothing else is left behind");
    }
}

/// Confirms to take over a zombie, but not the lock of a running sprint.
fn contend(root: &Path, session: &str, force: bool, barrier: &Barrier) -> Option<String> {
    let text = |text: &str| Some(text.to_owned());
    let input = Input {
        mode: "acquire".to_owned(),
        project_root: Some(root.to_owned()),
        session_id: text(session),
        epic_spec: text("e"),
        force,
        lock_file_name: None,
    };
    let machine = Machine {
        now: &|| NOW,
        is_alive: &|pid| Ok(pid >= i64::from(LIVE)),
        pause: &|_| panic!("nothing is torn"),
    };
    let mut caller = Caller {
        lang: Lang::En,
        answer_lang: Lang::En,
        confirm: &mut |question| question.starts_with("Zombie"),
        tell: &mut |_| {},
        pid: LIVE,
    };
    barrier.wait();
    let answer = run(&input.check().unwrap(), &machine, &mut caller);
    assert!(matches!(answer.status, Status::Acquired | Status::Blocked), "{answer:?}");
    (answer.status == Status::Acquired).then(|| session.to_owned())
}
