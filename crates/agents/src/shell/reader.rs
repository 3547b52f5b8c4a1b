//! Walks through a syntax tree as the shell would, and collects what is written.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::rc::Rc;

use super::parse;
use super::state::{Function, State};
use super::syntax::{Assignment, Command, Join, Kind, List, Piece, Redirect, Script, Word};
use super::value::{Value, escaped};
use crate::place::{Entry, Place, join, lexical};
use crate::writes::{Target, Writes};

/// Commands that are read before the reader gives up. Loops count once for each turn, and long words count more.
const MAX_STEPS: usize = 5_000;
/// So many bytes of text count as one command.
const STEP_BYTES: usize = 1_024;
/// How deep lists may nest, also through functions, `eval` and `bash -c`.
const MAX_DEPTH: usize = 100;

pub(super) struct Reader<'a> {
    pub(super) place: Place<'a>,
    pub(super) writes: Writes,
    /// Folders that the script itself makes.
    made: BTreeSet<PathBuf>,
    steps: usize,
    depth: usize,
}

/// How much of an entry is written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Extent {
    /// The file.
    File,
    /// The entry and all in it.
    Below,
}

/// What a command reads from its standard input, as far as the reader knows it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Input {
    /// Nothing that the script says.
    None,
    /// A here-document or here-string.
    Text(String),
    /// A file, a pipe, or a text that only the shell knows.
    Unknown,
}

impl<'a> Reader<'a> {
    pub(super) fn new(place: Place<'a>) -> Self {
        let writes = Writes::default();
        Self { place, writes, made: BTreeSet::new(), steps: 0, depth: 0 }
    }

    pub(super) fn run_script(&mut self, script: Script) {
        let mut state = State::new(self.place.cwd, self.place.home);
        state.bodies = Rc::new(script.bodies);
        self.list(&script.list, &mut state);
    }

    /// Reads a script within a script: `bash -c`, `eval`.
    pub(super) fn run_text(&mut self, text: &str, state: &mut State) {
        self.spend(text.len());
        match parse::parse_at_depth(text, self.depth) {
            Ok(script) => {
                let bodies = std::mem::replace(&mut state.bodies, Rc::new(script.bodies));
                self.list(&script.list, state);
                state.bodies = bodies;
            }
            Err(why) => self.writes.not_known(why.to_string()),
        }
    }

    /// Counts the work on a text of this length.
    pub(super) fn spend(&mut self, bytes: usize) {
        self.steps += bytes / STEP_BYTES;
    }

    pub(super) fn list(&mut self, list: &List, state: &mut State) {
        if self.depth >= MAX_DEPTH {
            self.writes.not_known("the script nests too deeply to follow");
            return;
        }
        self.depth += 1;
        self.items(list, state);
        self.depth -= 1;
    }

    fn items(&mut self, list: &List, state: &mut State) {
        for item in list {
            self.steps += 1;
            if self.steps > MAX_STEPS {
                self.writes.not_known("the script takes too many steps to follow");
                return;
            }
            let mut run = |state: &mut State| match item.pipeline.as_slice() {
                [command] if !item.background => self.command(command, state, &Input::None),
                commands => {
                    for (at, command) in commands.iter().enumerate() {
                        let input = if at == 0 { Input::None } else { Input::Unknown };
                        self.command(command, &mut state.clone(), &input);
                    }
                }
            };
            if item.join == Join::Or {
                let mut other = state.clone();
                run(&mut other);
                state.merge(other);
            } else {
                run(state);
            }
        }
    }

