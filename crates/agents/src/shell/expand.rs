//! Expansion of words: variables are replaced, substitutions are read as commands of their own.

use super::reader::Reader;
use super::state::State;
use super::syntax::{Item, Kind, Piece, Word};
use super::value::{Mark, Marked, Value};

/// Combinations of the values of variables in one word; more are not followed.
const MAX_COMBINATIONS: usize = 16;

impl Reader<'_> {
    /// The fields of a word. What runs within it is read on the way.
    pub(super) fn fields(&mut self, word: &Word, state: &State) -> Vec<Value> {
        let words = self.combinations(word, state);
        self.spend(words.iter().map(|word| word.characters.len()).sum());
        let home = self.place.home;
        words.into_iter().flat_map(|marked| marked.fields(home)).collect()
    }

    /// The values of a word that is one field: an assignment, a redirection.
    pub(super) fn values(&mut self, word: &Word, state: &State) -> Vec<Value> {
        let fields = self.fields(word, state);
        if fields.is_empty() { vec![Value::Text(String::new())] } else { fields }
    }

    /// Reads what runs while the word is expanded, and drops its value.
    pub(super) fn evaluate(&mut self, word: &Word, state: &State) {
        for piece in &word.0 {
            self.run_piece(piece, state);
        }
    }

    /// Forgets the variables that an expansion of these words may change.
    pub(super) fn forget_changed<'w>(words: impl IntoIterator<Item = &'w Word>, state: &mut State) {
        for piece in words.into_iter().flat_map(|word| &word.0) {
            if let Piece::Opaque { changes, .. } = piece {
                changes.iter().for_each(|name| state.set(name, vec![Value::Unknown]));
            }
        }
    }

    fn run_piece(&mut self, piece: &Piece, state: &State) {
        match piece {
            Piece::Substitution(list) | Piece::Process(list) => self.list(list, &mut state.clone()),
            Piece::Opaque { lists, .. } => lists.iter().for_each(|list| self.list(list, &mut state.clone())),
            Piece::Plain(_) | Piece::Quoted(_) | Piece::Variable { .. } => {}
        }
    }

    fn combinations(&mut self, word: &Word, state: &State) -> Vec<Marked> {
        let mut words = vec![Marked::default()];
        for piece in &word.0 {
            self.run_piece(piece, state);
            let each = |words: &mut Vec<Marked>, add: &dyn Fn(&mut Marked)| words.iter_mut().for_each(add);
            match piece {
                Piece::Plain(text) => each(&mut words, &|word| word.push_text(text, Mark::Plain)),
                Piece::Quoted(text) => each(&mut words, &|word| {
                    word.quotes = true;
                    word.push_text(text, Mark::Quoted);
                }),
                Piece::Variable { name, quoted } => {
                    let values = state.values(name);
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
                Piece::Substitution(list) => {
                    let value = output(list, state);
                    each(&mut words, &|word| word.push_value(&value, true));
                }
                Piece::Process(_) => each(&mut words, &|word| word.push_text("/dev/fd/63", Mark::Quoted)),
                Piece::Opaque { .. } => each(&mut words, &|word| word.unknown = true),
            }
        }
        words
    }
}

/// What a substitution prints, where that is plain: `$(pwd)`.
fn output(list: &[Item], state: &State) -> Value {
    if let [item] = list
        && let [command] = item.pipeline.as_slice()
        && let Kind::Simple { words, .. } = &command.kind
        && let [word] = words.as_slice()
        && word.plain() == Some("pwd")
        && command.redirects.is_empty()
    {
        return state.values("PWD").remove(0);
    }
    Value::Unknown
}
