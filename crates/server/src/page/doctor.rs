//! Doctor page: every check, and what to do.

use askama::Template;
use axum::extract::State;
use axum::response::Response;
use lockkeeper_engine::doctor::{Check, Pass, Status};
use lockkeeper_engine::messages::{Language, Phrases, Sentence};

use super::{Layout, render};
use crate::error::ApiError;
use crate::state::AppState;

#[derive(Template)]
#[template(path = "doctor.html")]
struct Page {
    layout: Layout,
    status: &'static str,
    tone: &'static str,
    checks: Vec<Row>,
}

struct Row {
    id: &'static str,
    status: &'static str,
    tone: &'static str,
    title: String,
    /// What was found, in one or more lines.
    details: Vec<String>,
    fixes: Vec<String>,
}

pub(super) async fn page(State(state): State<AppState>, layout: Layout) -> Result<Response, ApiError> {
    let diagnosis = state.blocking(|state| Ok(state.examine(Pass::Quick))).await?;
    let mut checks: Vec<&Check> = diagnosis.checks.iter().collect();
    // Failed checks first.
    checks.sort_by_key(|check| std::cmp::Reverse(check.status));
    let (status, tone) = badge(diagnosis.status());
    let language = layout.language;
    let phrases = Phrases::load(language);
    render(&Page {
        layout: layout.at("/doctor"),
        status,
        tone,
        checks: checks.into_iter().map(|check| Row::new(check, language, &phrases)).collect(),
    })
}

impl Row {
    /// What a check that passes observed is English. In other languages its title says it.
    fn new(check: &Check, language: Language, phrases: &Phrases) -> Self {
        let (status, tone) = badge(check.status);
        let (id, title) = (check.id, check.title_in(phrases));
        let lines = |sentences: &[Sentence]| {
            let texts = sentences.iter().map(|sentence| phrases.put(sentence));
            texts
                .flat_map(|text| text.lines().map(|line| line.trim().to_owned()).collect::<Vec<_>>())
                .collect()
        };
        if language == Language::En {
            let (details, fixes) = (vec![check.detail.clone()], check.fix.clone().into_iter().collect());
            return Self { id, status, tone, title: check.title.to_owned(), details, fixes };
        }
        Self { id, status, tone, title, details: lines(&check.problems), fixes: lines(&check.fixes) }
    }
}

const fn badge(status: Status) -> (&'static str, &'static str) {
    match status {
        Status::Pass => ("PASS", "good"),
        Status::Warn => ("WARN", "warn"),
        Status::Fail => ("FAIL", "bad"),
    }
}
