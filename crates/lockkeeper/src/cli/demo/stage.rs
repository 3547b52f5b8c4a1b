//! The stage of the demo: its folder, its processes and its output.

use std::io::{BufRead, BufReader, IsTerminal, Read, Write};
use std::os::fd::AsFd;
use std::path::PathBuf;
use std::process::{Child, ChildStdout, Command, Output, Stdio};
use std::time::{Duration, Instant};

use anstyle::{AnsiColor, Style};
use lockkeeper_engine::location::{Location, LocationSource};
use lockkeeper_engine::open::{OpenError, open_leases, remove_project};
use lockkeeper_engine::report::{Exit, Report};
use lockkeeper_engine::shared_store::SharedStore;
use lockkeeper_platform::poll;
use lockkeeper_platform::signal::{Signal, Signals};
use serde_json::{Value, json};
use tempfile::TempDir;

use crate::cli::{print, table};

const TITLE: Style = AnsiColor::Green.on_default().bold();
const COMMAND: Style = Style::new().bold();
/// The pause for reading after each output. With the sixteen of them the demo takes less than 20 seconds.
const PAUSE: Duration = Duration::from_secs(1);
/// How long a process of the demo may take to do its part.
const LIMIT: Duration = Duration::from_secs(20);
/// How often the store is read while the demo waits for a ticket.
const POLL_EVERY: Duration = Duration::from_millis(5);

/// Runs commands of this program in a temporary folder and shows them.
pub(super) struct Stage {
    folder: TempDir,
    program: PathBuf,
    signals: Signals,
    signal: Option<Signal>,
    pauses: bool,
    json: bool,
    steps: Vec<Value>,
    /// The project on a server that the demo uses and removes, and the address of the server; none if it uses its folder.
    server: Option<(SharedStore, String)>,
}

/// Removes the project on the server, also after a failure.
impl Drop for Stage {
    fn drop(&mut self) {
        let Some((server, _)) = &self.server else { return };
        if let Err(error) = remove_project(server) {
            print::talk(&format!(
                "warning: the project {} is left on {}: {error}",
                server.project(),
                server.address()
            ));
        }
    }
}

impl Stage {
    pub(super) fn open(
        pauses: bool,
        json: bool,
        server: Option<(SharedStore, String)>,
    ) -> Result<Self, Report> {
        let folder = tempfile::Builder::new().prefix("lockkeeper-demo-").tempdir().map_err(system)?;
        let signals = Signals::receive(&[Signal::INT, Signal::TERM, Signal::HUP]).map_err(system)?;
        let program = std::env::current_exe().map_err(system)?;
        let pauses = pauses && !json && std::io::stdout().is_terminal();
        Ok(Self { folder, program, signals, signal: None, pauses, json, steps: Vec::new(), server })
    }

    /// The signal that ended the demo early.
    pub(super) fn interrupted(&self) -> Option<Signal> {
        self.signal
    }

    /// Begins a step: a heading, and what happens.
    pub(super) fn step(&mut self, title: &str, text: &str) -> Result<(), Report> {
        self.steps.push(json!({ "title": title, "text": text, "commands": [] }));
        let number = self.steps.len();
        self.print(&format!("\n{TITLE}{number}. {title}{TITLE:#}\n{text}\n"));
        self.pause()
    }

    /// Shows a sentence.
    pub(super) fn say(&mut self, sentence: &str) -> Result<(), Report> {
        self.print(&format!("{sentence}\n"));
        self.pause()
    }

    /// Shows a command as a user would type it.
    pub(super) fn show(&mut self, args: &[&str]) -> Result<(), Report> {
        self.print(&format!("{COMMAND}$ lockkeeper {}{COMMAND:#}\n", in_shell(args)));
        self.check_signals()
    }

    /// Shows what a command printed.
    pub(super) fn output(&mut self, output: &Output) -> Result<(), Report> {
        self.print_output(output);
        self.pause()
    }

    fn print_output(&self, output: &Output) {
        let text = [&*output.stderr, &*output.stdout].concat();
        self.print(&String::from_utf8_lossy(&text));
    }

    /// Runs a command to its end, shows it, and lets the user read.
    pub(super) fn run(&mut self, args: &[&str], expected: i32) -> Result<(), Report> {
        self.run_on(args, expected)?;
        self.pause()
    }

