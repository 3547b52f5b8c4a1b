//! `run logs`: the output of a run, byte for byte, read in windows.

use std::io::{self, Write};
use std::os::fd::{AsFd, BorrowedFd};
use std::time::Duration;

use lockkeeper_core::run::Run;
use lockkeeper_core::size::parse_size;
use lockkeeper_engine::open::OpenError;
use lockkeeper_engine::report::{Exit, Report};
use lockkeeper_engine::runs::output::{Output, Window};
use lockkeeper_engine::runs::{RunError, Runs};
use lockkeeper_platform::changes::Changes;
use lockkeeper_platform::poll;
use lockkeeper_platform::signal::{Signal, Signals};
use serde_json::json;

use super::Which;
use crate::cli::context::Context;
use crate::cli::{print, table};

/// The size of a window.
const WINDOW: usize = 256 * 1024;
/// How often the output is read where the system cannot report changed files.
const POLL_INTERVAL: Duration = Duration::from_secs(1);
/// How often the output of another machine is read.
const REMOTE_INTERVAL: Duration = Duration::from_millis(300);

#[derive(clap::Args)]
pub(super) struct Args {
    #[command(flatten)]
    which: Which,
    /// Follow the output until the run has ended
    #[arg(long, short)]
    follow: bool,
    /// The output of this attempt, from 1 [default: the latest]
    #[arg(long, value_name = "N", conflicts_with = "follow", value_parser = clap::value_parser!(u32).range(1..))]
    attempt: Option<u32>,
    /// Only the last lines
    #[arg(long, short = 'n', value_name = "N", conflicts_with_all = ["tail", "from"])]
    lines: Option<u64>,
    /// Only the last bytes, such as 64K
    #[arg(long, value_name = "SIZE", conflicts_with = "from")]
    tail: Option<String>,
    /// From this byte on
    #[arg(long, value_name = "OFFSET")]
    from: Option<u64>,
}

pub(super) fn run(context: &Context, args: &Args) -> Result<Exit, Report> {
    let tail = args.tail.as_deref().map(parse_size).transpose()?;
    let (runs, run) = args.which.find(context)?;
    let attempt = args.attempt.unwrap_or(run.attempt().max(1));
    let output = runs.output(&run, Some(attempt), args.from.unwrap_or(0))?;
    let from = match (&output, args.lines, tail, args.from) {
        (Some(output), Some(lines), _, _) => output.last_lines(lines).map_err(RunError::Unreadable)?,
        (Some(output), None, Some(tail), _) => {
            output.len().map_err(RunError::Unreadable)?.saturating_sub(tail)
        }
        (_, _, _, from) => from.unwrap_or(0),
    };
    let mut printer = Printer { json: context.json, run: &run, attempt, output, at: from };
    if args.follow {
        return follow(&runs, &mut printer);
    }
    if printer.output.is_none() {
        let what = match args.attempt {
            Some(attempt) => format!("there is no output of attempt {attempt}"),
            None if run.status().is_terminal() => "there is no output".to_owned(),
            None => "there is no output yet".to_owned(),
        };
        let why = run.message().map_or_else(String::new, |why| format!(": {}", table::plain(why)));
        print::talk(&format!("{what}: run {} is {}{why}", run.id, run.status()));
        return Ok(Exit::Done);
    }
    printer.print_all()?;
    Ok(Exit::Done)
}

/// Whether stdout is still read.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Reader {
    There,
    Gone,
}

struct Printer<'r> {
    json: bool,
    run: &'r Run,
    attempt: u32,
    output: Option<Output>,
    at: u64,
}

