//! The wrapper's part in job control: which signals reach the command, and who has the terminal.
//!
//! To the shell the wrapper is the job, to the terminal the command is. So the wrapper hands the terminal over, stops
//! when the command stops and continues it when it is continued, as a shell does for its own jobs. Where the output
//! goes on into another program (`… | less`), which may need the terminal more, the command gets it only once it
//! asks for it, by being stopped for reading or setting it.

use std::io;
use std::process::Command;

use rustix::process::{Pid, Signal, kill_current_process_group, kill_process_group};

use super::ending::Ending;
use crate::signal::{self, Signals};
use crate::terminal::{self, Terminal};

/// Passed on to the command, each as often as it arrives.
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

/// The signals of the wrapper and its terminal, if it has one.
#[derive(Debug)]
pub(super) struct Job {
    pub(super) signals: Signals,
    terminal: Option<Terminal>,
    /// Whether the command has the terminal whenever the wrapper may have it.
    hands_over: bool,
    /// Whether the command was seen to be stopped and not yet continued.
    command_is_stopped: bool,
    interrupt_passed_on: bool,
}

impl Job {
    /// Begins to receive signals and finds out about the terminal, before the command is started.
    pub(super) fn prepare() -> io::Result<Self> {
        let mut received = [Signal::CHILD; PASSED_ON.len() + 2];
        received[..PASSED_ON.len()].copy_from_slice(&PASSED_ON);
        received[PASSED_ON.len()] = Signal::CONT;
        let signals = Signals::receive(&received)?;
        let terminal = Terminal::on_stdin();
        let hands_over = terminal.is_some() && !terminal::stdout_is_piped();
        Ok(Self { signals, terminal, hands_over, command_is_stopped: false, interrupt_passed_on: false })
    }

    /// Has the command begin with the terminal, if it is to have it.
    pub(super) fn equip(&self, command: &mut Command) -> io::Result<()> {
        match &self.terminal {
            Some(terminal) if self.hands_over => terminal.give_at_start(command),
            Some(_) | None => Ok(()),
        }
    }

    /// The command could not be run.
    pub(super) fn not_started(&self) {
        if let Some(terminal) = &self.terminal {
            let _ = terminal.take_back_from_the_dead();
        }
    }

    /// The command is there. If it was stopped for not having the terminal by now, that will be told as any stop.
    pub(super) fn started(&self, group: Pid) {
        self.hand_over(group);
    }

    /// A signal arrived at the wrapper. That it cannot reach the command is no reason to end.
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

    /// The command was stopped by `reason`.
    pub(super) fn stopped(&mut self, reason: Signal, group: Pid) -> io::Result<()> {
        self.command_is_stopped = true;
        if self.terminal.is_none() {
            self.terminal = Terminal::of_session();
        }
        let Some(terminal) = &self.terminal else { return Ok(()) };
        let wants_terminal = matches!(reason, Signal::TTIN | Signal::TTOU);
        if wants_terminal && (terminal.is_ours() || terminal.listens_to(group)) {
            // Continued without it, it would be stopped again at once.
            if terminal.give_to(group).is_ok() {
                self.resume(group);
            }
            return Ok(());
        }
        let _ = terminal.take_back_from(group);
        match reason {
            // The terminal would have stopped the whole job: the rest of a pipeline, a script's shell.
            Signal::TSTP | Signal::TTIN | Signal::TTOU => signal::suffer_with_group(reason)?,
            _ => signal::suffer(Signal::STOP)?,
        }
        // Here the shell has continued us; or nobody could, and then the command goes on as well.
        self.resume(group);
        Ok(())
    }

    /// The command has ended.
    pub(super) fn ended(&self, ending: Ending, group: Pid) {
        let Some(terminal) = &self.terminal else { return };
        let had_terminal = terminal.listens_to(group);
        let _ = terminal.take_back_from(group);
        // Ctrl-C is meant for the whole job; only the command got it. This process receives its own and goes on.
        let interrupted = ending == Ending::Signaled(Signal::INT.as_raw() as u8);
        if had_terminal && interrupted && !self.interrupt_passed_on {
            let _ = kill_current_process_group(Signal::INT);
        }
    }

    fn resume(&mut self, group: Pid) {
        self.hand_over(group);
        // A second SIGCONT could undo the next stop.
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
