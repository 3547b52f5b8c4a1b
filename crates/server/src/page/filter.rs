//! Filter of the board: the query string that its form sends.

use lockkeeper_core::printable::is_disruptive;
use lockkeeper_core::request::RequestStatus;
use lockkeeper_engine::report::Report;
use lockkeeper_engine::runs::RequestFilter;
use serde::Deserialize;
use serde_json::{Map, Value};

use super::status::of_request;
use super::texts::Texts;

/// The fields of the form. An empty field is no filter.
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub(super) struct Query {
    pub(super) status: String,
    pub(super) text: String,
    pub(super) worker: String,
    /// The order of a list: `newest`, `oldest`, `title` or `longest`.
    pub(super) sort: String,
    /// The page of a list, from 1.
    pub(super) page: String,
}

/// An option of a field.
pub(super) struct Choice {
    pub(super) status: &'static str,
    pub(super) name: &'static str,
    pub(super) chosen: bool,
}

impl Query {
    /// The filter for the query of requests.
    pub(super) fn filter(&self, limit: usize) -> Result<RequestFilter, Report> {
        let worker = filled(&self.worker).map(|worker| worker.parse()).transpose()?;
        let statuses = filled(&self.status).map(|status| status.parse()).transpose()?;
        Ok(RequestFilter {
            statuses: statuses.into_iter().collect(),
            text: filled(&self.text).map(ToOwned::to_owned),
            worker,
            limit,
            ..RequestFilter::default()
        })
    }

    /// The same filter as a request body of the API.
    pub(super) fn body(&self) -> String {
        let mut body = Map::new();
        if let Some(status) = filled(&self.status) {
            body.insert("request_status".to_owned(), Value::from(vec![status]));
        }
        for (key, value) in [("text", filled(&self.text)), ("worker", filled(&self.worker))] {
            body.extend(value.map(|value| (key.to_owned(), Value::from(value))));
        }
        json_attribute(&Value::Object(body))
    }

    /// The number of the page; 1 if it is not a number.
    pub(super) fn page(&self) -> usize {
        self.page.trim().parse().unwrap_or(1)
    }

    /// The address of another page of the same list.
    pub(super) fn address(&self, page: usize) -> String {
        let fields = [
            ("status", self.status.as_str()),
            ("text", &self.text),
            ("worker", &self.worker),
            ("sort", &self.sort),
        ];
        let given = fields.into_iter().filter_map(|(name, value)| Some((name, filled(value)?)));
        let mut address = String::from("/?");
        for (name, value) in given {
            let value = askama::filters::urlencode_strict(value).map(|value| value.to_string());
            address.push_str(&format!("{name}={}&", value.unwrap_or_default()));
        }
        format!("{address}page={page}")
    }

    /// The options of the order field.
    pub(super) fn orders(&self, texts: &'static Texts) -> [Choice; 4] {
        let names = [
            ("newest", texts.sort_newest),
            ("oldest", texts.sort_oldest),
            ("title", texts.sort_title),
            ("longest", texts.sort_longest),
        ];
        names.map(|(status, name)| Choice { status, name, chosen: self.sort == status })
    }

    /// The options of the status field.
    pub(super) fn choices(&self, texts: &'static Texts) -> Vec<Choice> {
        let choice = |status: RequestStatus| Choice {
            status: status.as_str(),
            name: of_request(status, texts).text,
            chosen: status.as_str().eq_ignore_ascii_case(self.status.trim()),
        };
        RequestStatus::ALL.into_iter().map(choice).collect()
    }
}

/// JSON for an attribute of a page. Characters that [`super::render`] would escape are written as JSON escapes, so that it
/// stays JSON.
fn json_attribute(value: &Value) -> String {
    let mut text = String::new();
    for character in value.to_string().chars() {
        if is_disruptive(character) {
            text.push_str(&format!("\\u{:04x}", u32::from(character)));
        } else {
            text.push(character);
        }
    }
    text
}

fn filled(text: &str) -> Option<&str> {
    Some(text.trim()).filter(|text| !text.is_empty())
}