    fn command(&mut self, command: &Command, state: &mut State, input: &Input) {
        let input = self.redirects(&command.redirects, state, input);
        match &command.kind {
            Kind::Simple { assignments, words } => self.simple(assignments, words, state, &input),
            Kind::Subshell(list) => self.list(list, &mut state.clone()),
            Kind::Group(list) => self.list(list, state),
            Kind::Branches { words, lists, repeats } => {
                words.iter().for_each(|word| self.evaluate(word, state));
                Self::forget_changed(words, state);
                for list in lists.iter().chain(lists.iter().filter(|_| *repeats)) {
                    let mut other = state.clone();
                    self.list(list, &mut other);
                    state.merge(other);
                }
            }
            Kind::For { name, words, body } => self.for_loop(name, words.as_deref(), body, state),
            Kind::Function { name, body } => {
                let function =
                    Function { body: Rc::new(body.as_ref().clone()), bodies: Rc::clone(&state.bodies) };
                state.functions.insert(name.clone(), function);
            }
            Kind::Test(words) => {
                words.iter().for_each(|word| self.evaluate(word, state));
                Self::forget_changed(words, state);
            }
        }
    }

    fn for_loop(&mut self, name: &str, words: Option<&[Word]>, body: &List, state: &mut State) {
        let values: Vec<Value> = match words {
            Some(words) => words.iter().flat_map(|word| self.fields(word, state)).collect(),
            None => vec![Value::Unknown],
        };
        for value in values {
            state.set(name, vec![value]);
            self.list(body, state);
        }
    }

    /// Reads redirections; gives back what the command then has as its input.
    fn redirects(&mut self, redirects: &[Redirect], state: &State, input: &Input) -> Input {
        let mut input = input.clone();
        for redirect in redirects {
            match redirect {
                Redirect::Write(word) if matches!(word.0.as_slice(), [Piece::Process(_)]) => {
                    self.evaluate(word, state);
                }
                Redirect::Write(word) => {
                    for value in self.values(word, state) {
                        self.write(&value, state, Extent::File);
                    }
                }
                Redirect::Copy(word) => {
                    let is_number =
                        |text: &str| text.trim_end_matches('-').bytes().all(|byte| byte.is_ascii_digit());
                    for value in self.values(word, state) {
                        if !value.text().is_some_and(is_number) {
                            self.write(&value, state, Extent::File);
                        }
                    }
                }
                Redirect::Read(word) => {
                    self.evaluate(word, state);
                    input = Input::Unknown;
                }
                Redirect::HereDocument(body) => {
                    let bodies = Rc::clone(&state.bodies);
                    let Some(word) = bodies.get(*body) else { continue };
                    self.evaluate(word, state);
                    input = word.literal().map_or(Input::Unknown, Input::Text);
                    if let Input::Text(text) = &input {
                        self.spend(text.len());
                    }
                }
            }
        }
        input
    }

    fn simple(&mut self, assignments: &[Assignment], words: &[Word], state: &mut State, input: &Input) {
        let fields: Vec<Value> = words.iter().flat_map(|word| self.fields(word, state)).collect();
        Self::forget_changed(words, state);
        for assignment in assignments {
            assignment.elements.iter().for_each(|word| self.evaluate(word, state));
            let values = match &assignment.value {
                Some(word) if !assignment.append => self.values(word, state),
                Some(word) => {
                    self.evaluate(word, state);
                    vec![Value::Unknown]
                }
                None => vec![Value::Unknown],
            };
            // Before a program they hold for the program only.
            if fields.is_empty() {
                state.set(&assignment.name, values);
            }
            Self::forget_changed(&assignment.value, state);
        }
        if let Some((program, arguments)) = fields.split_first() {
            self.program(program, arguments, state, input);
        }
    }

    /// Calls a function of the script. False: there is none of this name.
    pub(super) fn function(
        &mut self,
        name: &str,
        arguments: &[Value],
        state: &mut State,
        input: &Input,
    ) -> bool {
        let Some(function) = state.functions.get(name).cloned() else { return false };
        let saved = state.variables.clone();
        let bodies = std::mem::replace(&mut state.bodies, function.bodies);
        for number in 1..=9 {
            let value = arguments.get(number - 1).cloned().unwrap_or(Value::Text(String::new()));
            state.set(&number.to_string(), vec![value]);
        }
        self.command(&function.body, state, input);
        state.bodies = bodies;
        for number in 1..=9 {
            let name = number.to_string();
            match saved.get(&name) {
                Some(values) => state.set(&name, values.clone()),
                None => drop(state.variables.remove(&name)),
            }
        }
        true
    }

