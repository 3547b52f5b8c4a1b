//! `run logs`: what a run's command wrote, byte for byte, in windows.

use std::io::{self, Write};
use std::os::fd::{AsFd, BorrowedFd};
use std::time::Duration;

use lockkeeper::KeeperError;
use lockkeeper::core::run::Run;
use lockkeeper::core::size::parse_size;
use lockkeeper::engine::runs::output::{Output, Window};
use lockkeeper::engine::runs::{RunFolder, Runs};
use lockkeeper::platform::changes::Changes;
use lockkeeper::platform::poll;
use lockkeeper::platform::signal::{Signal, Signals};
use lockkeeper::report::{Exit, Report};
use serde_json::json;

use super::Which;
use crate::cli::context::Context;
use crate::cli::print;

/// How much is read at once.
const WINDOW: usize = 256 * 1024;
/// How often one looks where nobody tells of changes.
const LOOK_EVERY: Duration = Duration::from_secs(1);

#[derive(clap::Args)]
pub(super) struct Args {
    #[command(flatten)]
    which: Which,
    /// Go on until the run has ended
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
    let folder = runs.folder_of(&run.id);
    // The latest attempt has no number in its file's name.
    let attempt = args.attempt.filter(|attempt| *attempt != run.attempt);
    let output = Output::open(&folder, attempt).map_err(|error| unreadable(&error))?;
    let from = match (&output, args.lines, tail, args.from) {
        (Some(output), Some(lines), _, _) => output.last_lines(lines).map_err(|error| unreadable(&error))?,
        (Some(output), None, Some(tail), _) => {
            output.len().map_err(|error| unreadable(&error))?.saturating_sub(tail)
        }
        (_, _, _, from) => from.unwrap_or(0),
    };
    let mut printer = Printer { json: context.json, run: &run, output, at: from };
    if args.follow {
        return follow(&runs, &folder, &mut printer);
    }
    if printer.output.is_none() {
        let what = match args.attempt {
            Some(attempt) => format!("there is no output of attempt {attempt}"),
            None => "there is no output yet".to_owned(),
        };
        print::talk(&format!("{what}: run {} is {}", run.id, run.status));
        return Ok(Exit::Done);
    }
    printer.print_all()?;
    Ok(Exit::Done)
}

/// Whether somebody reads.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Reader {
    There,
    Gone,
}

struct Printer<'r> {
    json: bool,
    run: &'r Run,
    output: Option<Output>,
    at: u64,
}

impl Printer<'_> {
    /// Prints everything from here to the end.
    fn print_all(&mut self) -> Result<Reader, Report> {
        let Some(output) = &self.output else { return Ok(Reader::There) };
        loop {
            let window = output.read(self.at, WINDOW).map_err(|error| unreadable(&error))?;
            if window.bytes.is_empty() {
                return Ok(Reader::There);
            }
            if window.from > self.at {
                let missing = window.from - self.at;
                print::talk(&format!("… {missing} bytes were cut out of this very long output …"));
            }
            self.at = window.end();
            if self.write(&window).is_err() {
                return Ok(Reader::Gone);
            }
        }
    }

    /// Straight to the descriptor: nothing is kept back, and nothing is changed.
    fn write(&self, window: &Window) -> io::Result<()> {
        let mut stdout = io::stdout().lock();
        if self.json {
            let text = String::from_utf8_lossy(&window.bytes);
            let line = json!({ "run_id": self.run.id.as_str(), "from": window.from, "to": window.end(), "text": text });
            writeln!(stdout, "{line}")?;
        } else {
            stdout.write_all(&window.bytes)?;
        }
        stdout.flush()
    }

    /// Goes on with the file of the next attempt, once all of this one's was printed.
    fn go_on(&mut self, folder: &RunFolder) -> Result<bool, Report> {
        let replaced = self.output.as_ref().is_none_or(Output::is_replaced);
        if !replaced {
            return Ok(false);
        }
        let next = Output::open(folder, None).map_err(|error| unreadable(&error))?;
        if next.is_some() {
            if self.output.is_some() {
                print::talk("the next attempt begins");
                self.at = 0;
            }
            self.output = next;
            return Ok(true);
        }
        Ok(false)
    }
}

fn follow(runs: &Runs, folder: &RunFolder, printer: &mut Printer<'_>) -> Result<Exit, Report> {
    let signals =
        Signals::receive(&[Signal::INT, Signal::TERM, Signal::HUP]).map_err(KeeperError::Machine)?;
    let mut heard = runs.listen()?;
    let mut written: Option<Changes> = None;
    let mut told = false;
    loop {
        heard.quiet(told);
        if written.as_ref().and_then(Changes::as_fd).is_none() {
            // The folder may have been made since.
            written = Some(Changes::watch(folder.path()).map_err(KeeperError::Machine)?);
        }
        written.iter().for_each(Changes::drain);
        // Where the run is comes first: what it wrote before its end is then seen below.
        let ended = runs.find(printer.run.id.as_str())?.status.is_terminal();
        loop {
            if printer.print_all()? == Reader::Gone {
                return Ok(Exit::Done);
            }
            if !printer.go_on(folder)? {
                break;
            }
        }
        if ended {
            return Ok(Exit::Done);
        }
        let stdout = io::stdout();
        let mut descriptors = vec![signals.as_fd()];
        descriptors.extend(heard.as_fd());
        let own = written.as_ref().and_then(Changes::as_fd);
        descriptors.extend(own);
        let deaf = own.is_none().then_some(LOOK_EVERY);
        let patience = [heard.patience(), deaf].into_iter().flatten().min();
        let ready = wait(&descriptors, stdout.as_fd(), patience)?;
        if ready.contains(descriptors.len()) || ready.contains(0) {
            return Ok(Exit::Done);
        }
        told = heard.as_fd().is_some() && ready.contains(1);
    }
}

fn wait(
    descriptors: &[BorrowedFd<'_>],
    stdout: BorrowedFd<'_>,
    patience: Option<Duration>,
) -> Result<poll::Ready, Report> {
    Ok(poll::wait_or_hang_up(descriptors, &[stdout], patience).map_err(KeeperError::Machine)?)
}

fn unreadable(error: &io::Error) -> Report {
    Report::of(Exit::Failed, "UNREADABLE", error).with_hint("check that the state folder is yours")
}
