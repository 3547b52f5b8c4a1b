//! Others that execute queued commands, where they are installed: the same commands, submitted one by one by their own
//! clients to a server that runs one at a time.

use std::ffi::OsStr;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use super::{binary, end, median, told, wall, worker};

/// How many commands do nothing, before the last one, which says what time it is.
const RUNS: usize = 100;
/// How often each is measured; the median counts.
const ROUNDS: usize = 3;
/// pueue looks for the next command three times a second: once is enough.
const SLOW_ROUNDS: usize = 1;

/// Prints how many no-op runs a second each of them makes.
pub fn compare() {
    let spooler = there("tsp", "-V");
    let (mut ours, mut theirs) = (Vec::new(), Vec::new());
    for _ in 0..ROUNDS {
        ours.push(through_lockkeeper());
        theirs.extend(spooler.then(through_spooler));
    }
    let row = |name: &str, speeds: Vec<f64>| {
        println!("{name}: {:.0} no-op runs a second, one at a time, submitted one by one", median(speeds));
    };
    row("lockkeeper", ours);
    if spooler {
        row("task-spooler", theirs);
    } else {
        println!("task-spooler: not installed (Debian package task-spooler)");
    }
    if there("pueue", "--version") && there("pueued", "--version") {
        row("pueue", (0..SLOW_ROUNDS).map(|_| through_pueue()).collect());
    } else {
        println!("pueue: not installed (cargo install pueue)");
    }
}

fn there(name: &str, question: &str) -> bool {
    quiet(name).arg(question).status().is_ok()
}

fn quiet(program: impl AsRef<OsStr>) -> Command {
    let mut command = Command::new(program);
    command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
    command
}

/// Runs a second, from the first call of the client to the moment that the last command tells.
fn speed(folder: &Path, mut submit: impl FnMut(&str)) -> f64 {
    let told_in = folder.join("told");
    let since = wall();
    for _ in 0..RUNS {
        submit("true");
    }
    submit(&format!("date +%s%N > {}", told_in.display()));
    loop {
        let text = std::fs::read_to_string(&told_in).unwrap_or_default();
        if text.ends_with('\n') {
            return (RUNS + 1) as f64 / (told(&text) - since);
        }
        std::thread::sleep(Duration::from_millis(5));
    }
}

fn through_lockkeeper() -> f64 {
    let folder = tempfile::tempdir().unwrap();
    let worker = worker(folder.path(), &[], &["--jobs", "1"]);
    let speed = speed(folder.path(), |line| {
        let mut submit = quiet(binary());
        submit.arg("--dir").arg(folder.path().join("store")).args(["submit", "--", "sh", "-c", line]);
        assert!(submit.status().unwrap().success());
    });
    end(worker);
    speed
}

fn through_spooler() -> f64 {
    let folder = tempfile::tempdir().unwrap();
    let tsp = |args: &[&str]| {
        let mut tsp = quiet("tsp");
        tsp.args(args).env("TMPDIR", folder.path()).env("TS_SOCKET", folder.path().join("socket"));
        assert!(tsp.status().unwrap().success());
    };
    let speed = speed(folder.path(), |line| tsp(&["sh", "-c", line]));
    tsp(&["-K"]);
    speed
}

/// A daemon that ends with its measurement, however that goes.
struct Daemon(Child);

impl Drop for Daemon {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

fn through_pueue() -> f64 {
    let folder = tempfile::tempdir().unwrap();
    let config = folder.path().join("pueue.yml");
    let text = format!(
        "client: {{}}\ndaemon: {{}}\nshared:\n  pueue_directory: {0}\n  runtime_directory: {0}\n  use_unix_socket: true\n",
        folder.path().display()
    );
    std::fs::write(&config, text).unwrap();
    let pueue = |args: &[&str]| quiet("pueue").arg("-c").arg(&config).args(args).status().unwrap().success();
    let _daemon = Daemon(quiet("pueued").arg("-c").arg(&config).spawn().unwrap());
    // Nothing tells when it can be asked.
    while !pueue(&["status"]) {
        std::thread::sleep(Duration::from_millis(20));
    }
    speed(folder.path(), |line| assert!(pueue(&["add", "--", line])))
}
