//! `/api/conflicts`: can two patterns match one same path?

use axum::Json;
use lockkeeper_core::overlap::{Relation, relate};
use lockkeeper_core::pattern::Pattern;
use lockkeeper_engine::views::PatternConflictView;
use serde::Serialize;
use utoipa::ToSchema;

use crate::error::{ApiError, ErrorView};
use crate::extract::Params;
use lockkeeper_engine::report::Report;

/// So many patterns are compared at a time: every one with every other.
const MOST: usize = 100;

/// The pairs that have something to do with each other.
#[derive(Serialize, ToSchema)]
pub(crate) struct Conflicts {
    conflicts: Vec<PatternConflictView>,
}

/// Compares patterns, each with every other.
#[utoipa::path(get, path = "/api/conflicts", operation_id = "check_conflicts", tag = "conflicts",
    params(("pattern" = Vec<String>, Query, description = "Two or more patterns: ?pattern=A&pattern=B")),
    responses(
        (status = OK, description = "The pairs that meet", body = Conflicts),
        (status = BAD_REQUEST, description = "Too few, or not patterns", body = ErrorView),
    )
)]
pub(crate) async fn check(Params(pairs): Params<Vec<(String, String)>>) -> Result<Json<Conflicts>, ApiError> {
    let texts: Vec<String> =
        pairs.into_iter().filter(|(key, _)| key == "pattern").map(|(_, text)| text).collect();
    if !(2..=MOST).contains(&texts.len()) {
        let message = format!("{} patterns cannot be compared", texts.len());
        return Err(Report::usage(message).with_hint("give 2 to 100: ?pattern=A&pattern=B").into());
    }
    let compared = tokio::task::spawn_blocking(move || compare(&texts)).await;
    match compared {
        Ok(conflicts) => Ok(Json(Conflicts { conflicts: conflicts? })),
        Err(panic) => Err(ApiError::internal(panic.to_string())),
    }
}

fn compare(texts: &[String]) -> Result<Vec<PatternConflictView>, Report> {
    let patterns: Vec<Pattern> = texts.iter().map(|text| text.parse()).collect::<Result<_, _>>()?;
    let mut conflicts = Vec::new();
    for (place, a) in patterns.iter().enumerate() {
        for b in &patterns[place + 1..] {
            let meeting = relate(a, b);
            if meeting.relation != Relation::None {
                conflicts.push(PatternConflictView::new(a.as_str(), b.as_str(), meeting));
            }
        }
    }
    Ok(conflicts)
}
