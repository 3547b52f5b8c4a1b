//! Job control in the wrapper: passes signals to the command, and hands the terminal over.
//!
//! For the shell, the job is the wrapper. For the terminal, it is the command. So the wrapper hands the terminal over,
//! stops when the command stops, and continues the command when it is continued itself, as a shell does with its own
//! jobs. If standard output goes to another program (`… | less`) that may need the terminal more, the command gets the
//! terminal only when the kernel stops it for using the terminal from the background.

use std::io;
use std::process::Command;

use rustix::process::{Pid, Signal, kill_current_process_group, kill_process_group};

use super::ending::Ending;
use crate::signal::{self, Signals};
use crate::terminal::{self, Terminal};

/// Signals that are passed to the command, each as often as it arrives.
const PASSED_ON: [Signal; 8] = [
    Signal::INT,
    Signal::TERM,
    Signal::HUP,
    Signal::QUIT,
    Signal::USR1,
    Signal::USR2,
    Signal::WINCH,
    Signal::TSTP,
];

/// The signals that the wrapper receives, and its terminal if it has one.
#[derive(Debug)]
pub(super) struct Job {
    pub(super) signals: Signals,
    terminal: Option<Terminal>,
    /// Whether the command gets the terminal whenever the wrapper's group is in the foreground.
    hands_over: bool,
    /// Whether the command is stopped and was not continued yet.
    command_is_stopped: bool,
    interrupt_passed_on: bool,
}

impl Job {
    /// Starts to receive signals and opens the terminal, before the command is started.
    pub(super) fn prepare() -> io::Result<Self> {
        let mut received = [Signal::CHILD; PASSED_ON.len() + 2];
        received[..PASSED_ON.len()].copy_from_slice(&PASSED_ON);
        received[PASSED_ON.len()] = Signal::CONT;
        let signals = Signals::receive(&received)?;
        let terminal = Terminal::on_stdin();
        let hands_over = terminal.is_some() && !terminal::stdout_is_piped();
        Ok(Self { signals, terminal, hands_over, command_is_stopped: false, interrupt_passed_on: false })
    }

    /// Makes the command take the terminal before its exec, if it gets the terminal.
    pub(super) fn prepare_command(&self, command: &mut Command) -> io::Result<()> {
        match &self.terminal {
            Some(terminal) if self.hands_over => terminal.give_at_start(command),
            Some(_) | None => Ok(()),
        }
    }

    /// Takes the terminal back after the command could not be executed.
    pub(super) fn not_started(&self) {
        if let Some(terminal) = &self.terminal {
            let _ = terminal.take_back_from_empty_group();
        }
    }

    /// Hands the terminal over after the command has started. If the kernel has stopped it already for lack of the
    /// terminal, `wait(2)` reports that like any other stop.
    pub(super) fn started(&self, group: Pid) {
        self.hand_over(group);
    }

    /// Passes a signal that the wrapper received to the command. Ignores an error.
    pub(super) fn pass_on(&mut self, signal: Signal, group: Pid) {
        match signal {
            Signal::CHILD => {}
            Signal::CONT => self.resume(group),
            _ => {
                self.interrupt_passed_on |= signal == Signal::INT;
                let _ = kill_process_group(group, signal);
            }
        }
    }

    /// Handles a stop of the command by the signal `reason`.
    pub(super) fn stopped(&mut self, reason: Signal, group: Pid) -> io::Result<()> {
        self.command_is_stopped = true;
        if self.terminal.is_none() {
            self.terminal = Terminal::of_session();
        }
        let Some(terminal) = &self.terminal else { return Ok(()) };
        let wants_terminal = matches!(reason, Signal::TTIN | Signal::TTOU);
        if wants_terminal && (terminal.is_ours() || terminal.is_foreground(group)) {
            // Without the terminal the command would be stopped again at once.
            if terminal.give_to(group).is_ok() {
                self.resume(group);
            }
            return Ok(());
        }
        let _ = terminal.take_back_from(group);
        match reason {
            // The terminal would have stopped the whole job: the rest of a pipeline, the shell of a script.
            Signal::TSTP | Signal::TTIN | Signal::TTOU => signal::raise_default_in_group(reason)?,
            _ => signal::raise_default(Signal::STOP)?,
        }
        // The shell has continued us. Or nobody could stop us, and then the command goes on too.
        self.resume(group);
        Ok(())
    }

    /// Takes the terminal back after the command has ended.
    pub(super) fn ended(&self, ending: Ending, group: Pid) {
        let Some(terminal) = &self.terminal else { return };
        let had_terminal = terminal.is_foreground(group);
        let _ = terminal.take_back_from(group);
        // The user meant Ctrl-C for the whole job, but only the command got it. This process receives the signal that it
        // sends to its own group, and goes on.
        let interrupted = ending == Ending::Signaled(Signal::INT.as_raw() as u8);
        if had_terminal && interrupted && !self.interrupt_passed_on {
            let _ = kill_current_process_group(Signal::INT);
        }
    }

    fn resume(&mut self, group: Pid) {
        self.hand_over(group);
        // A second SIGCONT could cancel the next stop.
        if std::mem::take(&mut self.command_is_stopped) {
            let _ = kill_process_group(group, Signal::CONT);
        }
    }

    fn hand_over(&self, group: Pid) {
        if let Some(terminal) = &self.terminal
            && self.hands_over
            && terminal.is_ours()
        {
            let _ = terminal.give_to(group);
        }
    }
}
