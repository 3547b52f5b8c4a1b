//! The doctor's examination of one harness: whether its hooks are set up and switched on, and really stop an edit.

mod codex_trust;
mod proof;
mod samples;
mod switches;

use std::path::Path;

use crate::harness::Harness;
use crate::repository::takes_part;
use crate::setup::{
    Folders, Scope, SetUp, SetUpError, commands_in, hook_count, shared_command, user_command,
};
use codex_trust::Trust;

/// How well a harness is set up.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Health {
    /// Its hooks stop an edit of a held file.
    Works,
    /// It needs attention.
    Warns,
    /// It has hooks that protect nothing.
    Fails,
}

/// What was found out about one harness.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Checkup {
    /// The harness.
    pub harness: Harness,
    /// How well it is set up.
    pub health: Health,
    /// What was seen.
    pub detail: String,
    /// What the user can do about it.
    pub fix: Option<String>,
}

impl Checkup {
    fn new(harness: Harness) -> Self {
        Self { harness, health: Health::Works, detail: String::new(), fix: None }
    }

    /// Adds something that was seen. The worst health and its fix win.
    fn add(&mut self, health: Health, detail: &str, fix: Option<String>) {
        if health > self.health {
            (self.health, self.fix) = (health, fix);
        }
        let between = if self.detail.is_empty() { "" } else { "; " };
        self.detail.push_str(&format!("{between}{detail}"));
    }
}

/// Examines a harness. None if it is not here, or has no hooks and this repository does not take part.
pub fn check_up(harness: Harness, folders: &Folders, program: &str) -> Option<Checkup> {
    let mut checkup = Checkup::new(harness);
    let mut files = Vec::new();
    for scope in Folders::scopes(harness) {
        let path = folders.file(harness, *scope);
        match commands_in(harness, &path) {
            Ok(commands) if commands.is_empty() => {}
            Ok(commands) => files.push((*scope, path, commands)),
            Err(error) => unreadable(&mut checkup, folders, &path, &error),
        }
    }
    let is_here = folders.has(harness) && takes_part(folders.location());
    if files.is_empty() && (checkup.detail.is_empty() || !is_here) {
        let kind = harness.kind();
        checkup.add(
            Health::Warns,
            &format!("{kind} is here and does not ask lockkeeper: its edits are not checked"),
            Some(format!("lockkeeper init {kind}")),
        );
        return is_here.then_some(checkup);
    }
    for (detail, fix) in switches::off(harness, folders) {
        checkup.add(Health::Fails, &detail, Some(fix));
    }
    for (scope, path, commands) in files {
        file(&mut checkup, folders, scope, &path, &commands, program);
    }
    if harness == Harness::Codex && checkup.health != Health::Fails {
        trust(&mut checkup, folders);
    }
    Some(checkup)
}

fn unreadable(checkup: &mut Checkup, folders: &Folders, path: &Path, error: &SetUpError) {
    let shown = folders.shown(path);
    let has_hook =
        std::fs::read(path).is_ok_and(|text| String::from_utf8_lossy(&text).contains("lockkeeper"));
    let health = if has_hook { Health::Fails } else { Health::Warns };
    checkup.add(health, &format!("{shown}: {error}"), Some(format!("correct {shown}")));
}

/// Examines one file that has our command lines.
fn file(
    checkup: &mut Checkup,
    folders: &Folders,
    scope: Scope,
    path: &Path,
    commands: &[(String, String)],
    program: &str,
) {
    let (harness, shown) = (checkup.harness, folders.shown(path));
    let current = [user_command(program), shared_command()];
    let again = match scope {
        Scope::User => format!("lockkeeper init {}", harness.kind()),
        Scope::Project => format!("lockkeeper init --project {0}, or --shared", harness.kind()),
        Scope::Shared => format!("lockkeeper init --shared {}", harness.kind()),
    };
    let is_current = commands.iter().all(|(_, command)| current.contains(command));
    let is_whole = commands.len() == hook_count(harness)
        && (scope != Scope::User || SetUp::new(folders, scope, program).is_current(harness));
    let mut lines: Vec<&str> = commands.iter().map(|(_, command)| command.as_str()).collect();
    lines.sort_unstable();
    lines.dedup();
    for line in lines {
        // Anybody can write the files of a project: only a command line that is known is run.
        if scope != Scope::User && !current.iter().any(|known| known == line) {
            let detail = format!("{shown} calls another lockkeeper, which was not tried: {line}");
            checkup.add(Health::Warns, &detail, Some(again.clone()));
            continue;
        }
        match proof::prove(harness, line) {
            Ok(proof) => {
                let (passed, denied) = (proof.passed.as_millis(), proof.denied.as_millis());
                let detail =
                    format!("{shown}: passes a free file in {passed} ms, denies a held one in {denied} ms");
                checkup.add(Health::Works, &detail, None);
            }
            Err(error) => {
                let detail = format!("{shown}: {error}: the hook protects nothing");
                checkup.add(Health::Fails, &detail, Some(again.clone()));
            }
        }
    }
    if !is_current || !is_whole {
        checkup.add(Health::Warns, &format!("{shown} is not as this version writes it"), Some(again));
    }
}

/// Codex skips hooks that the user has not trusted, without a word.
fn trust(checkup: &mut Checkup, folders: &Folders) {
    let fix = || Some("start codex, /hooks, trust lockkeeper".to_owned());
    match codex_trust::ask(folders) {
        Trust::Trusted => checkup.add(Health::Works, "codex trusts it", None),
        Trust::Untrusted(count) => {
            let detail = format!("codex does not trust {count} of the hooks yet, and skips them");
            checkup.add(Health::Fails, &detail, fix());
        }
        Trust::Unknown(why) => {
            checkup.add(Health::Warns, &format!("whether codex trusts the hooks is not known: {why}"), fix());
        }
    }
}
