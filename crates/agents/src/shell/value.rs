//! Values of words: texts, patterns, or not known, with brace and tilde expansion.

/// What one field of a command line is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Value {
    /// Exactly this text.
    Text(String),
    /// One or more paths that match this pattern, in the grammar of [`lockkeeper_core::pattern`].
    Pattern(String),
    /// Only the shell will know.
    Unknown,
}

impl Value {
    pub(super) fn text(&self) -> Option<&str> {
        match self {
            Self::Text(text) => Some(text),
            Self::Pattern(_) | Self::Unknown => None,
        }
    }
}

/// Which expansions apply to a character.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Mark {
    /// Unquoted: it may be a brace, `~` or a wildcard.
    Plain,
    /// From an unquoted variable: it may be a wildcard.
    Wildcard,
    /// Quoted: it stands for itself.
    Quoted,
    /// A blank from an unquoted variable: it ends the field.
    Split,
}

/// A word whose variables are replaced.
#[derive(Clone, Debug, Default)]
pub(super) struct Marked {
    pub(super) characters: Vec<(char, Mark)>,
    /// Some part has a value that is not known.
    pub(super) unknown: bool,
    /// Quotes make a field even if there is nothing in them.
    pub(super) quotes: bool,
}

/// A word may become this many fields; more are not followed.
const MAX_FIELDS: usize = 64;
/// Variables may make a word this long, in characters. `x=$x$x` doubles.
const MAX_EXPANDED: usize = 1 << 16;
/// A word may have this many opening braces that are expanded.
const MAX_BRACES: usize = 32;

impl Marked {
    pub(super) fn push_text(&mut self, text: &str, mark: Mark) {
        self.characters.extend(text.chars().map(|character| (character, mark)));
    }

    /// Adds the value of a variable.
    pub(super) fn push_value(&mut self, value: &Value, quoted: bool) {
        let length = self.characters.len();
        match value {
            Value::Text(text) | Value::Pattern(text) if length + text.len() > MAX_EXPANDED => {
                self.unknown = true;
            }
            Value::Text(text) if quoted => self.push_text(text, Mark::Quoted),
            Value::Text(text) => {
                let mark = |c: char| if c.is_ascii_whitespace() { Mark::Split } else { Mark::Wildcard };
                self.characters.extend(text.chars().map(|character| (character, mark(character))));
            }
            Value::Pattern(pattern) => {
                let mut escaped = false;
                for character in pattern.chars() {
                    if escaped {
                        self.characters.push((character, Mark::Quoted));
                        escaped = false;
                    } else if character == '\\' {
                        escaped = true;
                    } else {
                        self.characters.push((character, Mark::Wildcard));
                    }
                }
            }
            Value::Unknown => self.unknown = true,
        }
    }

    /// The fields that the word becomes. Too many of them are one that is not known.
    ///
    /// `folder` is the folder that `~` means with a name behind it, which may be empty.
    pub(super) fn fields(self, folder: &dyn Fn(&str) -> Option<String>) -> Vec<Value> {
        if self.unknown {
            return vec![Value::Unknown];
        }
        let quotes = self.quotes;
        let braces = self.characters.iter().filter(|character| **character == ('{', Mark::Plain)).count();
        if braces > MAX_BRACES || (braces > 0 && self.characters.len() > MAX_EXPANDED) {
            return vec![Value::Unknown];
        }
        let mut words = Vec::new();
        if !expand_braces(self.characters, &mut words, 0) {
            return vec![Value::Unknown];
        }
        let mut fields = Vec::new();
        for word in words {
            let parts: Vec<_> = word.split(|(_, mark)| *mark == Mark::Split).collect();
            let several = parts.len() > 1;
            for part in parts {
                if part.is_empty() && (several || !quotes) {
                    continue;
                }
                fields.push(field(part, folder));
            }
        }
        if fields.len() > MAX_FIELDS { vec![Value::Unknown] } else { fields }
    }
}

/// Expands the first brace expression, then the others in the results. False: too many words.
fn expand_braces(word: Vec<(char, Mark)>, words: &mut Vec<Vec<(char, Mark)>>, depth: usize) -> bool {
    if words.len() > MAX_FIELDS || depth > MAX_FIELDS {
        return false;
    }
    let Some((open, close, alternatives)) = first_braces(&word) else {
        words.push(word);
        return true;
    };
    if alternatives.len() > MAX_FIELDS {
        return false;
    }
    alternatives.into_iter().all(|alternative| {
        let mut next = word[..open].to_vec();
        next.extend(alternative);
        next.extend_from_slice(&word[close + 1..]);
        expand_braces(next, words, depth + 1)
    })
}

