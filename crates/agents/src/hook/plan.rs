//! Plan of a tool call: the files that it writes, the names that it needs, and what cannot be known before.

use std::collections::BTreeMap;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::path::{Path, PathBuf};

use lockkeeper_core::id::Name;
use lockkeeper_engine::location::Location;
use lockkeeper_platform::wall_clock::WallTime;

use super::HookCall;
use crate::announced::is_our_tool;
use crate::open_calls::{OpenCall, OpenName};
use crate::place::{Entry, Place};
use crate::repository::{Wanted, locate, takes_part, wanted, wanted_name, wanted_tree};
use crate::tool::{Action, ToolCall};
use crate::writes::{Formats, GitUse, Staged, Writes};
use crate::{HookInput, writes};

/// A longer file is not read to find out what a command writes, in bytes.
const MAX_TEXT: u64 = 1 << 20;

/// What a tool call would do in repositories that take part.
#[derive(Default)]
pub(super) struct Plan {
    /// Files, folders and names. All are claimed or none.
    pub(super) wanted: Vec<Wanted>,
    /// Git commands that take files into the index or a commit, each with its repository.
    pub(super) staging: Vec<(Location, Staged)>,
    /// Folders in which a formatter without paths runs.
    pub(super) formats: Vec<(Location, Formats)>,
    /// The open call, unless the tool only reads.
    pub(super) open: Option<OpenCall>,
}

impl Plan {
    /// Works out what a call would do.
    pub(super) fn new(call: &HookCall<'_>, input: &HookInput, cwd: &Path) -> Self {
        let Some(tool) = &input.tool else { return Self::default() };
        let entry = |path: &Path| {
            let meta = std::fs::metadata(path).ok()?;
            Some(if meta.is_dir() { Entry::Folder } else { Entry::File })
        };
        let names = |folder: &Path| {
            let entries = std::fs::read_dir(folder).into_iter().flatten().flatten();
            entries.filter_map(|entry| entry.file_name().into_string().ok()).collect()
        };
        let text = |path: &Path| {
            let meta = std::fs::metadata(path).ok()?;
            let is_small = meta.is_file() && meta.len() <= MAX_TEXT;
            is_small.then(|| std::fs::read_to_string(path).ok()).flatten()
        };
        let place = Place { cwd, home: call.home.as_deref(), entry: &entry, names: &names, text: &text };
        let mut found = writes(tool, &place);
        if is_ours(tool) {
            found.unknown.clear();
        }
        let named = call.state.as_deref();
        let mut plan = Self::default();
        plan.wanted.extend(found.paths.iter().filter_map(|target| wanted(target, named)));
        let trees = found.git.iter().filter(|git| git.whole_tree);
        plan.wanted.extend(trees.filter_map(|git| wanted_tree(&git.folder, named)));
        let folder = match &tool.action {
            Action::Runs { folder, .. } => folder.as_deref().and_then(|folder| place.resolve(folder)),
            _ => None,
        };
        let folder = folder.unwrap_or_else(|| cwd.to_owned());
        let mut places = Places { named, known: BTreeMap::new() };
        let lasting = plan.add_names(call, tool, &found, &folder, &mut places);
        for used in found.git.iter().filter(|used| used.staged != Staged::Nothing) {
            plan.staging.extend(places.at(&used.folder).map(|location| (location, used.staged.clone())));
        }
        for formats in &found.formats {
            plan.formats.extend(places.at(&formats.folder).map(|location| (location, formats.clone())));
        }
        plan.open_call(input, tool, &found, places.at(&folder), &lasting);
        plan
    }

