//! Walks through a syntax tree as the shell would, and collects what is written.

use std::collections::BTreeSet;
use std::path::PathBuf;
use std::rc::Rc;

use super::outcome::{Outcome, States};
use super::parse;
use super::state::{Function, State, Values};
use super::syntax::{Assignment, Command, Item, Join, Kind, List, Piece, Redirect, Script, Word};
use super::value::Value;
use crate::place::Place;
use crate::writes::Writes;

/// How many commands are read before the reader gives up. Each turn of a loop counts, and long words count more.
const MAX_STEPS: usize = 5_000;
const TOO_LONG: &str = "the script takes too many steps to follow";
/// This many bytes of text count as one command.
const STEP_BYTES: usize = 1_024;
/// How deep commands may nest: lists, functions, and programs that run another command, such as `bash -c` and `env`.
const MAX_DEPTH: usize = 100;

/// A longer value of a variable is not followed, in bytes.
const MAX_APPENDED: usize = 1 << 16;

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
    /// What is in a file.
    File(PathBuf),
    /// A pipe, or a text that only the shell knows.
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
        self.list(&script.list, States::one(state));
    }

    /// Reads a script within a script: `bash -c`, `eval`.
    pub(super) fn run_text(&mut self, text: &str, mut state: State) -> Outcome {
        self.spend(text.len());
        match parse::parse_at_depth(text, self.depth) {
            Ok(script) => {
                let bodies = std::mem::replace(&mut state.bodies, Rc::new(script.bodies));
                let mut outcome = self.list(&script.list, States::one(state));
                outcome.iter_mut().for_each(|state| state.bodies = Rc::clone(&bodies));
                outcome
            }
            Err(why) => {
                self.writes.not_known(why.to_string());
                Outcome::either(state)
            }
        }
    }

    /// Reads a script that another process runs: the state of this shell stays as it is.
    pub(super) fn run_elsewhere(&mut self, text: &str, state: &State) {
        self.run_text(text, state.clone());
    }

    /// Counts the work on a text of this length.
    pub(super) fn spend(&mut self, bytes: usize) {
        self.steps += bytes / STEP_BYTES;
    }

    /// Reads commands one after another, in each state in which the shell may come to them.
    pub(super) fn list(&mut self, list: &List, states: States) -> Outcome {
        self.deeper(states, |reader, states| reader.items(list, states))
    }

    /// Reads something one level deeper.
    fn deeper(&mut self, states: States, read: impl FnOnce(&mut Self, States) -> Outcome) -> Outcome {
        if !self.may_go_deeper() {
            return Outcome::either_of(states);
        }
        self.depth += 1;
        let outcome = read(self, states);
        self.depth -= 1;
        outcome
    }

    fn may_go_deeper(&mut self) -> bool {
        if self.depth >= MAX_DEPTH {
            self.writes.not_known("the script nests too deeply to follow");
        } else if self.steps > MAX_STEPS {
            self.writes.not_known(TOO_LONG);
        }
        self.depth < MAX_DEPTH && self.steps <= MAX_STEPS
    }

    /// Reads a command that a program runs, such as that of `env`, as one more step.
    pub(super) fn inner(&mut self, words: &[Value], state: State, input: &Input) -> Outcome {
        let Some((program, arguments)) = words.split_first() else { return Outcome::ok(state) };
        self.steps += 1;
        if !self.may_go_deeper() {
            return Outcome::either(state);
        }
        self.depth += 1;
        let outcome = self.program(program, arguments, state, input);
        self.depth -= 1;
        outcome
    }

    fn items(&mut self, list: &List, states: States) -> Outcome {
        let mut outcome = Outcome { ok: states, ..Outcome::default() };
        for item in list {
            let Outcome { ok, failed, left } = outcome;
            let none = States::default;
            let (begin, ok, failed) = match item.join {
                Join::Next => (ok.and(failed), none(), none()),
                Join::And => (ok, none(), failed),
                Join::Or => (failed, ok, none()),
            };
            outcome = Outcome { ok, failed, left };
            self.steps += begin.iter().count();
            if self.steps > MAX_STEPS {
                self.writes.not_known(TOO_LONG);
                return outcome.and(Outcome::either_of(begin));
            }
            let in_background = self.in_background;
            self.in_background |= item.background;
            outcome = self.pipeline(item, begin).and(outcome);
            self.in_background = in_background;
        }
        outcome
    }

    fn pipeline(&mut self, item: &Item, states: States) -> Outcome {
        if let ([command], false) = (item.pipeline.as_slice(), item.background) {
            let outcome = self.command(command, states, &Input::None);
            let Outcome { ok, failed, left } = outcome;
            return if item.negated {
                Outcome { ok: failed, failed: ok, left }
            } else {
                Outcome { ok, failed, left }
            };
        }
        // Each command is a process of its own.
        for state in states.iter() {
            let mut input = Input::None;
            for (at, command) in item.pipeline.iter().enumerate() {
                self.command(command, States::one(state.clone()), &input);
                if at + 1 < item.pipeline.len() {
                    input = self.printed(command, state, &input);
                }
            }
        }
        if item.background {
            Outcome { ok: states, ..Outcome::default() }
        } else {
            Outcome::either_of(states)
        }
    }

    fn command(&mut self, command: &Command, mut states: States, input: &Input) -> Outcome {
        if let Kind::Simple { assignments, words } = &command.kind {
            let mut outcome = Outcome::default();
            for state in states.iter() {
                let input = self.redirects(&command.redirects, state, input);
                let mut state = state.clone();
                Self::forget_changed(command.redirects.iter().filter_map(Redirect::word), &mut state);
                outcome = outcome.and(self.simple(assignments, words, state, &input));
            }
            return outcome;
        }
        for state in states.iter() {
            self.redirects(&command.redirects, state, input);
        }
        match &command.kind {
            Kind::Subshell(list) => {
                self.list(list, states.clone());
                Outcome::either_of(states)
            }
            Kind::Group(list) => self.list(list, states),
            Kind::If { branches, otherwise } => self.branches(branches, otherwise, states),
            Kind::Loop { condition, body, until } => self.repeat(condition, body, *until, states),
            Kind::Case { words, lists, has_default } => {
                self.evaluate_all(words, &mut states);
                let mut outcome = Outcome::default();
                for list in lists {
                    outcome = outcome.and(self.list(list, states.clone()));
                }
                let none = if *has_default { States::default() } else { states };
                outcome.and(Outcome { ok: none, ..Outcome::default() })
            }
            Kind::For { name, words, body } => {
                let mut outcome = Outcome::default();
                for state in states.iter() {
                    outcome = outcome.and(self.for_loop(name, words.as_deref(), body, state));
                }
                outcome
            }
            Kind::Function { name, body } => {
                for state in states.iter_mut() {
                    let function =
                        Function { body: Rc::new(body.as_ref().clone()), bodies: Rc::clone(&state.bodies) };
                    state.functions.insert(name.clone(), function);
                }
                Outcome { ok: states, ..Outcome::default() }
            }
            Kind::Test(words) => {
                self.evaluate_all(words, &mut states);
                Outcome::either_of(states)
            }
            Kind::Simple { .. } => Outcome::either_of(states),
        }
    }

    fn evaluate_all(&mut self, words: &[Word], states: &mut States) {
        for state in states.iter_mut() {
            words.iter().for_each(|word| self.evaluate(word, state));
            Self::forget_changed(words, state);
        }
    }

    fn branches(&mut self, branches: &[(List, List)], otherwise: &List, states: States) -> Outcome {
        let (mut outcome, mut rest) = (Outcome::default(), states);
        for (condition, body) in branches {
            let Outcome { ok, failed, left } = self.list(condition, rest);
            outcome = outcome.and(self.list(body, ok)).and(Outcome { left, ..Outcome::default() });
            rest = failed;
        }
        outcome.and(self.list(otherwise, rest))
    }

    /// A loop whose rounds nobody can count: read once from its beginning, and once more from what a round leaves.
    fn repeat(&mut self, condition: &List, body: &List, until: bool, states: States) -> Outcome {
        let (mut begin, mut after) = (states, States::default());
        for _ in 0..2 {
            let Outcome { ok, failed, left } = self.list(condition, begin.clone());
            let (goes_on, ends) = if until { (failed, ok) } else { (ok, failed) };
            let round = self.list(body, goes_on);
            after = after.and(ends).and(left).and(round.left.clone());
            let next = begin.before_any_round(&round.left.clone().and(round.next()));
            if next == begin {
                break;
            }
            begin = next;
        }
        Outcome::either_of(after)
    }

    fn for_loop(&mut self, name: &str, words: Option<&[Word]>, body: &List, state: &State) -> Outcome {
        let values: Vec<Value> = match words {
            Some(words) => words.iter().flat_map(|word| self.fields(word, state)).collect(),
            None => state.arguments.clone().unwrap_or_else(|| vec![Value::Unknown]),
        };
        let (mut now, mut after) = (States::one(state.clone()), States::default());
        for value in values {
            // Nobody knows whether there is one.
            if value == Value::Unknown {
                after = after.and(now.clone());
            }
            now.iter_mut().for_each(|state| state.set(name, vec![value.clone()]));
            let round = self.list(body, now);
            after = after.and(round.left.clone());
            now = round.left.clone().and(round.next());
        }
        Outcome::either_of(now.and(after))
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
                    input = match self.values(word, state).as_slice() {
                        [file] => self.input_of(file, &Input::Unknown, state),
                        _ => Input::Unknown,
                    };
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

    /// The fields of a call. Before the program of `env` and `sudo` stand assignments, also of values that are not known.
    fn fields_of_call(&mut self, words: &[Word], state: &State) -> Vec<Value> {
        let is_env = |word: &Word| matches!(word.plain(), Some("env" | "sudo" | "doas"));
        let mut before_program = words.first().is_some_and(is_env);
        let mut fields = Vec::new();
        for (at, word) in words.iter().enumerate() {
            let found = self.fields(word, state);
            let name = word.assigned_name().filter(|_| before_program);
            match (name, found.as_slice()) {
                (Some(name), [Value::Unknown]) => fields.push(Value::Text(format!("{name}="))),
                (name, found) => {
                    let is_option =
                        found.iter().all(|field| field.text().is_some_and(|text| text.starts_with('-')));
                    before_program &= at == 0 || name.is_some() || is_option;
                    fields.extend_from_slice(found);
                }
            }
        }
        fields
    }

    fn simple(
        &mut self,
        assignments: &[Assignment],
        words: &[Word],
        mut state: State,
        input: &Input,
    ) -> Outcome {
        let fields = self.fields_of_call(words, &state);
        Self::forget_changed(words, &mut state);
        let mut saved = Vec::new();
        for assignment in assignments {
            let elements: Vec<Value> =
                assignment.elements.iter().flat_map(|word| self.fields(word, &state)).collect();
            let name = assignment.name.as_str();
            let values = match &assignment.value {
                Some(word) if !assignment.append => self.values(word, &state),
                Some(word) => appended(&state.values(name), &self.values(word, &state)),
                None => vec![Value::Unknown],
            };
            let before = state.variables.get(name).cloned();
            if assignment.is_array && !assignment.append {
                state.set_array(name, &elements);
            } else {
                state.set(name, values);
            }
            // `declare -a NAME=(…)` holds from now on.
            if !assignment.is_array {
                saved.push((name, before));
            }
            Self::forget_changed(&assignment.value, &mut state);
        }
        let Some((program, arguments)) = fields.split_first() else {
            // A substitution may fail.
            let mut values = assignments.iter().flat_map(|assignment| &assignment.value).chain(words);
            let is_sure = values.all(|word| !word.0.iter().any(Piece::runs));
            return if is_sure { Outcome::ok(state) } else { Outcome::either(state) };
        };
        let mut outcome = self.program(program, arguments, state, input);
        // Before a program they hold for the program only.
        outcome.iter_mut().for_each(|state| state.restore(&saved));
        outcome
    }

    /// Calls a function of the script.
    pub(super) fn function(
        &mut self,
        function: &Function,
        arguments: &[Value],
        mut state: State,
        input: &Input,
    ) -> Outcome {
        let saved = state.arguments.replace(arguments.to_vec());
        let bodies = std::mem::replace(&mut state.bodies, Rc::clone(&function.bodies));
        let read = |reader: &mut Self, states| reader.command(&function.body, states, input);
        let mut outcome = self.deeper(States::one(state), read);
        outcome.iter_mut().for_each(|state| {
            state.bodies = Rc::clone(&bodies);
            state.arguments.clone_from(&saved);
        });
        // `return` leaves only the function.
        let left = std::mem::take(&mut outcome.left);
        outcome.and(Outcome::either_of(left))
    }
}

fn is_number(text: &str) -> bool {
    !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit())
}

/// Values of a variable with other values behind them.
fn appended(values: &[Value], more: &[Value]) -> Values {
    let mut found = Values::new();
    for value in values {
        for end in more {
            found.push(match (value, end) {
                // Numbers are added up if the variable was declared so.
                (Value::Text(text), Value::Text(end))
                    if text.len() + end.len() <= MAX_APPENDED && !(is_number(text) && is_number(end)) =>
                {
                    Value::Text(format!("{text}{end}"))
                }
                _ => Value::Unknown,
            });
        }
    }
    found
}
