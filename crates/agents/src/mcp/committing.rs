//! The tool `commit`: commits exactly the caller's own changes, as the command does.

use std::path::{Path, PathBuf};
use std::time::Instant;

use lockkeeper_core::id::LeaseId;
use lockkeeper_core::lease::{Outcome, WaitTerms};
use lockkeeper_core::record::Lease;
use lockkeeper_engine::open::OpenError;
use lockkeeper_engine::{Acquired, Engine, Resident, WaitOptions, under};
use serde_json::{Value, json};

use super::arguments::{CallError, CommitCall};
use super::claiming::{GRACE, Interrupt, LONGEST};
use super::server::Visit;
use super::wording::path_text;
use crate::caller::Caller;
use crate::commit::{CommitError, CommitRequest, Committed, Selection, commit, index_request};
use crate::git::Git;
use crate::hook::with_causes;
use crate::quote::{cut, one_line};

/// The most paths that a result names.
const MAX_PATHS: usize = 200;
/// The most that is passed on of what git and hooks of the repository print, in characters.
const MAX_OUTPUT: usize = 4000;

impl Visit<'_> {
    /// Commits the caller's changes. Why there is no commit is a result, too.
    pub(super) fn commit(&self, call: &CommitCall, interrupt: &Interrupt) -> Result<Value, CallError> {
        let git = Git::find(&self.location.root).map_err(|error| refusal(&error))?;
        let caller = Caller::Agents(vec![self.caller.owner.clone()]);
        let work_tree = self.location.work_tree();
        self.keep_record(|_| {})?;
        let engine = self.engine()?;
        let selection = match call.paths() {
            [] => Selection::claimed_by(&self.caller.owner, &engine, &work_tree)?,
            paths => {
                let paths: Vec<PathBuf> = paths.iter().map(PathBuf::from).collect();
                let folder = &self.server.options.cwd;
                Selection::named_from(folder, &paths, &git).map_err(|error| refusal(&error))?
            }
        };
        let resident = engine.resident().map_err(OpenError::Machine)?;
        let Some(lease) = hold_index(self, &engine, &resident, &caller, interrupt)? else {
            return Ok(not_done("others commit at this moment; called again, it waits again", ""));
        };
        let under = (self.server.options.variable)(under::VARIABLE).unwrap_or_default();
        let around = under::read(under.as_ref(), &self.location.state);
        let git = git.under(&self.location.state, &[&around[..], &[lease.id]].concat());
        let made = commit(&CommitRequest {
            git: &git,
            engine: &engine,
            state: &self.location.state,
            work_tree: &work_tree,
            caller: &caller,
            around: &around,
            owners: std::slice::from_ref(&self.caller.owner),
            selection,
            messages: std::slice::from_ref(&call.message),
            collect: true,
        });
        // If it fails, the lease ends with the resident of this call.
        let _ = engine.release(lease.id, Some(lease.token));
        Ok(match made {
            Ok(made) => done(&made),
            Err(CommitError::Refused { output }) => {
                not_done("git, or a hook of the repository, refused: `output` says why", &output)
            }
            Err(error @ CommitError::UnderWay { way_out, .. }) => {
                not_done(&format!("{error}; it has to be ended first, with {way_out}"), "")
            }
            Err(CommitError::HeadMoved) => {
                not_done("HEAD has moved meanwhile: somebody else has committed or switched", "")
            }
            Err(error @ CommitError::IndexLocked(_)) => {
                not_done(&format!("{error}; such as a `git commit` whose editor is open"), "")
            }
            Err(error @ (CommitError::Nothing(_) | CommitError::Unmerged(_) | CommitError::Held(_))) => {
                not_done(&error.to_string(), "")
            }
            Err(error @ CommitError::Unseen(_)) => {
                return Err(CallError::Refused(format!(
                    "{}. Look at `git log`.",
                    one_line(&with_causes(&error))
                )));
            }
            Err(error @ (CommitError::Git(_) | CommitError::Store(_) | CommitError::Io(_))) => {
                return Err(refusal(&error));
            }
        })
    }
}