    /// Adds the names of git's parts and of commands. Returns those whose commands run in the background.
    fn add_names(
        &mut self,
        call: &HookCall<'_>,
        tool: &ToolCall,
        found: &Writes,
        folder: &Path,
        places: &mut Places<'_>,
    ) -> Vec<Wanted> {
        let in_background = matches!(tool.action, Action::Runs { background: true, .. });
        // `lockkeeper commit` acquires `git/index` itself. If the hook held that name, the command would wait for its own caller.
        let commits = found.commands.iter().any(|command| command.text.starts_with("lockkeeper commit"));
        let git = |used: &GitUse| used.parts.iter().map(|part| part.name()).collect::<Vec<_>>();
        for used in found.git.iter().filter(|_| !commits) {
            let Some(location) = places.at(&used.folder) else { continue };
            for name in git(used) {
                let name: Name = name.parse().expect("the names of git's parts are names");
                self.add_name(wanted_name(&name, "git", &location));
            }
        }
        let mut lasting = Vec::new();
        let mut settings: BTreeMap<PathBuf, crate::Settings> = BTreeMap::new();
        for command in &found.commands {
            let Some(location) = places.at(command.folder.as_deref().unwrap_or(folder)) else { continue };
            let settings =
                settings.entry(location.root.clone()).or_insert_with(|| (call.settings)(&location.root));
            for named in settings.commands.iter().filter(|named| named.matches(&command.text)) {
                let wanted = wanted_name(&named.name, &named.pattern, &location);
                if in_background || command.background {
                    lasting.extend(wanted.clone());
                }
                self.add_name(wanted);
            }
        }
        lasting
    }

    fn add_name(&mut self, wanted: Option<Wanted>) {
        let Some(wanted) = wanted else { return };
        let is_same = |known: &Wanted| {
            known.resources == wanted.resources && known.location.state == wanted.location.state
        };
        if !self.wanted.iter().any(is_same) {
            self.wanted.push(wanted);
        }
    }

    fn open_call(
        &mut self,
        input: &HookInput,
        tool: &ToolCall,
        found: &Writes,
        location: Option<Location>,
        lasting: &[Wanted],
    ) {
        let unknown = found.unknown.first().cloned();
        // Files of a folder, of a whole tree or of a formatter are only known afterwards.
        let sweeps = self.wanted.iter().any(|wanted| wanted.only_checked) || !found.formats.is_empty();
        let unknown = unknown.or_else(|| sweeps.then(|| "a command that changes many files".to_owned()));
        let names = self.wanted.iter().filter(|wanted| wanted.name().is_some());
        let lasts = |wanted: &Wanted| {
            lasting
                .iter()
                .any(|other| other.shown == wanted.shown && other.location.state == wanted.location.state)
        };
        let names: Vec<OpenName> = names
            .map(|wanted| OpenName {
                name: wanted.shown.clone(),
                state: wanted.location.state.clone(),
                lease: None,
                lasts: lasts(wanted),
            })
            .collect();
        let files = self.wanted.iter().filter(|wanted| wanted.name().is_none() && !wanted.only_checked);
        let paths: Vec<PathBuf> = files.map(|wanted| wanted.path.clone()).collect();
        let unknown = unknown.filter(|_| location.is_some());
        if unknown.is_none() && names.is_empty() && paths.is_empty() {
            return;
        }
        self.open = Some(OpenCall {
            id: id_of(input, tool),
            began: WallTime::of_files().as_micros(),
            unknown,
            root: location.map(|location| location.root).unwrap_or_default(),
            paths,
            names,
            ..OpenCall::default()
        });
    }
}

/// The id of a call: that of the harness, else one made from the tool and its arguments, which are the same afterwards.
pub(super) fn id_of(input: &HookInput, tool: &ToolCall) -> String {
    input.call.clone().unwrap_or_else(|| {
        let mut hasher = DefaultHasher::new();
        format!("{:?}", tool.action).hash(&mut hasher);
        format!("{}-{:016x}", tool.name, hasher.finish())
    })
}

fn is_ours(tool: &ToolCall) -> bool {
    match &tool.action {
        Action::Mcp { server, .. } => is_our_tool(server),
        _ => is_our_tool(&tool.name),
    }
}

/// Repositories of folders, each looked up once.
struct Places<'a> {
    named: Option<&'a Path>,
    known: BTreeMap<PathBuf, Option<Location>>,
}

impl Places<'_> {
    /// The repository of a folder, if it takes part.
    fn at(&mut self, folder: &Path) -> Option<Location> {
        let named = self.named;
        let find = || locate(folder, named).filter(takes_part);
        self.known.entry(folder.to_owned()).or_insert_with(find).clone()
    }
}
