//! Expansion of words: variables are replaced, substitutions are read as commands of their own.

use std::path::Path;

use super::outcome::States;
use super::parameter;
use super::reader::{Input, Reader};
use super::state::{State, Values};
use super::syntax::{Command, Form, Item, Kind, Piece, Redirect, Word};
use super::value::{Mark, Marked, Value};
use crate::place::join;

/// Combinations of the values of variables in one word; more are not followed.
const MAX_COMBINATIONS: usize = 16;

impl Reader<'_> {
    /// The fields of a word. Also reads its substitutions.
    pub(super) fn fields(&mut self, word: &Word, state: &State) -> Vec<Value> {
        // `"$@"` is one field for each argument, as it is.
        if let [Piece::Variable { name, quoted: true }] = word.without_empty().as_slice()
            && name == "@"
        {
            return state.arguments.clone().unwrap_or_else(|| vec![Value::Unknown]);
        }
        if let [Piece::Variable { name, quoted }] = word.without_empty().as_slice()
            && let Some(array) = name.strip_suffix("[@]")
        {
            return state.array(array, *quoted);
        }
        let words = self.combinations(word, state);
        self.spend(words.iter().map(|word| word.characters.len()).sum());
        let home = self.place.home;
        let only = |values: Values| match values.as_slice() {
            [Value::Text(text)] => Some(text.clone()),
            _ => None,
        };
        let folder = |name: &str| match name {
            "" => home.and_then(Path::to_str).map(str::to_owned),
            "+" => only(state.values("PWD")),
            "-" => only(state.values("OLDPWD")),
            // The home of another user.
            _ => None,
        };
        words.into_iter().flat_map(|marked| marked.fields(&folder)).collect()
    }

    /// The values of a word that is one field: an assignment, a redirection.
    pub(super) fn values(&mut self, word: &Word, state: &State) -> Vec<Value> {
        let fields = self.fields(word, state);
        if fields.is_empty() { vec![Value::Text(String::new())] } else { fields }
    }

    /// The text of a here-document or here-string.
    pub(super) fn input_text(&mut self, word: &Word, state: &State) -> Input {
        match self.combinations(word, state).as_slice() {
            [only] if !only.unknown => {
                let text: String = only.characters.iter().map(|(character, _)| character).collect();
                self.spend(text.len());
                Input::Text(text)
            }
            _ => Input::Unknown,
        }
    }

    /// What a command prints, as far as that is plain: `echo`, `printf '%s\n'`, `cat` of its input, `ls` of files, `find`.
    pub(super) fn printed(&mut self, command: &Command, state: &State, input: &Input) -> Input {
        let Kind::Simple { words, .. } = &command.kind else { return Input::Unknown };
        let prints = |word: &Word| matches!(word.plain(), Some("echo" | "printf" | "cat" | "ls" | "find"));
        let is_input =
            |redirect: &Redirect| matches!(redirect, Redirect::HereDocument(_) | Redirect::HereString(_));
        if !words.first().is_some_and(prints)
            || words.iter().flat_map(|word| &word.0).any(Piece::runs)
            || !command.redirects.iter().all(is_input)
        {
            return Input::Unknown;
        }
        let fields: Vec<Value> = words.iter().flat_map(|word| self.fields(word, state)).collect();
        let Some((Value::Text(program), arguments)) = fields.split_first() else { return Input::Unknown };
        let texts: Option<Vec<&str>> = arguments.iter().map(Value::text).collect();
        match (program.as_str(), texts.as_deref()) {
            ("echo", Some(["-n", texts @ ..] | texts)) if texts.iter().all(|text| !text.starts_with('-')) => {
                Input::Text(format!("{}\n", texts.join(" ")))
            }
            ("printf", Some([r"%s\n", texts @ ..])) => Input::Text(format!("{}\n", texts.join("\n"))),
            ("printf", Some(["%s" | r"%s\0", text] | [text])) if !text.contains(['%', '\\']) => {
                Input::Text((*text).to_owned())
            }
            ("cat", Some([] | ["-"])) => self.redirects(&command.redirects, state, input),
            ("cat", Some([file])) if !file.starts_with('-') => {
                self.input_of(&Value::Text((*file).to_owned()), &Input::Unknown, state)
            }
            ("ls", _) => match self.listed(arguments, state) {
                Some(names) => Input::Names(names),
                None => Input::Unknown,
            },
            ("find", _) => super::programs::found_by(arguments).map_or(Input::Unknown, Input::Names),
            _ => Input::Unknown,
        }
    }

    /// The files that `ls` names. `None`: it lists folders, or more than names.
    fn listed(&self, arguments: &[Value], state: &State) -> Option<Vec<Value>> {
        let is_option = |value: &&Value| value.text().is_some_and(|text| text.starts_with('-'));
        let (options, files): (Vec<_>, Vec<_>) = arguments.iter().partition(is_option);
        let is_file = |value: &Value| match value {
            Value::Text(text) => state.cwd.as_deref().is_some_and(|cwd| !self.is_folder(&join(cwd, text))),
            Value::Pattern(_) => true,
            Value::Unknown => false,
        };
        let plain = options.iter().all(|option| matches!(option.text(), Some("-1" | "-d" | "-t" | "-r")));
        (plain && !files.is_empty() && files.iter().all(|file| is_file(file)))
            .then(|| files.into_iter().cloned().collect())
    }

    /// Reads the substitutions of a word, and ignores the value of the word.
    pub(super) fn evaluate(&mut self, word: &Word, state: &State) {
        for piece in &word.0 {
            self.run_piece(piece, state);
        }
    }

    /// Forgets the variables that an expansion of these words may change.
    pub(super) fn forget_changed<'w>(words: impl IntoIterator<Item = &'w Word>, state: &mut State) {
        for piece in words.into_iter().flat_map(|word| &word.0) {
            match piece {
                Piece::Opaque { changes, .. } => {
                    changes.iter().for_each(|name| state.set(name, vec![Value::Unknown]));
                }
                Piece::Parameter { name, form: Form::Default { assigns: true, if_empty }, word, .. } => {
                    let value = word.literal().map_or(Value::Unknown, Value::Text);
                    state.set(name, parameter::default_of(state.values(name), &[value], *if_empty));
                }
                Piece::Plain(_)
                | Piece::Quoted(_)
                | Piece::Variable { .. }
                | Piece::Parameter { .. }
                | Piece::Substitution { .. }
                | Piece::Process(_) => {}
            }
        }
    }

    fn run_piece(&mut self, piece: &Piece, state: &State) {
        match piece {
            Piece::Substitution { list, .. } | Piece::Process(list) => {
                self.list(list, States::one(state.clone()));
            }
            Piece::Opaque { lists, .. } => lists.iter().for_each(|list| {
                self.list(list, States::one(state.clone()));
            }),
            Piece::Parameter { word, .. } => self.evaluate(word, state),
            Piece::Plain(_) | Piece::Quoted(_) | Piece::Variable { .. } => {}
        }
    }

    pub(super) fn combinations(&mut self, word: &Word, state: &State) -> Vec<Marked> {
        let mut words = vec![Marked::default()];
        for piece in &word.0 {
            if !matches!(piece, Piece::Parameter { .. }) {
                self.run_piece(piece, state);
            }
            let each = |words: &mut Vec<Marked>, add: &dyn Fn(&mut Marked)| words.iter_mut().for_each(add);
            match piece {
                Piece::Plain(text) => each(&mut words, &|word| word.push_text(text, Mark::Plain)),
                Piece::Quoted(text) => each(&mut words, &|word| {
                    word.quotes = true;
                    word.push_text(text, Mark::Quoted);
                }),
                Piece::Variable { name, quoted } | Piece::Parameter { name, quoted, .. } => {
                    let values = match piece {
                        Piece::Parameter { form, word, .. } => self.parameter(name, *form, word, state),
                        _ if matches!(name.as_str(), "@" | "*") => vec![state.joined_arguments()],
                        _ => state.values(name),
                    };
                    // Another separator: the fields are not worked out.
                    let values = if !quoted && state.variables.contains_key("IFS") {
                        vec![Value::Unknown]
                    } else {
                        values
                    };
                    if values.len() * words.len() > MAX_COMBINATIONS {
                        each(&mut words, &|word| word.unknown = true);
                        continue;
                    }
                    let with = |word: &Marked, value: &Value| {
                        let mut word = word.clone();
                        word.push_value(value, *quoted);
                        word.quotes |= quoted;
                        word
                    };
                    words = words
                        .iter()
                        .flat_map(|word| values.iter().map(move |value| with(word, value)))
                        .collect();
                }
                Piece::Substitution { list, quoted } => {
                    let value = self.output(list, state);
                    each(&mut words, &|word| {
                        word.push_value(&value, *quoted);
                        word.quotes |= quoted;
                    });
                }
                Piece::Process(_) => each(&mut words, &|word| word.push_text("/dev/fd/63", Mark::Quoted)),
                Piece::Opaque { .. } => each(&mut words, &|word| word.unknown = true),
            }
        }
        words
    }

    /// What a substitution prints, where that is plain: `$(pwd)`, `$(git rev-parse --show-toplevel)`, `$(cat <<EOF …)`.
    fn output(&mut self, list: &[Item], state: &State) -> Value {
        let [item] = list else { return Value::Unknown };
        let [command] = item.pipeline.as_slice() else { return Value::Unknown };
        let Kind::Simple { words, .. } = &command.kind else { return Value::Unknown };
        let plain: Option<Vec<&str>> = words.iter().map(Word::plain).collect();
        match plain.as_deref().filter(|_| command.redirects.is_empty()) {
            Some(["pwd"]) => return state.values("PWD").remove(0),
            Some(["git", "rev-parse", "--show-toplevel"]) => return self.top_of_repository(state),
            _ => {}
        }
        match self.printed(command, state, &Input::None) {
            Input::Text(text) => Value::Text(text.trim_end_matches('\n').to_owned()),
            Input::Names(_) | Input::File(_) | Input::None | Input::Unknown => Value::Unknown,
        }
    }

    fn top_of_repository(&self, state: &State) -> Value {
        let mut folders = state.cwd.iter().flat_map(|cwd| cwd.ancestors());
        let top = folders.find(|folder| self.exists(&folder.join(".git"))).and_then(Path::to_str);
        top.map_or(Value::Unknown, |top| Value::Text(top.to_owned()))
    }
}
