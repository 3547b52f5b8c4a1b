//! Which requests the board shows: the query of its address, as the form beside it writes it.

use lockkeeper_core::request::RequestStatus;
use serde::Deserialize;
use serde_json::{Map, Value};

use super::status::of_request;
use super::texts::Texts;
use lockkeeper_engine::report::Report;
use lockkeeper_engine::runs::RequestFilter;

/// What the form says; fields that nothing was written into say nothing.
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub(super) struct Query {
    pub(super) status: String,
    pub(super) text: String,
    pub(super) worker: String,
}

/// A state that can be chosen.
pub(super) struct Choice {
    pub(super) status: &'static str,
    pub(super) name: &'static str,
    pub(super) chosen: bool,
}

impl Query {
    /// The filter that it means.
    pub(super) fn filter(&self, limit: usize) -> Result<RequestFilter, Report> {
        let worker = said(&self.worker).map(|worker| worker.parse()).transpose()?;
        let statuses = said(&self.status).map(|status| status.parse()).transpose()?;
        Ok(RequestFilter {
            statuses: statuses.into_iter().collect(),
            text: said(&self.text).map(ToOwned::to_owned),
            worker,
            limit,
            ..RequestFilter::default()
        })
    }

    /// The same as the API takes it.
    pub(super) fn body(&self) -> String {
        let mut body = Map::new();
        if let Some(status) = said(&self.status) {
            body.insert("request_status".to_owned(), Value::from(vec![status]));
        }
        for (key, value) in [("text", said(&self.text)), ("worker", said(&self.worker))] {
            body.extend(value.map(|value| (key.to_owned(), Value::from(value))));
        }
        Value::Object(body).to_string()
    }

    /// Every state, and which one is chosen.
    pub(super) fn choices(&self, texts: &'static Texts) -> Vec<Choice> {
        let choice = |status: RequestStatus| Choice {
            status: status.as_str(),
            name: of_request(status, texts).text,
            chosen: status.as_str().eq_ignore_ascii_case(self.status.trim()),
        };
        RequestStatus::ALL.into_iter().map(choice).collect()
    }
}

fn said(text: &str) -> Option<&str> {
    Some(text.trim()).filter(|text| !text.is_empty())
}
