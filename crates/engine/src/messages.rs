//! Message tables: what each reason code means and what to do, in English, Japanese and Chinese.

mod phrases;
mod sentence;

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

pub use phrases::Phrases;
pub use sentence::{Sentence, Value, said};

/// A language of the message tables.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub enum Language {
    /// English.
    #[default]
    En,
    /// Japanese.
    Ja,
    /// Chinese, simplified.
    Zh,
}

impl Language {
    /// All languages.
    pub const ALL: [Self; 3] = [Self::En, Self::Ja, Self::Zh];

    /// `en`, `ja` or `zh`.
    pub const fn code(self) -> &'static str {
        match self {
            Self::En => "en",
            Self::Ja => "ja",
            Self::Zh => "zh",
        }
    }

    /// The language of a tag such as `ja` or `zh-Hans-CN`.
    pub fn of_tag(tag: &str) -> Option<Self> {
        let primary = tag.trim().split('-').next().unwrap_or_default();
        Self::ALL.into_iter().find(|language| primary.eq_ignore_ascii_case(language.code()))
    }

    /// The language of the environment, in the order of gettext: `LC_ALL`, `LC_MESSAGES`, `LANG`, and before them the list
    /// in `LANGUAGE`, unless the locale is `C` or `POSIX`. English if there is no table for it.
    pub fn of_environment(variable: &dyn Fn(&str) -> Option<String>) -> Self {
        let set = |name: &str| variable(name).filter(|value| !value.is_empty());
        let locale = ["LC_ALL", "LC_MESSAGES", "LANG"].into_iter().find_map(set).unwrap_or_default();
        let base = locale.split(['.', '@']).next().unwrap_or_default();
        if matches!(base, "" | "C" | "POSIX") {
            return Self::En;
        }
        let list = set("LANGUAGE").unwrap_or_default();
        let wanted = list.split(':').chain([base]).filter(|name| !name.is_empty());
        let mut known = wanted.filter_map(|name| Self::of_tag(name.split(['_', '.', '@']).next()?));
        known.next().unwrap_or_default()
    }

    /// The language with the highest weight in an `Accept-Language` header.
    pub fn accepted(header: &str) -> Option<Self> {
        let mut best: Option<(f32, Self)> = None;
        for range in header.split(',') {
            let mut parts = range.split(';');
            let Some(language) = parts.next().and_then(Self::of_tag) else { continue };
            let weight = parts.find_map(|part| part.trim().strip_prefix("q=")?.parse().ok()).unwrap_or(1.0);
            if weight > 0.0 && best.is_none_or(|(known, _)| weight > known) {
                best = Some((weight, language));
            }
        }
        best.map(|(_, language)| language)
    }
}

/// The message of one reason code.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(deny_unknown_fields)]
pub struct Message {
    /// The meaning in a few words.
    pub title: String,
    /// The meaning in a sentence.
    pub summary: String,
    /// What the user can do, the most likely first.
    pub actions: Vec<String>,
}

/// The messages of one language, by reason code.
pub type Table = BTreeMap<String, Message>;

/// The tables of all languages.
#[derive(Clone, Debug)]
pub struct Messages([Table; 3]);

impl Messages {
    /// Parses the tables that are compiled into the program.
    pub fn load() -> Self {
        Self(
            Language::ALL.map(|language| {
                serde_json::from_str(source(language)).expect("a unit test parses every table")
            }),
        )
    }

    /// The table of a language.
    pub fn table(&self, language: Language) -> &Table {
        let [en, ja, zh] = &self.0;
        match language {
            Language::En => en,
            Language::Ja => ja,
            Language::Zh => zh,
        }
    }

    /// The message of a code; none for codes that only commands use.
    pub fn get(&self, language: Language, code: &str) -> Option<&Message> {
        self.table(language).get(code)
    }
}

/// The JSON text of a table, the file `messages.v1.LANG.json`.
pub const fn source(language: Language) -> &'static str {
    match language {
        Language::En => include_str!("messages/messages.v1.en.json"),
        Language::Ja => include_str!("messages/messages.v1.ja.json"),
        Language::Zh => include_str!("messages/messages.v1.zh.json"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_language_says_the_same_things() {
        let messages = Messages::load();
        let english = messages.table(Language::En);
        for language in Language::ALL {
            let table = messages.table(language);
            assert_eq!(table.keys().collect::<Vec<_>>(), english.keys().collect::<Vec<_>>(), "{language:?}");
            for (code, message) in table {
                assert!(!message.title.is_empty() && !message.summary.is_empty(), "{language:?} {code}");
                assert_eq!(message.actions.len(), english[code].actions.len(), "{language:?} {code}");
                assert!(message.actions.iter().all(|action| !action.is_empty()), "{language:?} {code}");
            }
        }
    }

    /// Requirement 194.
    #[test]
    fn the_japanese_queue_message_is_the_one_of_the_specification() {
        let messages = Messages::load();
        let message = messages.get(Language::Ja, "QUEUE_IN_PROGRESS").unwrap();
        assert_eq!(message.title, "キュー実行がすでに動作中です");
        assert_eq!(message.summary, "Auto-runは同時に1つのみ実行できます。");
        assert_eq!(
            message.actions,
            [
                "別タブ/別ウィンドウで起動していないか確認",
                "しばらく待つ（TTLで回収されます）",
                "必要なら doctor(full) でロック回収を実施"
            ]
        );
    }

    #[test]
    fn the_locale_chooses_the_language_as_gettext_does() {
        for (variables, expected) in [
            (&[("LANG", "ja_JP.UTF-8")][..], Language::Ja),
            (&[("LANG", "ja_JP.UTF-8"), ("LC_MESSAGES", "zh_CN.UTF-8")], Language::Zh),
            (&[("LANG", "ja"), ("LC_MESSAGES", "zh"), ("LC_ALL", "C.UTF-8")], Language::En),
            (&[("LANG", "ja_JP.UTF-8"), ("LC_ALL", "POSIX")], Language::En),
            (&[("LANG", "ja_JP.UTF-8"), ("LC_ALL", "")], Language::Ja),
            (&[("LANG", "zh_TW@radical")], Language::Zh),
            (&[("LANG", "fr_FR.UTF-8")], Language::En),
            (&[("LANG", "fr_FR.UTF-8"), ("LANGUAGE", "de:ja:en")], Language::Ja),
            (&[("LANG", "C"), ("LANGUAGE", "ja")], Language::En),
            (&[("LANG", "jam_JM.UTF-8")], Language::En),
            (&[], Language::En),
        ] {
            let variable = |name: &str| {
                let found = variables.iter().find(|(known, _)| *known == name);
                found.map(|(_, value)| (*value).to_owned())
            };
            assert_eq!(Language::of_environment(&variable), expected, "{variables:?}");
        }
    }

    #[test]
    fn the_language_that_is_wanted_most_is_chosen() {
        for (header, expected) in [
            ("ja", Some(Language::Ja)),
            ("zh-CN,zh;q=0.9,en;q=0.8", Some(Language::Zh)),
            ("fr, ja;q=0.3, en;q=0.7", Some(Language::En)),
            ("en;q=0, zh-Hant;q=0.1", Some(Language::Zh)),
            ("fr, *;q=0.1", None),
            ("", None),
            ("ja;q=nonsense", Some(Language::Ja)),
        ] {
            assert_eq!(Language::accepted(header), expected, "{header}");
        }
    }
}
