//! `status follow`: prints lines of the status log as they are written.

use std::io::{self, Write};
use std::os::fd::AsFd;

use anstyle::{AnsiColor, Style};
use lockkeeper_engine::open::OpenError;
use lockkeeper_engine::report::{Exit, Report};
use lockkeeper_formats::status::{Follow, State, StatusError, StatusLine, StatusLog};
use lockkeeper_platform::signal::{Signal, Signals};

use crate::cli::context::Context;
use crate::cli::{print, table};

#[derive(clap::Args)]
pub(super) struct Args {
    /// Start with the oldest line
    #[arg(long)]
    from_start: bool,
    /// Only lines about this task
    #[arg(long, value_name = "ID")]
    task: Option<String>,
    /// Only lines of this worker
    #[arg(long, value_name = "ID")]
    worker: Option<String>,
    /// Only lines with this state; may be given several times
    #[arg(long = "state", value_name = "STATE")]
    states: Vec<String>,
}

pub(super) fn run(context: &Context, log: &StatusLog, args: &Args) -> Result<Exit, Report> {
    let filter = Filter::new(args)?;
    let signals = Signals::receive(&[Signal::INT, Signal::TERM, Signal::HUP]).map_err(OpenError::Machine)?;
    let mut follow = if args.from_start { log.follow_from_start()? } else { log.follow()? };
    if !context.json {
        print::talk(&format!(
            "following {}; Ctrl-C to leave",
            table::plain(&log.path().display().to_string())
        ));
    }
    let mut reported = 0;
    loop {
        if show(context, &filter, &mut follow, &signals)? == Next::Leave {
            return Ok(Exit::Done);
        }
        if follow.bad_lines() > reported {
            reported = follow.bad_lines();
            print::talk(&format!("passed over so far, being no status lines: {reported}"));
        }
        let stdout = io::stdout();
        // Index 0 is the signals, index 1 the reader of stdout.
        let ready = follow.wait(&[signals.as_fd()], Some(stdout.as_fd()), None)?;
        if ready.contains(1) || was_signalled(&signals)? {
            return Ok(Exit::Done);
        }
    }
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Next {
    Wait,
    Leave,
}

/// How many lines are printed before signals are checked.
const BATCH: usize = 1000;

/// Prints all lines that are there.
fn show(context: &Context, filter: &Filter, follow: &mut Follow, signals: &Signals) -> Result<Next, Report> {
    loop {
        let mut text = String::new();
        let mut lines = 0;
        while lines < BATCH {
            let Some(line) = follow.take()? else { break };
            lines += 1;
            if filter.lets_through(&line) {
                text.push_str(&if context.json { line.to_text() } else { for_people(&line) });
                text.push('\n');
            }
        }
        let mut stdout = anstream::stdout().lock();
        if !print::went_on(stdout.write_all(text.as_bytes()).and_then(|()| stdout.flush())) {
            return Ok(Next::Leave);
        }
        if lines < BATCH {
            return Ok(Next::Wait);
        }
        if was_signalled(signals)? {
            return Ok(Next::Leave);
        }
    }
}

fn was_signalled(signals: &Signals) -> Result<bool, Report> {
    let taken = signals.take().map_err(OpenError::Machine)?;
    Ok(!taken.is_empty())
}

/// Filter for lines.
struct Filter {
    task: Option<String>,
    worker: Option<String>,
    states: Vec<State>,
}

impl Filter {
    fn new(args: &Args) -> Result<Self, Report> {
        let states = args.states.iter().map(|text| text.parse()).collect::<Result<_, _>>();
        let states = states.map_err(|error| Report::from(StatusError::Line(error)))?;
        Ok(Self { task: args.task.clone(), worker: args.worker.clone(), states })
    }

    fn lets_through(&self, line: &StatusLine) -> bool {
        self.task.as_deref().is_none_or(|task| task == line.task())
            && self.worker.as_deref().is_none_or(|worker| line.worker() == Some(worker))
            && (self.states.is_empty() || self.states.contains(&line.state()))
    }
}

fn for_people(line: &StatusLine) -> String {
    let style = style(line.state());
    let (at, state, task) = (line.at(), line.state(), table::plain(line.task()));
    let mut text = format!("{at}  {style}{state:<8}{style:#}  {task}");
    for part in line.worker().into_iter().chain(line.message()) {
        text.push_str("  ");
        text.push_str(&table::plain(part));
    }
    text
}

/// The colour of a state.
pub(super) fn style(state: State) -> Style {
    match state {
        State::Done => AnsiColor::Green.on_default(),
        State::Error => AnsiColor::Red.on_default().bold(),
        State::Help => AnsiColor::Magenta.on_default().bold(),
        State::Wait => AnsiColor::Yellow.on_default(),
        State::Skip => Style::new().dimmed(),
        State::Start | State::Assigned => AnsiColor::Cyan.on_default(),
    }
}