    /// Runs a command to its end and shows it. On a terminal it prints there itself, so that its tables have the width of it.
    pub(super) fn run_on(&mut self, args: &[&str], expected: i32) -> Result<(), Report> {
        self.show(args)?;
        let mut command = self.command(args);
        command.stdin(Stdio::null());
        let output = if self.pauses {
            let status = command.status().map_err(system)?;
            Output { status, stdout: Vec::new(), stderr: Vec::new() }
        } else {
            command.output().map_err(system)?
        };
        self.check_signals()?;
        let code = output.status.code();
        if let Some(commands) = self.steps.last_mut().and_then(|step| step["commands"].as_array_mut()) {
            commands.push(json!({ "args": args, "exit_code": code }));
        }
        self.print_output(&output);
        if code == Some(expected) { Ok(()) } else { Err(unexpected(args, code, expected)) }
    }

    /// Starts a command in the background, and waits until it prints its first line. If `shown` is given, the command is shown
    /// with that program in the place of its own.
    pub(super) fn start(&mut self, args: &[&str], shown: Option<&str>) -> Result<Background, Report> {
        let mut background = self.start_quietly(args, shown)?;
        background.first_line = background.line()?;
        Ok(background)
    }

    /// Starts a command in the background, and waits until it is in line.
    pub(super) fn start_waiting(&mut self, args: &[&str], shown: Option<&str>) -> Result<Background, Report> {
        let background = self.start_quietly(args, shown)?;
        self.until_waiting(1)?;
        Ok(background)
    }

    /// Waits until this many processes wait in line.
    pub(super) fn until_waiting(&mut self, count: usize) -> Result<(), Report> {
        let (state, root) = (self.state(), self.folder.path().to_owned());
        let shared = self.server.as_ref().map(|(server, _)| server.clone());
        let engine = open_leases(&Location { state, root, source: LocationSource::Named, shared })?;
        let until = Instant::now() + LIMIT;
        while engine.listing()?.waiters.len() < count {
            self.check_signals()?;
            if Instant::now() > until {
                return Err(failed("nobody waits in line"));
            }
            self.sleep(POLL_EVERY)?;
        }
        Ok(())
    }

    /// Kills a wrapper and its command, whose pid is the first line that it printed. Returns the time of the kill.
    pub(super) fn kill(&mut self, background: &Background) -> Result<Instant, Report> {
        let line = format!("kill -9 {} {}", background.child.id(), background.first_line.trim());
        self.print(&format!("{COMMAND}$ {line}{COMMAND:#}\n"));
        let killed_at = Instant::now();
        let status = Command::new("sh").args(["-c", &line]).status().map_err(system)?;
        if status.success() { Ok(killed_at) } else { Err(failed(&format!("`{line}` failed"))) }
    }

    /// Ends the demo: says what to try next, or prints the steps as JSON.
    pub(super) fn close(&self) {
        if self.json {
            print::json(&json!({ "status": "done", "steps": self.steps }));
            return;
        }
        self.print(&format!(
            "\n{TITLE}Now in your repository{TITLE:#}\n\
             $ lockkeeper exec db -- ./migrate.sh            # hold a name while a command runs\n\
             $ lockkeeper exec --path 'src/api/**' -- make   # hold paths\n\
             $ lockkeeper locks                              # who holds what, who waits for whom\n\
             $ lockkeeper --help\n"
        ));
    }

    fn start_quietly(&mut self, args: &[&str], shown: Option<&str>) -> Result<Background, Report> {
        if let Some(program) = shown {
            let until = args.iter().position(|arg| *arg == "--").map_or(args.len(), |place| place + 1);
            self.show(&[&args[..until], &[program, "&"]].concat())?;
        }
        let mut command = self.command(args);
        let mut child = command
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .map_err(system)?;
        let stdout = child.stdout.take().map(BufReader::new);
        Ok(Background { child, stdout, first_line: String::new() })
    }

    fn state(&self) -> PathBuf {
        self.folder.path().join(".lockkeeper")
    }

