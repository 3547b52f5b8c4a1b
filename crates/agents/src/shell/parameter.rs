//! Expansions that change the value of a variable: `${F:-word}`, `${F:+word}`, `${F#word}`, `${F%word}`.

use super::reader::Reader;
use super::state::{State, Values};
use super::syntax::{Form, Word};
use super::value::{Mark, Marked, Value};

/// A longer value is not cut, in bytes.
const MAX_CUT: usize = 4_096;

impl Reader<'_> {
    /// The possible values of an expansion.
    pub(super) fn parameter(&mut self, name: &str, form: Form, word: &Word, state: &State) -> Values {
        let (values, words) = (state.values(name), self.combinations(word, state));
        let texts: Values = words.iter().map(text_of).collect();
        match form {
            Form::Default { if_empty, .. } => default_of(values, &texts, if_empty),
            Form::Instead { if_empty } => instead_of(&values, &texts, if_empty),
            Form::WithoutBeginning { longest } | Form::WithoutEnd { longest } => {
                let [pattern] = words.as_slice() else { return vec![Value::Unknown] };
                let Some(pattern) = Pattern::of(pattern) else { return vec![Value::Unknown] };
                let at_end = matches!(form, Form::WithoutEnd { .. });
                values.iter().map(|value| pattern.cut(value, at_end, longest)).collect()
            }
        }
    }
}

/// The values of `${F:-word}`. A variable that the script does not set may come from the environment, or be unset.
pub(super) fn default_of(values: Values, words: &[Value], if_empty: bool) -> Values {
    let mut found = Values::new();
    for value in values {
        let is_empty = if_empty && value.text() == Some("");
        if value == Value::Unknown || is_empty {
            found.extend_from_slice(words);
        }
        if !is_empty {
            found.push(value);
        }
    }
    found
}

fn instead_of(values: &[Value], words: &[Value], if_empty: bool) -> Values {
    let mut found = Values::new();
    for value in values {
        let is_empty = if_empty && value.text() == Some("");
        if *value == Value::Unknown || is_empty {
            found.push(Value::Text(String::new()));
        }
        if !is_empty {
            found.extend_from_slice(words);
        }
    }
    found
}

fn text_of(word: &Marked) -> Value {
    if word.unknown {
        return Value::Unknown;
    }
    Value::Text(word.characters.iter().map(|(character, _)| character).collect())
}

/// A text, perhaps with a `*` before or behind it. Other patterns are not followed.
struct Pattern {
    text: String,
    star_before: bool,
    star_behind: bool,
}

impl Pattern {
    fn of(word: &Marked) -> Option<Self> {
        let is_wild = |(character, mark): &(char, Mark)| {
            *mark != Mark::Quoted && matches!(character, '*' | '?' | '[' | '(')
        };
        let star = |at: Option<&(char, Mark)>| at.is_some_and(|one| one.0 == '*' && is_wild(one));
        let mut rest = word.characters.as_slice();
        let star_before = star(rest.first());
        rest = &rest[usize::from(star_before)..];
        let star_behind = star(rest.last());
        rest = &rest[..rest.len() - usize::from(star_behind)];
        let is_plain = !word.unknown && !rest.iter().any(is_wild);
        let text = rest.iter().map(|(character, _)| character).collect();
        is_plain.then_some(Self { text, star_before, star_behind })
    }

    fn matches(&self, part: &str) -> bool {
        match (self.star_before, self.star_behind) {
            (false, false) => part == self.text,
            (true, false) => part.ends_with(&self.text),
            (false, true) => part.starts_with(&self.text),
            (true, true) => part.contains(&self.text),
        }
    }

    fn cut(&self, value: &Value, at_end: bool, longest: bool) -> Value {
        let text = match value {
            Value::Text(text) if text.len() <= MAX_CUT => text,
            // `${f%.txt}` for the files of `*.txt`.
            Value::Pattern(pattern) if at_end && !self.star_before && !self.star_behind => {
                let is_plain = !self.text.contains(['*', '?', '[', ']', '{', '}', '\\']);
                let cut = pattern.strip_suffix(&self.text).filter(|_| is_plain);
                return cut.map_or(Value::Unknown, |cut| Value::Pattern(cut.to_owned()));
            }
            Value::Text(_) | Value::Pattern(_) | Value::Unknown => return Value::Unknown,
        };
        let ends = (0..=text.len()).filter(|at| text.is_char_boundary(*at));
        let fits = |at: &usize| self.matches(if at_end { &text[*at..] } else { &text[..*at] });
        let found = if at_end == longest { ends.clone().find(fits) } else { ends.rev().find(fits) };
        let rest = match found {
            Some(at) if at_end => &text[..at],
            Some(at) => &text[at..],
            None => text,
        };
        Value::Text(rest.to_owned())
    }
}
