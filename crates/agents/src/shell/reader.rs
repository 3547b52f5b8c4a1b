//! Walks through a syntax tree as the shell would, and collects what is written.

use std::collections::BTreeSet;
use std::path::PathBuf;
use std::rc::Rc;

use super::parse;
use super::state::{Function, State};
use super::syntax::{Assignment, Command, Join, Kind, List, Piece, Redirect, Script, Word};
use super::value::Value;
use crate::place::Place;
use crate::writes::Writes;

/// How many commands are read before the reader gives up. Each turn of a loop counts, and long words count more.
const MAX_STEPS: usize = 5_000;
/// This many bytes of text count as one command.
const STEP_BYTES: usize = 1_024;
/// How deep lists may nest, also through functions, `eval` and `bash -c`.
const MAX_DEPTH: usize = 100;

pub(super) struct Reader<'a> {
    pub(super) place: Place<'a>,
    pub(super) writes: Writes,
    /// Folders that the script itself makes.
    pub(super) made: BTreeSet<PathBuf>,
    /// Links that the script itself makes, and where they lead.
    pub(super) links: Vec<(PathBuf, PathBuf)>,
    steps: usize,
    depth: usize,
    /// The shell does not wait for what is read now.
    pub(super) in_background: bool,
    /// What is read now runs under `lockkeeper exec`, which holds its names by itself.
    pub(super) is_coordinated: bool,
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
    /// A here-document, a here-string, or what the command before prints.
    Text(String),
    /// Names of files, one in each line.
    Names(Vec<Value>),
    /// A file, a pipe, or a text that only the shell knows.
    Unknown,
}

impl<'a> Reader<'a> {
    pub(super) fn new(place: Place<'a>) -> Self {
        let writes = Writes::default();
        let (made, links) = (BTreeSet::new(), Vec::new());
        Self { place, writes, made, links, steps: 0, depth: 0, in_background: false, is_coordinated: false }
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
            let in_background = self.in_background;
            self.in_background |= item.background;
            let mut run = |state: &mut State| match item.pipeline.as_slice() {
                [command] if !item.background => self.command(command, state, &Input::None),
                commands => {
                    let mut input = Input::None;
                    for (at, command) in commands.iter().enumerate() {
                        self.command(command, &mut state.clone(), &input);
                        if at + 1 < commands.len() {
                            input = self.printed(command, state, &input);
                        }
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
            self.in_background = in_background;
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
    pub(super) fn redirects(&mut self, redirects: &[Redirect], state: &State, input: &Input) -> Input {
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
                Redirect::HereString(word) => input = self.input_text(word, state),
                Redirect::HereDocument(body) => {
                    let bodies = Rc::clone(&state.bodies);
                    let Some(word) = bodies.get(*body) else { continue };
                    input = self.input_text(word, state);
                }
            }
        }
        input
    }

    fn simple(&mut self, assignments: &[Assignment], words: &[Word], state: &mut State, input: &Input) {
        let fields: Vec<Value> = words.iter().flat_map(|word| self.fields(word, state)).collect();
        Self::forget_changed(words, state);
        let mut saved = Vec::new();
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
            let before = state.variables.get(&assignment.name).cloned();
            state.set(&assignment.name, values);
            saved.push((&assignment.name, before));
            Self::forget_changed(&assignment.value, state);
        }
        if let Some((program, arguments)) = fields.split_first() {
            self.program(program, arguments, state, input);
            // Before a program they hold for the program only.
            for (name, before) in saved.into_iter().rev() {
                match before {
                    Some(values) => state.set(name, values),
                    None => drop(state.variables.remove(name)),
                }
            }
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
}
