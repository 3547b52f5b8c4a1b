//! The doctor's examination of one harness: whether its hooks are set up and switched on, and really stop an edit.

mod codex_trust;
mod json_rpc;
mod proof;
mod samples;
mod server;
mod switches;

use crate::harness::Harness;
use crate::repository::takes_part;
use crate::setup::{
    Folders, Scope, SetUp, SetUpError, SettingsFile, commands_in, hook_count, shared_command, user_command,
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
        let with_hooks = folders.files(harness, *scope).into_iter().filter(SettingsFile::has_hooks);
        for file in with_hooks {
            match commands_in(harness, &file.path) {
                Ok(commands) if commands.is_empty() => {}
                Ok(commands) => files.push((*scope, file, commands)),
                Err(error) => unreadable(&mut checkup, folders, &file, &error),
            }
        }
    }
    let package = folders.package(harness);
    if let Some(path) = &package {
        let place = format!("the package in {}", folders.shown(path));
        try_line(&mut checkup, &place, &shared_command(), "put lockkeeper into the search path");
    }
    let is_here = folders.has(harness) && takes_part(folders.location());
    if files.is_empty() && package.is_none() && (checkup.detail.is_empty() || !is_here) {
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
    for (scope, file, commands) in files {
        hooks(&mut checkup, folders, scope, &file, &commands, program);
        let of_server = folders.files(harness, scope).into_iter().filter(SettingsFile::has_server);
        of_server.for_each(|file| server::check(&mut checkup, folders, scope, &file, program));
    }
    if harness == Harness::Codex && checkup.health != Health::Fails {
        trust(&mut checkup, folders);
    }
    Some(checkup)
}

fn unreadable(checkup: &mut Checkup, folders: &Folders, file: &SettingsFile, error: &SetUpError) {
    let shown = folders.shown(&file.path);
    let has_hook = file.has_hooks()
        && std::fs::read(&file.path).is_ok_and(|text| String::from_utf8_lossy(&text).contains("lockkeeper"));
    let health = if has_hook { Health::Fails } else { Health::Warns };
    checkup.add(health, &format!("{shown}: {error}"), Some(format!("correct {shown}")));
}

/// The command that sets a harness up again.
fn again(harness: Harness, scope: Scope) -> String {
    match scope {
        Scope::User => format!("lockkeeper init {}", harness.kind()),
        Scope::Project => format!("lockkeeper init --project {0}, or --shared", harness.kind()),
        Scope::Shared => format!("lockkeeper init --shared {}", harness.kind()),
    }
}

/// Examines one file that has our command lines.
fn hooks(
    checkup: &mut Checkup,
    folders: &Folders,
    scope: Scope,
    file: &SettingsFile,
    commands: &[(String, String)],
    program: &str,
) {
    let (harness, shown) = (checkup.harness, folders.shown(&file.path));
    let current = [user_command(program), shared_command()];
    let again = again(harness, scope);
    let is_current = commands.iter().all(|(_, command)| current.contains(command));
    let is_whole = commands.len() == hook_count(harness)
        && (scope != Scope::User || SetUp::new(folders, scope, program).is_current(file));
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
        try_line(checkup, &shown, line, &again);
    }
    if !is_current || !is_whole {
        checkup.add(Health::Warns, &format!("{shown} is not as this version writes it"), Some(again));
    }
}

/// Runs a command line as the harness does, with a file that is free and one that is held.
fn try_line(checkup: &mut Checkup, place: &str, line: &str, fix: &str) {
    match proof::prove(checkup.harness, line) {
        Ok(proof) => {
            let (passed, denied) = (proof.passed.as_millis(), proof.denied.as_millis());
            let detail =
                format!("{place}: passes a free file in {passed} ms, denies a held one in {denied} ms");
            checkup.add(Health::Works, &detail, None);
        }
        Err(error) => {
            let detail = format!("{place}: {error}: the hook protects nothing");
            checkup.add(Health::Fails, &detail, Some(fix.to_owned()));
        }
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