    /// Notes a write.
    pub(super) fn write(&mut self, value: &Value, state: &State, extent: Extent) {
        match self.target(value, state, extent) {
            Ok(Some(target)) => self.writes.add(target),
            Ok(None) => {}
            Err(why) => self.writes.not_known(why),
        }
    }

    /// The target that a value means. `None`: a device, which nobody owns.
    pub(super) fn target(
        &self,
        value: &Value,
        state: &State,
        extent: Extent,
    ) -> Result<Option<Target>, &'static str> {
        let folder = |text: &str| match &state.cwd {
            Some(cwd) => Ok(cwd.as_path()),
            None if text.starts_with('/') => Ok(Path::new("/")),
            None => Err("a path in a folder that is not known before"),
        };
        match value {
            Value::Text(text) if text.is_empty() || text.contains('\0') => Ok(None),
            Value::Text(text) => {
                let path = join(folder(text)?, text);
                if path.starts_with("/dev") || path.starts_with("/proc") {
                    return Ok(None);
                }
                Ok(Some(if extent == Extent::File { Target::File(path) } else { Target::Below(path) }))
            }
            Value::Pattern(pattern) => {
                let cwd = folder(pattern)?.to_str().ok_or("a folder whose name is not UTF-8")?;
                let below = if extent == Extent::Below && !pattern.ends_with('/') { "/" } else { "" };
                let whole = match pattern.starts_with('/') {
                    true => format!("{pattern}{below}"),
                    false => format!("{}/{pattern}{below}", escaped(cwd.trim_end_matches('/'))),
                };
                without_parents(&whole).map(|pattern| Some(Target::Pattern(pattern)))
            }
            Value::Unknown => Err("a path that only the shell knows"),
        }
    }

    /// Changes the working folder, as `cd` does: by the text alone.
    pub(super) fn change_folder(&self, value: Option<&Value>, state: &mut State) {
        let cwd = match value {
            None => self.place.home.map(Path::to_path_buf),
            Some(Value::Text(text)) if text.starts_with('/') => Some(lexical(Path::new(text))),
            Some(Value::Text(text)) if text != "-" => {
                state.cwd.as_deref().map(|cwd| lexical(&join(cwd, text)))
            }
            Some(_) => None,
        };
        let old = std::mem::replace(&mut state.cwd, cwd);
        let old = old.as_deref().and_then(Path::to_str).map(str::to_owned);
        state.set("OLDPWD", vec![old.map_or(Value::Unknown, Value::Text)]);
    }

    /// Whether a path is a folder, now or by what the script did before.
    pub(super) fn is_folder(&self, path: &Path) -> bool {
        let path = lexical(path);
        self.made.contains(&path) || (self.place.entry)(&path) == Some(Entry::Folder)
    }

    pub(super) fn exists(&self, path: &Path) -> bool {
        (self.place.entry)(&lexical(path)).is_some()
    }

    pub(super) fn make_folder(&mut self, value: &Value, state: &State) {
        if let (Some(text), Some(cwd)) = (value.text(), &state.cwd) {
            let path = lexical(&join(cwd, text));
            self.made.extend(path.ancestors().map(Path::to_path_buf));
        }
    }
}

/// Takes `.` and `..` out of a pattern. A `..` after a wildcard cannot be worked out.
fn without_parents(pattern: &str) -> Result<String, &'static str> {
    let mut parts: Vec<&str> = Vec::new();
    for part in pattern.trim_start_matches('/').split('/') {
        match part {
            "." => {}
            ".." if parts.last().is_some_and(|last| last.contains(['*', '?', '['])) => {
                return Err("a pattern with .. after a wildcard");
            }
            ".." => drop(parts.pop()),
            part => parts.push(part),
        }
    }
    Ok(format!("/{}", parts.join("/")))
}
