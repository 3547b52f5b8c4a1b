//! Commands with places to fill in: `tool --print {prompt}`.

use thiserror::Error;

/// A command whose words have places such as `{prompt}`.
///
/// It is split into words first and filled in afterwards, so that nothing in a value is taken for a word or for shell.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Template {
    words: Vec<String>,
}

/// Why a text is no template.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum TemplateError {
    /// There is no word in it.
    #[error("the command template is empty")]
    Empty,
    /// A quote that never ends.
    #[error("the command template has a quote that does not end: {0}")]
    OpenQuote(String),
    /// A place that nothing is known for.
    #[error("the command template has no `{{{0}}}`")]
    Missing(String),
}

impl TemplateError {
    /// The way out.
    pub fn hint(&self) -> &'static str {
        match self {
            Self::Empty | Self::Missing(_) => "write it like --agent-command 'claude -p {prompt}'",
            Self::OpenQuote(_) => "close the quote, or write \\' and \\\" for quotes themselves",
        }
    }
}

impl Template {
    /// Splits a text into words as a shell does, with quotes and backslashes and nothing else.
    pub fn parse(text: &str) -> Result<Self, TemplateError> {
        let mut words = Vec::new();
        let mut word: Option<String> = None;
        let mut quote = None;
        let mut characters = text.chars();
        while let Some(character) = characters.next() {
            match (quote, character) {
                (Some(open), _) if character == open => quote = None,
                (None | Some('"'), '\\') => {
                    word.get_or_insert_default().extend(characters.next());
                }
                (Some(_), _) => word.get_or_insert_default().push(character),
                (None, '\'' | '"') => {
                    quote = Some(character);
                    word.get_or_insert_default();
                }
                (None, _) if character.is_whitespace() => words.extend(word.take()),
                (None, _) => word.get_or_insert_default().push(character),
            }
        }
        if quote.is_some() {
            return Err(TemplateError::OpenQuote(text.to_owned()));
        }
        words.extend(word);
        if words.is_empty() { Err(TemplateError::Empty) } else { Ok(Self { words }) }
    }

    /// The same, which has to have this place.
    pub fn parse_with(text: &str, place: &str) -> Result<Self, TemplateError> {
        let template = Self::parse(text)?;
        let marked = format!("{{{place}}}");
        let there = template.words.iter().any(|word| word.contains(&marked));
        if there { Ok(template) } else { Err(TemplateError::Missing(place.to_owned())) }
    }

    /// The command with the places filled in; braces that are no place stay as they are.
    pub fn fill(&self, values: &[(&str, &str)]) -> Vec<String> {
        self.words.iter().map(|word| fill(word, values)).collect()
    }
}

/// From left to right, so that what was filled in is not looked at again.
fn fill(word: &str, values: &[(&str, &str)]) -> String {
    let mut filled = String::new();
    let mut rest = word;
    while let Some(open) = rest.find('{') {
        filled.push_str(&rest[..open]);
        rest = &rest[open..];
        let place = values.iter().find_map(|(name, value)| {
            let behind = rest[1..].strip_prefix(name)?.strip_prefix('}')?;
            Some((value, behind))
        });
        match place {
            Some((value, behind)) => {
                filled.push_str(value);
                rest = behind;
            }
            None => {
                filled.push('{');
                rest = &rest[1..];
            }
        }
    }
    filled + rest
}

#[cfg(test)]
mod tests {
    use super::*;

    fn filled(text: &str) -> Vec<String> {
        Template::parse(text).unwrap().fill(&[("prompt", "say \"{id}\"; rm -rf /"), ("id", "7")])
    }

    #[test]
    fn values_stay_one_word_whatever_is_in_them() {
        assert_eq!(filled("tool -p {prompt} --id={id}"), ["tool", "-p", "say \"{id}\"; rm -rf /", "--id=7"]);
        assert_eq!(filled("'a b' \"c\\\"d\" e\\ f '' {x} {"), ["a b", "c\"d", "e f", "", "{x}", "{"]);
    }

    #[test]
    fn what_is_no_template_is_refused() {
        assert_eq!(Template::parse("  "), Err(TemplateError::Empty));
        assert!(matches!(Template::parse("a 'b"), Err(TemplateError::OpenQuote(_))));
        assert!(matches!(Template::parse_with("tool", "prompt"), Err(TemplateError::Missing(_))));
        assert!(Template::parse_with("tool {prompt}", "prompt").is_ok());
    }
}
