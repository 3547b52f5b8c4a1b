//! Reports in the language of the user: title, summary and actions come from the message tables.

use serde_json::{Value, json};

use super::Report;
use crate::messages::{Language, Message, Messages};

impl Report {
    /// The entry of the message tables; none if the tables have no entry for the code.
    pub fn message_in<'m>(&self, language: Language, messages: &'m Messages) -> Option<&'m Message> {
        messages.get(language, self.0.message_key)
    }

    /// The report as JSON with title, summary and actions. In another language than English, `message` and `hint` are from
    /// the tables, and `detail` has the English sentence.
    pub fn to_json_in(&self, language: Language, messages: &Messages) -> Value {
        let mut body = self.to_json();
        let error = &mut body["error"];
        match self.message_in(language, messages) {
            Some(message) => {
                error["title"] = message.title.clone().into();
                error["summary"] = message.summary.clone().into();
                error["actions"] = message.actions.clone().into();
                if language != Language::En {
                    error["detail"] = error["message"].take();
                    error["message"] = message.title.clone().into();
                    error["hint"] = message.actions.first().cloned().into();
                }
            }
            None => {
                error["title"] = self.0.message.clone().into();
                error["summary"] = error["message"].clone();
                error["actions"] = json!(self.hint().into_iter().collect::<Vec<_>>());
            }
        }
        body
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_report_has_title_summary_and_actions_in_every_language() {
        let messages = Messages::load();
        let report = Report::usage("no").with_hint("yes");
        for language in Language::ALL {
            let body = report.to_json_in(language, &messages);
            let error = &body["error"];
            let keys: Vec<&str> = error.as_object().unwrap().keys().map(String::as_str).collect();
            assert_eq!(keys[..5], ["category", "reason_code", "message", "hint", "context"]);
            assert!(["title", "summary", "actions"].iter().all(|key| !error[key].is_null()), "{error}");
            if language == Language::En {
                assert_eq!((error["message"].as_str(), error["hint"].as_str()), (Some("no"), Some("yes")));
            } else {
                assert_eq!((&error["message"], &error["detail"]), (&error["title"], &json!("no")));
            }
        }
        let other = Report::usage("no").explained_as("NO_ENTRY").with_hint("yes");
        let body = other.to_json_in(Language::Ja, &messages);
        assert_eq!((&body["error"]["title"], &body["error"]["actions"]), (&json!("no"), &json!(["yes"])));
    }
}
