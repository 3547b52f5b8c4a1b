//! `locks --watch` and `runs --watch`: show a list again after each change.

use std::io::{IsTerminal, Write};
use std::os::fd::AsFd;
use std::time::Duration;

use lockkeeper_engine::open::OpenError;
use lockkeeper_engine::report::{Exit, Report};
use lockkeeper_platform::changes::Changes;
use lockkeeper_platform::poll;
use lockkeeper_platform::signal::{Signal, Signals};
use lockkeeper_platform::terminal::Size;

use super::context::Context;
use super::{print, table};

/// A terminal is drawn every second, because the listing shows ages in seconds.
const TICK: Duration = Duration::from_secs(1);
/// Changes within this time are shown together.
const DEBOUNCE: Duration = Duration::from_millis(50);

/// A list at one moment.
pub(super) struct Frame {
    /// The list as text, or with `--json` as JSON.
    pub(super) output: String,
    /// The part whose change is shown. Ages are not part of it.
    pub(super) key: String,
}

/// Shows a list until Ctrl-C, or until the reader closes the pipe.
pub(super) fn run(context: &Context, read: impl Fn() -> Result<Frame, Report>) -> Result<Exit, Report> {
    let signals = Signals::receive(&[Signal::INT, Signal::TERM, Signal::HUP, Signal::WINCH])
        .map_err(OpenError::Machine)?;
    // No file of this machine tells of the changes of others.
    let is_shared = context.location.shared.is_some();
    let changes = if is_shared { Ok(Changes::disabled()) } else { Changes::watch(&context.location.state) };
    let changes = changes.map_err(OpenError::Machine)?;
    let terminal = !context.json && std::io::stdout().is_terminal();
    let mut shown = String::new();
    loop {
        changes.drain();
        if !show(context, read()?, terminal, &mut shown) {
            return Ok(Exit::Done);
        }
        let mut descriptors = vec![signals.as_fd()];
        descriptors.extend(changes.as_fd());
        let stdout = std::io::stdout();
        let timeout = (terminal || changes.as_fd().is_none()).then_some(TICK);
        let ready = poll::wait_or_hang_up(&descriptors, &[stdout.as_fd()], timeout);
        let ready = ready.map_err(OpenError::Machine)?;
        if ready.contains(descriptors.len()) {
            // The reader has closed the pipe.
            return Ok(Exit::Done);
        }
        let arrived = signals.take().map_err(OpenError::Machine)?;
        if arrived.iter().any(|signal| *signal != Signal::WINCH) {
            return Ok(Exit::Done);
        }
        if descriptors.len() > 1 && ready.contains(1) {
            // Wait for further changes, unless a signal comes.
            let interrupted = poll::wait(&[signals.as_fd()], Some(DEBOUNCE)).map_err(OpenError::Machine)?;
            if interrupted.any()
                && signals.take().is_ok_and(|taken| taken.iter().any(|one| *one != Signal::WINCH))
            {
                return Ok(Exit::Done);
            }
        }
    }
}

/// Shows the list if it changed. Returns false if the reader has closed the pipe.
fn show(context: &Context, frame: Frame, terminal: bool, shown: &mut String) -> bool {
    if terminal {
        let heading =
            format!("{}   Ctrl-C to quit", table::plain(&context.location.state.display().to_string()));
        let text = format!("{heading}\n\n{}", frame.output);
        let text = match Size::of(std::io::stdout()) {
            Some(size) => table::fit(&text, size.columns, size.rows),
            None => text,
        };
        let screen = format!("\x1b[H{}", text.replace('\n', "\x1b[K\n"));
        let mut stdout = anstream::stdout().lock();
        let written = stdout.write_all(format!("{screen}\x1b[J").as_bytes());
        return print::went_on(written.and_then(|()| stdout.flush()));
    }
    if frame.key == *shown {
        return true;
    }
    *shown = frame.key;
    let mut stdout = anstream::stdout().lock();
    let written = stdout.write_all(format!("{}\n", frame.output).as_bytes()).and_then(|()| stdout.flush());
    print::went_on(written)
}
