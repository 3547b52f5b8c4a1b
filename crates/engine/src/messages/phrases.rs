//! Phrases: the sentences that commands print, by key, in English, Japanese and Chinese. A word in braces stands for a
//! value.

use std::collections::BTreeMap;

use super::Language;

/// The phrases of one language.
#[derive(Clone, Debug)]
pub struct Phrases(BTreeMap<String, String>);

impl Phrases {
    /// Parses the table of a language, which is compiled into the program.
    pub fn load(language: Language) -> Self {
        Self(serde_json::from_str(source(language)).expect("a unit test parses every table"))
    }

    /// Fills the values into a phrase. A key without a phrase is printed as it is.
    pub fn fill(&self, key: &str, values: &[(&str, &str)]) -> String {
        let Some(phrase) = self.0.get(key) else { return key.to_owned() };
        let mut text = String::with_capacity(phrase.len());
        let mut rest = phrase.as_str();
        // A value that has braces itself is not filled again.
        while let Some((before, after)) = rest.split_once('{') {
            let (name, after) = after.split_once('}').unwrap_or((after, ""));
            text.push_str(before);
            let value = values.iter().find(|(known, _)| *known == name);
            text.push_str(value.map_or(name, |(_, value)| value));
            rest = after;
        }
        text.push_str(rest);
        text
    }

    /// All keys.
    pub fn keys(&self) -> impl Iterator<Item = &str> {
        self.0.keys().map(String::as_str)
    }

    /// The phrase of a key, if there is one.
    pub fn get(&self, key: &str) -> Option<&str> {
        self.0.get(key).map(String::as_str)
    }
}

const fn source(language: Language) -> &'static str {
    match language {
        Language::En => include_str!("phrases.v1.en.json"),
        Language::Ja => include_str!("phrases.v1.ja.json"),
        Language::Zh => include_str!("phrases.v1.zh.json"),
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    fn placeholders(phrase: &str) -> BTreeSet<&str> {
        phrase.split('{').skip(1).map(|part| part.split_once('}').expect("a brace is closed").0).collect()
    }

    #[test]
    fn every_language_has_the_same_keys_and_placeholders() {
        let english = Phrases::load(Language::En);
        for language in Language::ALL {
            let phrases = Phrases::load(language);
            assert_eq!(
                phrases.0.keys().collect::<Vec<_>>(),
                english.0.keys().collect::<Vec<_>>(),
                "{language:?}"
            );
            for (key, phrase) in &phrases.0 {
                assert!(!phrase.is_empty(), "{language:?} {key}");
                assert_eq!(placeholders(phrase), placeholders(&english.0[key]), "{language:?} {key}");
                let is_english = language == Language::En;
                assert!(is_english || *phrase != english.0[key], "{language:?} {key} is not translated");
            }
        }
    }

    #[test]
    fn values_are_filled_in_once() {
        let phrases = Phrases([("a".to_owned(), "{x} and {y}".to_owned())].into());
        assert_eq!(phrases.fill("a", &[("x", "{y}"), ("y", "2")]), "{y} and 2");
        assert_eq!(phrases.fill("unknown", &[]), "unknown");
    }
}
