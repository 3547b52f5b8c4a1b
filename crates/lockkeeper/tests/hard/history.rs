//! What each worker of a storm did and when, written by itself, line by line.

use std::fmt;
use std::fs::{File, OpenOptions};
use std::io::Write;
use std::path::Path;
use std::str::FromStr;

use rustix::time::{ClockId, clock_gettime};

/// Nanoseconds on a clock that all processes of the machine share and nobody sets.
pub fn now() -> u64 {
    let time = clock_gettime(ClockId::Boottime);
    time.tv_sec.cast_unsigned() * 1_000_000_000 + time.tv_nsec.cast_unsigned()
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mode {
    Exclusive,
    Shared,
    Slots(u32),
}

/// One resource of an order: `x:alpha`, `s:docs/**`, `3:pool`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Want {
    pub mode: Mode,
    pub target: String,
}

impl Want {
    pub fn new(mode: Mode, target: &str) -> Self {
        Self { mode, target: target.to_owned() }
    }

    /// The patterns of the storms overlap exactly when both are below `src/`.
    pub fn meets(&self, other: &Self) -> bool {
        let both_in_src = self.target.starts_with("src/") && other.target.starts_with("src/");
        self.target == other.target || both_in_src
    }

    pub fn excludes(&self, other: &Self) -> bool {
        let alone = self.mode == Mode::Exclusive || other.mode == Mode::Exclusive;
        alone && self.meets(other)
    }
}

impl fmt::Display for Want {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.mode {
            Mode::Exclusive => write!(f, "x:{}", self.target),
            Mode::Shared => write!(f, "s:{}", self.target),
            Mode::Slots(slots) => write!(f, "{slots}:{}", self.target),
        }
    }
}

impl FromStr for Want {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let (mode, target) = text.split_once(':').ok_or_else(|| format!("no want: {text}"))?;
        let mode = match mode {
            "x" => Mode::Exclusive,
            "s" => Mode::Shared,
            slots => Mode::Slots(slots.parse().map_err(|_| format!("no mode: {text}"))?),
        };
        Ok(Self::new(mode, target))
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Event {
    /// It is about to ask for its wants.
    Ask,
    /// It holds them.
    Enter,
    /// It is about to release them.
    Leave,
    /// It found the marker of another inside; the number is that worker.
    Clash,
    /// What it protects had seen a larger token; the number is that token.
    Stale,
}

/// One line of a history.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Entry {
    pub at: u64,
    pub worker: u64,
    pub event: Event,
    /// The token; for a clash and a stale write what is said there.
    pub number: u64,
    pub wants: Vec<Want>,
}

impl fmt::Display for Entry {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let wants: Vec<String> = self.wants.iter().map(ToString::to_string).collect();
        let event = match self.event {
            Event::Ask => "ask",
            Event::Enter => "enter",
            Event::Leave => "leave",
            Event::Clash => "clash",
            Event::Stale => "stale",
        };
        write!(f, "{} {} {event} {} {}", self.at, self.worker, self.number, wants.join(","))
    }
}

impl FromStr for Entry {
    type Err = String;

    fn from_str(line: &str) -> Result<Self, String> {
        let fields: Vec<&str> = line.split(' ').collect();
        let [at, worker, event, number, wants] = fields[..] else { return Err(format!("no entry: {line}")) };
        let parse = |text: &str| text.parse::<u64>().map_err(|_| format!("no number: {line}"));
        let event = match event {
            "ask" => Event::Ask,
            "enter" => Event::Enter,
            "leave" => Event::Leave,
            "clash" => Event::Clash,
            "stale" => Event::Stale,
            _ => return Err(format!("no event: {line}")),
        };
        let wants = wants.split(',').map(str::parse).collect::<Result<_, _>>()?;
        Ok(Self { at: parse(at)?, worker: parse(worker)?, event, number: parse(number)?, wants })
    }
}

/// A worker's own history file. Each line is one write, so that a kill leaves whole lines and perhaps a part.
pub struct Recorder {
    worker: u64,
    file: File,
}

impl Recorder {
    pub fn open(folder: &Path, worker: u64) -> Self {
        let file =
            OpenOptions::new().append(true).create(true).open(folder.join(worker.to_string())).unwrap();
        Self { worker, file }
    }

    pub fn note(&mut self, event: Event, number: u64, wants: &[Want]) {
        let entry = Entry { at: now(), worker: self.worker, event, number, wants: wants.to_vec() };
        self.file.write_all(format!("{entry}\n").as_bytes()).unwrap();
    }
}

/// Reads every history in a folder, each in its own order.
pub fn read_all(folder: &Path) -> Vec<Entry> {
    let mut entries = Vec::new();
    for file in std::fs::read_dir(folder).unwrap() {
        let text = std::fs::read_to_string(file.unwrap().path()).unwrap();
        let whole = text.rfind('\n').map_or("", |end| &text[..end]);
        entries.extend(whole.lines().map(|line| line.parse::<Entry>().unwrap()));
    }
    entries
}

#[test]
fn an_entry_comes_back_from_its_line() {
    let wants = vec![Want::new(Mode::Exclusive, "alpha"), Want::new(Mode::Slots(3), "pool")];
    let entry = Entry { at: 7, worker: 3, event: Event::Enter, number: 12, wants };
    assert_eq!(entry.to_string(), "7 3 enter 12 x:alpha,3:pool");
    assert_eq!(entry.to_string().parse(), Ok(entry));
}
