//! Sentences before they are put into a language: the engine makes them, front ends print them.

use std::fmt::Display;

use super::Phrases;

/// A list names this many items and counts the others.
const MOST_NAMED: usize = 5;

/// A sentence that is not in a language yet.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Sentence {
    /// A phrase of the tables, and its values.
    Phrase(&'static str, Vec<(&'static str, Value)>),
    /// The same in every language: a command line, a path, an id.
    Literal(String),
    /// The message of an error, with its causes. It is English in every language, and has a line of its own.
    English(String),
}

/// A value of a phrase.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Value {
    /// The same in every language.
    Text(String),
    /// Some sentences, of which the first few are named.
    List(Vec<Sentence>),
}

impl Sentence {
    /// Adds a value.
    #[must_use]
    pub fn with(mut self, name: &'static str, value: impl Display) -> Self {
        self.add(name, Value::Text(value.to_string()));
        self
    }

    /// Adds a list as a value.
    #[must_use]
    pub fn with_list(mut self, name: &'static str, items: impl IntoIterator<Item = Self>) -> Self {
        self.add(name, Value::List(items.into_iter().collect()));
        self
    }

    fn add(&mut self, name: &'static str, value: Value) {
        if let Self::Phrase(_, values) = self {
            values.push((name, value));
        }
    }
}

impl From<String> for Sentence {
    fn from(text: String) -> Self {
        Self::English(text)
    }
}

impl From<&str> for Sentence {
    fn from(text: &str) -> Self {
        Self::English(text.to_owned())
    }
}

impl From<&String> for Sentence {
    fn from(text: &String) -> Self {
        Self::English(text.clone())
    }
}

/// A phrase of the tables. Values are added with [`Sentence::with`].
pub const fn said(key: &'static str) -> Sentence {
    Sentence::Phrase(key, Vec::new())
}

impl Phrases {
    /// Puts a sentence into the language. It may have several lines.
    pub fn put(&self, sentence: &Sentence) -> String {
        match sentence {
            Sentence::Phrase(key, values) => {
                let values: Vec<(&str, String)> =
                    values.iter().map(|(name, value)| (*name, self.value(value))).collect();
                let values: Vec<(&str, &str)> =
                    values.iter().map(|(name, text)| (*name, text.as_str())).collect();
                self.fill(key, &values)
            }
            Sentence::Literal(text) => text.clone(),
            Sentence::English(text) => self.english(text),
        }
    }

    /// The English message of an error: alone, or behind a label in this language.
    pub fn english(&self, text: &str) -> String {
        self.fill("english", &[("text", text)])
    }

    fn value(&self, value: &Value) -> String {
        match value {
            Value::Text(text) => text.clone(),
            Value::List(items) => {
                let mut named: Vec<String> =
                    items.iter().take(MOST_NAMED).map(|item| self.put(item)).collect();
                if let Some(more) = items.len().checked_sub(MOST_NAMED).filter(|more| *more > 0) {
                    named.push(self.fill("list.more", &[("count", &more.to_string())]));
                }
                named.join(self.get("list.between").unwrap_or(", "))
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::messages::Language;

    #[test]
    fn lists_and_what_others_report_are_put_into_each_language() {
        let items = |count: u8| (0..count).map(|number| said("item.task").with("task", number));
        let sentence = said("seen.stale").with_list("list", items(7));
        let put = |language: Language| Phrases::load(language).put(&sentence);
        assert_eq!(put(Language::En), "stale: task 0, task 1, task 2, task 3, task 4, and 2 more");
        assert_eq!(
            put(Language::Ja),
            "期限切れ: タスク 0、タスク 1、タスク 2、タスク 3、タスク 4、ほか 2 件"
        );
        let english = Sentence::from("disk full");
        assert_eq!(Phrases::load(Language::En).put(&english), "disk full");
        assert_eq!(Phrases::load(Language::Zh).put(&english), "详情: disk full");
    }
}
