//! A worker of a storm, in a process of its own: the test program starts itself again in that role.

use std::fs::{File, OpenOptions};
use std::io::{Read, Write};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use lockkeeper::{Keeper, LockBuilder};
use lockkeeper_testing::Dice;

use crate::history::{Event, Mode, Recorder, Want, now};

const FOLDER: &str = "STORM_FOLDER";
pub const WORKER: &str = "STORM_WORKER";
const SEED: &str = "STORM_SEED";
const UNTIL: &str = "STORM_UNTIL";
const PLAN: &str = "STORM_PLAN";

/// The command line of a process that plays `role`, one of the no-op tests below.
fn play(role: &str, folder: &Path, worker: u64) -> (PathBuf, Vec<String>, Vec<(&'static str, String)>) {
    let args = ["--exact", role, "--nocapture", "--test-threads=1"].map(str::to_owned).to_vec();
    let env = vec![(FOLDER, folder.display().to_string()), (WORKER, worker.to_string())];
    (std::env::current_exe().unwrap(), args, env)
}

/// A process that takes lease after lease through the library, as `plan` says, until a moment.
pub fn library_worker(folder: &Path, worker: u64, seed: u64, until: u64, plan: &str) -> Command {
    let (program, args, env) = play("worker::library", folder, worker);
    let mut command = Command::new(program);
    command.args(args).envs(env).env(SEED, seed.to_string()).env(UNTIL, until.to_string()).env(PLAN, plan);
    command
}

/// `lockkeeper exec NAME -- ` and a process that stays inside for a moment.
pub fn wrapped_worker(folder: &Path, worker: u64, seed: u64, name: &str) -> Command {
    let (program, args, env) = play("worker::wrapped", folder, worker);
    let mut command = Command::new(env!("CARGO_BIN_EXE_lockkeeper"));
    command
        .args(["exec", name, "--quiet", "--dir"])
        .arg(folder.join("store"))
        .arg("--")
        .arg(program)
        .args(args);
    command.envs(env).env(SEED, seed.to_string()).env(PLAN, name);
    command
}

/// Not a test of its own: a worker that uses the library.
#[test]
fn library() {
    let Some(mut role) = Role::given() else { return };
    let until: u64 = variable(UNTIL).parse().unwrap();
    let plan = variable(PLAN);
    let keeper = Keeper::open(role.folder.join("store")).unwrap();
    while now() < until {
        let wants = role.choose(&plan);
        role.recorder.note(Event::Ask, 0, &wants);
        let guard = builder(&keeper, &wants).acquire().unwrap();
        role.stay_inside(guard.token().get(), &wants);
        drop(guard);
    }
}

/// Not a test of its own: a command that runs under `lockkeeper exec`.
#[test]
fn wrapped() {
    let Some(mut role) = Role::given() else { return };
    std::fs::write(role.folder.join("pids").join(role.worker.to_string()), std::process::id().to_string())
        .unwrap();
    let wants = [Want::new(Mode::Exclusive, &variable(PLAN))];
    let token = variable("LOCKKEEPER_TOKEN").parse().unwrap();
    role.stay_inside(token, &wants);
}

fn variable(name: &str) -> String {
    std::env::var(name).unwrap()
}

fn builder(keeper: &Keeper, wants: &[Want]) -> LockBuilder {
    let add = |builder: Option<LockBuilder>, want: &Want| {
        let path = want.target.contains('/');
        match (builder, path) {
            (None, true) => keeper.path(&want.target),
            (None, false) => keeper.lock(&want.target),
            (Some(builder), true) => builder.path(&want.target),
            (Some(builder), false) => builder.name(&want.target),
        }
    };
    let builder = wants.iter().fold(None, |builder, want| Some(add(builder, want))).unwrap();
    match wants[0].mode {
        Mode::Exclusive => builder,
        Mode::Shared => builder.shared(),
        Mode::Slots(slots) => builder.slots(slots),
    }
}

struct Role {
    folder: PathBuf,
    worker: u64,
    dice: Dice,
    recorder: Recorder,
}

impl Role {
    fn given() -> Option<Self> {
        let folder = PathBuf::from(std::env::var_os(FOLDER)?);
        let worker = variable(WORKER).parse().unwrap();
        let dice = Dice::new(variable(SEED).parse().unwrap());
        let recorder = Recorder::open(&folder.join("history"), worker);
        Some(Self { folder, worker, dice, recorder })
    }

    /// What to ask for next: always the same name, or one of many kinds of orders.
    fn choose(&mut self, plan: &str) -> Vec<Want> {
        let exclusive = |target| Want::new(Mode::Exclusive, target);
        let shared = |target| Want::new(Mode::Shared, target);
        if plan != "mixed" {
            return vec![exclusive(plan)];
        }
        match self.dice.below(10) {
            0 | 1 => vec![exclusive("alpha")],
            2 => vec![exclusive("beta"), exclusive("alpha")],
            3 => vec![shared("alpha")],
            4 => vec![shared("beta"), shared("docs/**")],
            5 => vec![Want::new(Mode::Slots(3), "pool")],
            6 => vec![exclusive("src/**")],
            7 => vec![exclusive("src/*.rs"), exclusive("docs/**")],
            8 => vec![shared("src/main.rs")],
            _ => vec![exclusive("src/main.rs"), exclusive("beta")],
        }
    }

    /// The critical section: seen by the history, by a marker that only one can put up, and by a file that
    /// takes only growing tokens.
    fn stay_inside(&mut self, token: u64, wants: &[Want]) {
        self.recorder.note(Event::Enter, token, wants);
        for want in wants.iter().filter(|want| want.mode == Mode::Exclusive) {
            if let Some(other) = self.put_up_marker(want) {
                self.recorder.note(Event::Clash, other, std::slice::from_ref(want));
            }
            if let Some(seen) = self.write_fenced(want, token) {
                self.recorder.note(Event::Stale, seen, std::slice::from_ref(want));
            }
        }
        // The work itself takes a moment.
        std::thread::sleep(Duration::from_micros(self.dice.below(3_000)));
        for want in wants.iter().filter(|want| want.mode == Mode::Exclusive) {
            std::fs::remove_file(self.path("marker", want)).unwrap();
        }
        self.recorder.note(Event::Leave, token, wants);
    }

    fn path(&self, kind: &str, want: &Want) -> PathBuf {
        self.folder.join(kind).join(want.target.replace('/', "|"))
    }

    /// Puts up the marker; returns the worker whose marker was still there.
    fn put_up_marker(&self, want: &Want) -> Option<u64> {
        let path = self.path("marker", want);
        let mut found = None;
        loop {
            match OpenOptions::new().write(true).create_new(true).open(&path) {
                Ok(mut marker) => {
                    marker.write_all(self.worker.to_string().as_bytes()).unwrap();
                    return found;
                }
                Err(error) if error.kind() == std::io::ErrorKind::AlreadyExists => {
                    let mut text = String::new();
                    let read = File::open(&path).and_then(|mut marker| marker.read_to_string(&mut text));
                    // Killed before it could sign: then the history tells.
                    found = read.ok().and_then(|_| text.parse().ok()).or(found);
                    let _ = std::fs::remove_file(&path);
                }
                Err(error) => panic!("{}: {error}", path.display()),
            }
        }
    }

    /// Writes with a token; returns the larger one that was there, if one was.
    fn write_fenced(&self, want: &Want, token: u64) -> Option<u64> {
        let path = self.path("fenced", want);
        let file = OpenOptions::new().read(true).write(true).create(true).truncate(false).open(path).unwrap();
        let mut bytes = [0; 8];
        let seen = if file.read_at(&mut bytes, 0).unwrap() == 8 { u64::from_le_bytes(bytes) } else { 0 };
        if seen >= token {
            return Some(seen);
        }
        file.write_all_at(&token.to_le_bytes(), 0).unwrap();
        None
    }
}
