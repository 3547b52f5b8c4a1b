//! Command templates with placeholders: `tool --print {prompt}`.

use thiserror::Error;

/// A command whose words have placeholders such as `{prompt}`.
///
/// The template is split into words before the values are inserted. So a value is always part of one word, and no shell reads it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Template {
    words: Vec<String>,
}

/// Why a text is not a template.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum TemplateError {
    /// It has no words.
    #[error("the command template is empty")]
    Empty,
    /// A quote is not closed.
    #[error("the command template has a quote that does not end: {0}")]
    OpenQuote(String),
    /// A required placeholder is missing.
    #[error("the command template has no `{{{0}}}`")]
    Missing(String),
}

impl TemplateError {
    /// What the user can do about it.
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

    /// Parses a template that must have this placeholder.
    pub fn parse_with(text: &str, placeholder: &str) -> Result<Self, TemplateError> {
        let template = Self::parse(text)?;
        let marked = format!("{{{placeholder}}}");
        let there = template.words.iter().any(|word| word.contains(&marked));
        if there { Ok(template) } else { Err(TemplateError::Missing(placeholder.to_owned())) }
    }

    /// The command with the values in place of the placeholders. Other braces stay as they are.
    pub fn fill(&self, values: &[(&str, &str)]) -> Vec<String> {
        self.words.iter().map(|word| fill(word, values)).collect()
    }
}

/// Replaces placeholders from left to right. A value that contains a placeholder is not replaced again.
fn fill(word: &str, values: &[(&str, &str)]) -> String {
    let mut filled = String::new();
    let mut rest = word;
    while let Some(open) = rest.find('{') {
        filled.push_str(&rest[..open]);
        rest = &rest[open..];
        let found = values.iter().find_map(|(name, value)| {
            let after = rest[1..].strip_prefix(name)?.strip_prefix('}')?;
            Some((value, after))
        });
        match found {
            Some((value, after)) => {
                filled.push_str(value);
                rest = after;
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
    fn invalid_templates_are_refused() {
        assert_eq!(Template::parse("  "), Err(TemplateError::Empty));
        assert!(matches!(Template::parse("a 'b"), Err(TemplateError::OpenQuote(_))));
        assert!(matches!(Template::parse_with("tool", "prompt"), Err(TemplateError::Missing(_))));
        assert!(Template::parse_with("tool {prompt}", "prompt").is_ok());
    }
}