type Alternatives = Vec<Vec<(char, Mark)>>;

fn first_braces(word: &[(char, Mark)]) -> Option<(usize, usize, Alternatives)> {
    let is = |at: usize, character: char| word[at] == (character, Mark::Plain);
    for open in (0..word.len()).filter(|at| is(*at, '{')) {
        let (mut depth, mut commas) = (0_usize, vec![open]);
        for at in open..word.len() {
            if is(at, '{') {
                depth += 1;
            } else if is(at, ',') && depth == 1 {
                commas.push(at);
            } else if is(at, '}') {
                depth -= 1;
                if depth > 0 {
                    continue;
                }
                if commas.len() > 1 {
                    commas.push(at);
                    let alternatives =
                        commas.windows(2).map(|pair| word[pair[0] + 1..pair[1]].to_vec()).collect();
                    return Some((open, at, alternatives));
                }
                if let Some(alternatives) = sequence(&word[open + 1..at]) {
                    return Some((open, at, alternatives));
                }
                break;
            }
        }
    }
    None
}

/// The members of `{1..9}` or `{a..f}`.
fn sequence(inner: &[(char, Mark)]) -> Option<Alternatives> {
    let text: String = inner.iter().map(|(character, _)| *character).collect();
    let (first, last) = text.split_once("..")?;
    let marked = |text: String| text.chars().map(|c| (c, Mark::Quoted)).collect();
    if let (Ok(first), Ok(last)) = (first.parse::<i32>(), last.parse::<i32>()) {
        let length = usize::try_from(i64::from(first).abs_diff(i64::from(last))).ok()?;
        // More than the limit is cut just above it, so that the caller sees that there are too many.
        let step = if first <= last { 1_i64 } else { -1 };
        let numbers = (0..=length.min(MAX_FIELDS)).map(|n| i64::from(first) + step * n as i64);
        return Some(numbers.map(|number| marked(number.to_string())).collect());
    }
    let single = |text: &str| {
        let mut characters = text.chars();
        characters.next().filter(|c| c.is_ascii_alphabetic() && characters.next().is_none())
    };
    let (first, last) = (single(first)?, single(last)?);
    (first <= last).then(|| (first..=last).map(|c| marked(c.to_string())).collect())
}

fn field(characters: &[(char, Mark)], folder: &dyn Fn(&str) -> Option<String>) -> Value {
    let mut text = String::new();
    let mut rest = characters;
    if let Some((('~', Mark::Plain), after)) = characters.split_first() {
        let length = after.iter().position(|(character, _)| *character == '/').unwrap_or(after.len());
        let name: String = after[..length].iter().map(|(character, _)| character).collect();
        let Some(found) = folder(&name) else { return Value::Unknown };
        text.push_str(&found);
        rest = &after[length..];
    }
    // `@(a|b)` is a wildcard that the grammar of patterns does not have. The parser leaves no other parenthesis unquoted.
    if rest.contains(&('(', Mark::Plain)) {
        return Value::Unknown;
    }
    // A `[` without its `]` is only a character; so is the name of the program `[`.
    let is =
        |at: usize, c: char| rest.get(at).is_some_and(|(found, mark)| *found == c && *mark != Mark::Quoted);
    let last_close = (0..rest.len()).rev().find(|at| is(*at, ']')).unwrap_or(0);
    let opens = |at: usize| is(at, '[') && at + 1 < last_close;
    if !(0..rest.len()).any(|at| is(at, '*') || is(at, '?') || opens(at)) {
        text.extend(rest.iter().map(|(character, _)| character));
        return Value::Text(text);
    }
    // `**` goes through folders, as with `globstar` and in zsh: the author of the command means that.
    let mut pattern = escaped(&text);
    for (at, (character, mark)) in rest.iter().enumerate() {
        let wild = *mark != Mark::Quoted;
        match character {
            '*' | '?' if wild => pattern.push(*character),
            '[' if opens(at) => pattern.push('['),
            ']' if wild && (0..at).any(opens) => pattern.push(']'),
            _ => pattern.push_str(&escaped(character.encode_utf8(&mut [0; 4]))),
        }
    }
    Value::Pattern(pattern)
}

/// A text as a pattern that matches only it.
pub(super) fn escaped(text: &str) -> String {
    let mut pattern = String::with_capacity(text.len());
    for character in text.chars() {
        if r"*?[]{}\".contains(character) {
            pattern.push('\\');
        }
        pattern.push(character);
    }
    pattern
}
