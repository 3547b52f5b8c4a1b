//! Proof that a command line stops an edit: two sessions edit one file of a scratch repository. The first passes, the second is denied.

use std::fs;
use std::io::{self, Read, Write};
use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::mpsc;
use std::thread;
use std::time::{Duration, Instant};

use thiserror::Error;

use super::samples::{self, FOREIGN};
use crate::harness::Harness;

/// How long a command line may take: as long as a harness waits for its hook.
const LIMIT: Duration = Duration::from_secs(10);

/// How long each answer took.
pub struct Proof {
    /// The edit of a free file.
    pub passed: Duration,
    /// The edit of a held file.
    pub denied: Duration,
}

/// What is wrong with a command line.
#[derive(Debug, Error)]
pub enum ProofError {
    #[error("a scratch repository cannot be made: {0}")]
    Scratch(#[source] io::Error),
    #[error("its command line cannot be run: {0}")]
    Run(#[source] io::Error),
    #[error("its command line does not answer within {} s", LIMIT.as_secs())]
    TimedOut,
    #[error("its command line refuses the edit of a free file")]
    DeniesAll,
    #[error("its command line ends with code {0}, and some harnesses refuse every edit then")]
    Code(i32),
    #[error("its command line lets an edit of a held file pass")]
    PassesAll,
}

/// Runs a command line as the harness does.
pub fn prove(harness: Harness, command: &str) -> Result<Proof, ProofError> {
    let scratch = scratch_repository().map_err(ProofError::Scratch)?;
    let folder = scratch.path().canonicalize().map_err(ProofError::Scratch)?;
    let first = call(harness, command, "doctor-1", &folder)?;
    if first.is_deny {
        return Err(ProofError::DeniesAll);
    }
    if let Some(code) = first.code.filter(|code| *code != 0) {
        return Err(ProofError::Code(code));
    }
    let second = call(harness, command, "doctor-2", &folder)?;
    if !second.is_deny {
        return Err(ProofError::PassesAll);
    }
    Ok(Proof { passed: first.took, denied: second.took })
}

/// A repository that takes part. The git folder has only what makes it one.
fn scratch_repository() -> io::Result<tempfile::TempDir> {
    let scratch = tempfile::Builder::new().prefix("lockkeeper-doctor-").tempdir()?;
    let git = scratch.path().join(".git");
    for folder in ["objects", "refs", "lockkeeper/agents"] {
        fs::create_dir_all(git.join(folder))?;
    }
    fs::write(git.join("HEAD"), "ref: refs/heads/main\n")?;
    Ok(scratch)
}

struct Answered {
    is_deny: bool,
    code: Option<i32>,
    took: Duration,
}

fn call(harness: Harness, command: &str, session: &str, folder: &Path) -> Result<Answered, ProofError> {
    let sample = samples::edit(harness, session, folder, &folder.join("file.txt"));
    let started_at = Instant::now();
    let mut shell = Command::new("sh");
    shell.args(["-c", command]).current_dir(folder);
    for name in FOREIGN {
        shell.env_remove(name);
    }
    shell.envs(sample.variables);
    shell.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::null());
    let mut child = shell.spawn().map_err(ProofError::Run)?;
    if let Some(mut stdin) = child.stdin.take() {
        // The write fails if the command line does not read its input. Its answer is checked all the same.
        let _ = stdin.write_all(sample.input.to_string().as_bytes());
    }
    let (sender, receiver) = mpsc::channel();
    if let Some(mut stdout) = child.stdout.take() {
        thread::spawn(move || {
            let mut text = Vec::new();
            let read = stdout.read_to_end(&mut text).map(|_| text);
            // After the time limit the receiver is gone.
            let _ = sender.send(read);
        });
    }
    let Ok(read) = receiver.recv_timeout(LIMIT) else {
        let _ = child.kill();
        let _ = child.wait();
        return Err(ProofError::TimedOut);
    };
    let stdout = read.map_err(ProofError::Run)?;
    let status = child.wait().map_err(ProofError::Run)?;
    let is_deny = samples::is_deny(harness, status.code(), &stdout);
    Ok(Answered { is_deny, code: status.code(), took: started_at.elapsed() })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn error(command: &str) -> ProofError {
        match prove(Harness::Gemini, command) {
            Ok(_) => panic!("proved: {command}"),
            Err(error) => error,
        }
    }

    #[test]
    fn a_command_line_that_protects_nothing_is_found_out() {
        assert!(matches!(error("exit 0"), ProofError::PassesAll));
        assert!(matches!(error("/nowhere/lockkeeper hook"), ProofError::Code(127)));
        assert!(matches!(error("echo '{\"decision\":\"deny\"}'"), ProofError::DeniesAll));
    }

    #[test]
    fn a_command_line_that_passes_once_and_denies_then_is_proved() {
        let line = "cat >/dev/null; [ -e seen ] && echo '{\"decision\":\"deny\"}'; touch seen";
        assert!(prove(Harness::Gemini, line).is_ok());
    }
}
