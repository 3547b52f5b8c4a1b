//! Output of `init`: the result for each harness as lines, JSON and diffs.

use std::path::Path;

use lockkeeper_agents::Harness;
use lockkeeper_agents::git_guard::{GuardError, GuardPlace, GuardState};
use lockkeeper_agents::setup::{Change, Folders, Scope, SetUpError, SettingsFile, hook_count, is_tested};
use serde_json::{Value, json};
use similar::TextDiff;

use super::Args;

/// The git guard as JSON.
pub(super) fn guard_json(guard: &Result<GuardState, GuardError>) -> Value {
    match guard {
        Ok(state) => {
            let place = match &state.place {
                GuardPlace::Settings => json!("configuration"),
                GuardPlace::Folder(folder) => json!(folder.display().to_string()),
            };
            let hooks: Vec<&str> = state.present.iter().map(|event| event.name()).collect();
            json!({ "place": place, "hooks": hooks, "error": null, "hint": null })
        }
        Err(error) => {
            json!({ "place": null, "hooks": [], "error": error.to_string(), "hint": error.hint() })
        }
    }
}

/// The result for one harness.
pub(super) struct Outcome {
    pub(super) harness: Harness,
    /// First the file with the hooks.
    pub(super) files: Vec<FileOutcome>,
    pub(super) step: Option<&'static str>,
}

/// The result for one file.
pub(super) struct FileOutcome {
    pub(super) file: SettingsFile,
    pub(super) shown: String,
    pub(super) result: Result<Vec<Change>, SetUpError>,
}

/// A line for people.
pub(super) struct Line<'o> {
    pub(super) name: &'static str,
    pub(super) file: &'o str,
    pub(super) text: String,
    pub(super) hint: Option<&'static str>,
}

impl Outcome {
    pub(super) fn changes(&self) -> impl Iterator<Item = &Change> {
        self.files.iter().flat_map(|file| file.result.iter().flatten())
    }

    pub(super) fn is_unchanged(&self) -> bool {
        self.files.iter().all(FileOutcome::is_unchanged)
    }

    /// One line for all files that are done, and one for each that is left alone.
    pub(super) fn lines(&self, args: &Args) -> Vec<Line<'_>> {
        let name = self.harness.kind();
        let mut lines = Vec::new();
        let done: Vec<&FileOutcome> = self.files.iter().filter(|file| file.result.is_ok()).collect();
        if args.remove {
            let removed = done.iter().filter(|file| !file.is_unchanged());
            lines.extend(removed.map(|file| Line {
                name,
                file: &file.shown,
                text: if args.dry_run { "would be removed" } else { "removed" }.to_owned(),
                hint: None,
            }));
        } else if let Some(first) = done.first() {
            let hooks = done.iter().any(|file| file.file.has_hooks());
            let hooks = hooks.then(|| format!("{} hooks", hook_count(self.harness)));
            let server = done.iter().any(|file| file.file.has_server()).then(|| "MCP server".to_owned());
            let unchanged = self.is_unchanged().then(|| "unchanged".to_owned());
            let what: Vec<String> = [hooks, server, unchanged].into_iter().flatten().collect();
            let step = self.step.filter(|_| !self.is_unchanged());
            let step = step.map(|step| format!("   one step is yours: {step}")).unwrap_or_default();
            let tested = if is_tested(self.harness) { "" } else { "   after its documentation, not tested" };
            let text = format!("{}{tested}{step}", what.join(", "));
            lines.push(Line { name, file: &first.shown, text, hint: None });
        }
        for file in &self.files {
            if let Err(error) = &file.result {
                let text = format!("left alone: {error}");
                lines.push(Line { name, file: &file.shown, text, hint: Some(error.hint()) });
            }
        }
        lines
    }

    pub(super) fn to_json(&self, scope: Scope) -> Value {
        let changed = self.changes().filter(|change| !change.is_nothing());
        let changes: Vec<Value> = changed.map(|change| {
            json!({ "file": change.file.display().to_string(), "creates": change.before.is_none(), "removes": change.after.is_none() })
        }).collect();
        let hooks = self.files.iter().find(|file| file.file.has_hooks());
        let server = self.files.iter().find(|file| file.file.has_server());
        let mut outcome = json!({
            "harness": self.harness.kind(), "scope": scope.word(), "file": null, "hooks": hook_count(self.harness),
            "changes": changes, "unchanged": self.is_unchanged(), "step": self.step, "tested": is_tested(self.harness),
            "error": null, "hint": null, "mcp": server.map(FileOutcome::to_json),
        });
        if let (Some(Value::Object(hooks)), Value::Object(outcome)) =
            (hooks.map(FileOutcome::to_json), &mut outcome)
        {
            outcome.extend(hooks);
        }
        outcome
    }
}

impl FileOutcome {
    fn is_unchanged(&self) -> bool {
        self.result.as_ref().is_ok_and(|changes| changes.iter().all(Change::is_nothing))
    }

    fn to_json(&self) -> Value {
        json!({
            "file": self.file.path.display().to_string(),
            "error": self.result.as_ref().err().map(ToString::to_string),
            "hint": self.result.as_ref().err().map(SetUpError::hint),
        })
    }
}

/// A change as a unified diff; empty if nothing changes.
pub(super) fn diff(change: &Change, folders: &Folders) -> String {
    if change.is_nothing() {
        return String::new();
    }
    let name = |path: &Path, text: &Option<String>| match text {
        Some(_) => folders.shown(path),
        None => "/dev/null".to_owned(),
    };
    let (old, new) = (name(&change.file, &change.before), name(&change.file, &change.after));
    let (before, after) =
        (change.before.as_deref().unwrap_or_default(), change.after.as_deref().unwrap_or_default());
    TextDiff::from_lines(before, after).unified_diff().header(&old, &new).to_string()
}