impl Printer<'_> {
    /// Prints the output from the current position to its end.
    fn print_all(&mut self) -> Result<Reader, Report> {
        let Some(output) = &self.output else { return Ok(Reader::There) };
        loop {
            let window = output.read(self.at, WINDOW).map_err(RunError::Unreadable)?;
            if window.bytes.is_empty() {
                return Ok(Reader::There);
            }
            if window.from > self.at {
                let missing = window.from - self.at;
                let rest = match output.host() {
                    Some(host) => format!("; {} has the whole output", table::plain(host)),
                    None => String::new(),
                };
                print::talk(&format!("… {missing} bytes were cut out of this very long output{rest} …"));
            }
            self.at = window.end();
            if !print::went_on(self.write(&window)) {
                return Ok(Reader::Gone);
            }
        }
    }

    /// Writes unbuffered and unchanged.
    fn write(&self, window: &Window) -> io::Result<()> {
        let mut stdout = io::stdout().lock();
        if self.json {
            let text = String::from_utf8_lossy(&window.bytes);
            let (from, to) = (window.from, window.end());
            let id = self.run.id.as_str();
            let line = json!({ "run_id": id, "attempt": self.attempt, "from": from, "to": to, "text": text });
            writeln!(stdout, "{line}")?;
        } else {
            stdout.write_all(&window.bytes)?;
        }
        stdout.flush()
    }

    /// Prints the output of this attempt, and of the attempts after it, which the run has begun by now.
    fn print_attempts(&mut self, runs: &Runs, run: &Run) -> Result<Reader, Report> {
        loop {
            if !self.is_local() {
                self.output = runs.output(run, Some(self.attempt), self.at)?;
            }
            if self.print_all()? == Reader::Gone {
                return Ok(Reader::Gone);
            }
            if run.attempt() <= self.attempt {
                return Ok(Reader::There);
            }
            self.attempt += 1;
            print::talk(&format!("attempt {} begins", self.attempt));
            (self.output, self.at) = (None, 0);
        }
    }

    /// Whether it reads the file that the command writes to.
    fn is_local(&self) -> bool {
        self.output.as_ref().is_some_and(|output| output.host().is_none())
    }
}

fn follow(runs: &Runs, printer: &mut Printer<'_>) -> Result<Exit, Report> {
    let folder = runs.folder_of(&printer.run.id);
    let signals = Signals::receive(&[Signal::INT, Signal::TERM, Signal::HUP]).map_err(OpenError::Machine)?;
    let mut changes = runs.subscribe()?;
    let mut written: Option<Changes> = None;
    let mut was_signaled = false;
    loop {
        changes.reset(was_signaled);
        if written.as_ref().and_then(Changes::as_fd).is_none() {
            // The folder may have been created since.
            written = Some(Changes::watch(folder.path()).map_err(OpenError::Machine)?);
        }
        written.iter().for_each(Changes::drain);
        // The status is read first, so that all output before the end is printed below.
        let run = runs.find(printer.run.id.as_str())?;
        if printer.print_attempts(runs, &run)? == Reader::Gone {
            return Ok(Exit::Done);
        }
        if run.status().is_terminal() {
            return Ok(Exit::Done);
        }
        let stdout = io::stdout();
        let mut descriptors = vec![signals.as_fd()];
        descriptors.extend(changes.as_fd());
        let own = written.as_ref().and_then(Changes::as_fd);
        descriptors.extend(own);
        let deaf = own.is_none().then_some(POLL_INTERVAL);
        let remote = (runs.is_shared() && !printer.is_local()).then_some(REMOTE_INTERVAL);
        let limit = [changes.longest_sleep(), deaf, remote].into_iter().flatten().min();
        let ready = wait(&descriptors, stdout.as_fd(), limit)?;
        if ready.contains(descriptors.len()) || ready.contains(0) {
            return Ok(Exit::Done);
        }
        was_signaled = changes.as_fd().is_some() && ready.contains(1);
    }
}

fn wait(
    descriptors: &[BorrowedFd<'_>],
    stdout: BorrowedFd<'_>,
    limit: Option<Duration>,
) -> Result<poll::Ready, Report> {
    Ok(poll::wait_or_hang_up(descriptors, &[stdout], limit).map_err(OpenError::Machine)?)
}