fn refusal(error: &(dyn std::error::Error + 'static)) -> CallError {
    CallError::Refused(format!("{}. Nothing was committed.", one_line(&with_causes(error))))
}

/// Acquires `git/index`. None if others hold it for longer than a call may last, or if the call is interrupted.
fn hold_index(
    visit: &Visit<'_>,
    engine: &Engine,
    resident: &Resident,
    caller: &Caller,
    interrupt: &Interrupt,
) -> Result<Option<Lease>, CallError> {
    let stays = visit.settings.ticket;
    let mut request = index_request(resident, caller, Vec::new())?;
    request.wait = Some(WaitTerms { waker: None, stays });
    let ticket: LeaseId = match engine.acquire_now(&request, GRACE).map_err(OpenError::Store)? {
        Outcome::Granted(grant) => return Ok(Some(grant.lease)),
        Outcome::Waiting(waiting) => waiting.ticket.id,
        Outcome::Held(_) | Outcome::Deadlock(_) | Outcome::Gone => return Ok(None),
    };
    let until = Some(Instant::now() + LONGEST);
    let interrupts = [interrupt.as_fd()];
    let options = WaitOptions { until, interrupts: &interrupts, grace: GRACE, tick: None };
    match engine.resume(ticket, stays, &options, &mut |_| {}).map_err(OpenError::Store)? {
        Acquired::Granted(grant) => Ok(Some(grant.lease)),
        Acquired::Waiting(waiting) | Acquired::Interrupted(waiting) => {
            // If the lease was granted at this moment, it is released.
            let granted = engine.give_up(&waiting.ticket).map_err(OpenError::Store)?;
            if let Some(grant) = granted {
                let _ = engine.release(grant.lease.id, Some(grant.lease.token)).map_err(OpenError::Store)?;
            }
            Ok(None)
        }
        Acquired::Held(_) | Acquired::Deadlock(_) | Acquired::Gone => Ok(None),
    }
}

fn done(made: &Committed) -> Value {
    let text = |path: &Path| path_text(&path.to_string_lossy());
    let paths: Vec<String> = made.paths.iter().take(MAX_PATHS).map(|path| text(path)).collect();
    let left_out = made.left_out.iter().take(MAX_PATHS);
    let left_out: Vec<Value> =
        left_out.map(|(path, why)| json!({ "path": text(path), "why": why })).collect();
    let mut result = json!({
        "done": true, "commit": made.commit, "paths": paths, "left_out": left_out, "output": output_text(&made.output),
    });
    if made.paths.len() > MAX_PATHS {
        result["more_paths"] = json!(made.paths.len() - MAX_PATHS);
    }
    if let Some(error) = &made.release_error {
        result["why"] = json!(format!("the claims could not be released: {}", one_line(&with_causes(error))));
    }
    if let Some(error) = &made.index_error {
        let why = "the common index could not be updated, so `git status` shows these paths as staged until `git reset -q -- PATH…`";
        result["why"] = json!(format!("{why}: {}", one_line(&error.to_string())));
    }
    result
}

fn not_done(why: &str, output: &str) -> Value {
    let why = cut(&one_line(why), MAX_OUTPUT);
    json!({ "done": false, "paths": [], "left_out": [], "output": output_text(output), "why": why })
}

/// Lines of git and of hooks, without characters that no reader can see. The end of a long text says most.
fn output_text(output: &str) -> String {
    let lines: Vec<String> = output.lines().map(one_line).filter(|line| !line.is_empty()).collect();
    let text = lines.join("\n");
    let excess = text.chars().count().saturating_sub(MAX_OUTPUT);
    if excess == 0 { text } else { format!("…{}", text.chars().skip(excess + 1).collect::<String>()) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn output_is_cut_at_its_beginning_and_has_no_escapes() {
        assert_eq!(output_text("a\u{1b}[31m\r\n\n  b\u{202e}\n"), "a[31m\nb");
        let long = output_text(&format!("{}end", "x".repeat(10_000)));
        assert!(long.starts_with('…') && long.ends_with("xend"));
        assert_eq!(long.chars().count(), MAX_OUTPUT);
    }
}