    /// A command of this program. It sees neither the settings of the user nor the leases around the demo.
    fn command(&self, args: &[&str]) -> Command {
        let mut command = Command::new(&self.program);
        command.args(args).current_dir(self.folder.path());
        for (name, _) in std::env::vars_os() {
            if name.to_string_lossy().starts_with("LOCKKEEPER_") {
                command.env_remove(name);
            }
        }
        command.env("LOCKKEEPER_DIR", self.state()).env("LOCKKEEPER_DEMO", &self.program);
        if let Some((server, address)) = &self.server {
            command.env("LOCKKEEPER_STORE", address).env("LOCKKEEPER_PROJECT", server.project());
            if let Some(file) = std::env::var_os("LOCKKEEPER_PASSWORD_FILE") {
                command.env("LOCKKEEPER_PASSWORD_FILE", file);
            }
        }
        command.env("XDG_CONFIG_HOME", self.folder.path()).env("AI_SWARM_DIR", self.folder.path());
        if self.pauses {
            // Lines instead of a live display, which would be gone at the end.
            command.env("LOCKKEEPER_COLOR", "always").env("TERM", "dumb");
        }
        command
    }

    fn print(&self, text: &str) {
        if !self.json {
            print::out(&table::wrap_terminal(text, 2));
        }
    }

    /// Lets the user read.
    pub(super) fn pause(&mut self) -> Result<(), Report> {
        if self.pauses { self.sleep(PAUSE) } else { self.check_signals() }
    }

    fn sleep(&mut self, time: Duration) -> Result<(), Report> {
        poll::wait(&[self.signals.as_fd()], Some(time)).map_err(system)?;
        self.check_signals()
    }

    /// Ends the demo after a signal.
    fn check_signals(&mut self) -> Result<(), Report> {
        self.signal = self.signal.or(self.signals.take().map_err(system)?.first().copied());
        if self.signal.is_some() { Err(failed("interrupted")) } else { Ok(()) }
    }
}

/// A command in the background. Dropping it kills its wrapper; the command then ends when its pipes are closed.
pub(super) struct Background {
    child: Child,
    stdout: Option<BufReader<ChildStdout>>,
    first_line: String,
}

impl Background {
    /// Reads the next line that the command prints.
    pub(super) fn line(&mut self) -> Result<String, Report> {
        let mut line = String::new();
        if let Some(stdout) = &mut self.stdout {
            stdout.read_line(&mut line).map_err(system)?;
        }
        if line.is_empty() { Err(failed("a command ended early")) } else { Ok(line) }
    }

    /// Lets a command that reads a line go on.
    pub(super) fn go_on(&mut self) -> Result<(), Report> {
        let Some(mut stdin) = self.child.stdin.take() else { return Ok(()) };
        stdin.write_all(b"go\n").map_err(system)
    }

    /// Waits for the end.
    pub(super) fn finish(mut self, expected: i32) -> Result<Output, Report> {
        let (mut stdout, mut stderr) = (Vec::new(), Vec::new());
        if let Some(mut pipe) = self.stdout.take() {
            pipe.read_to_end(&mut stdout).map_err(system)?;
        }
        if let Some(mut pipe) = self.child.stderr.take() {
            pipe.read_to_end(&mut stderr).map_err(system)?;
        }
        let status = self.child.wait().map_err(system)?;
        match status.code() {
            Some(code) if code == expected => Ok(Output { status, stdout, stderr }),
            code => Err(unexpected(&["exec"], code, expected)),
        }
    }
}

impl Drop for Background {
    fn drop(&mut self) {
        // The child may have ended already. Then there is nothing to kill.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Arguments as one would type them in a shell.
fn in_shell(args: &[&str]) -> String {
    let quoted = args.iter().map(|arg| {
        let plain = |byte: u8| byte.is_ascii_alphanumeric() || b"-_./:=,&".contains(&byte);
        if !arg.is_empty() && arg.bytes().all(plain) { (*arg).to_owned() } else { format!("'{arg}'") }
    });
    quoted.collect::<Vec<_>>().join(" ")
}

fn unexpected(args: &[&str], code: Option<i32>, expected: i32) -> Report {
    let code = code.map_or("a signal".to_owned(), |code| format!("exit code {code}"));
    failed(&format!("`lockkeeper {}` ended with {code} instead of {expected}", in_shell(args)))
}

fn failed(why: &str) -> Report {
    Report::new(Exit::Failed, "DEMO_FAILED", format!("the demo did not go as expected: {why}"))
        .with_hint("see `lockkeeper doctor`")
}

fn system(error: std::io::Error) -> Report {
    Report::from(OpenError::Machine(error))
}
