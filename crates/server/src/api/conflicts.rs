//! `/api/conflicts`: finds patterns that can match the same path.

use crate::json::Json;
use lockkeeper_core::overlap::{Relation, relate};
use lockkeeper_core::pattern::Pattern;
use lockkeeper_engine::report::Report;
use lockkeeper_engine::views::PatternConflictView;
use serde::Serialize;
use utoipa::ToSchema;

use crate::error::{ApiError, ErrorView};
use crate::extract::Params;

/// How many patterns one call compares at most.
const MAX_PATTERNS: usize = 100;

/// Pairs of patterns that conflict.
#[derive(Serialize, ToSchema)]
pub(crate) struct Conflicts {
    /// The pairs, in the order of the patterns.
    conflicts: Vec<PatternConflictView>,
}

/// Compares every pattern with every other.
#[utoipa::path(get, path = "/api/conflicts", operation_id = "check_conflicts", tag = "conflicts",
    params(("pattern" = Vec<String>, Query, description = "Two or more patterns: ?pattern=A&pattern=B")),
    responses(
        (status = OK, description = "The pairs that conflict", body = Conflicts),
        (status = BAD_REQUEST, description = "Too few patterns, too many, or not patterns", body = ErrorView),
    )
)]
pub(crate) async fn check(Params(pairs): Params<Vec<(String, String)>>) -> Result<Json<Conflicts>, ApiError> {
    let texts: Vec<String> =
        pairs.into_iter().filter(|(key, _)| key == "pattern").map(|(_, text)| text).collect();
    if !(2..=MAX_PATTERNS).contains(&texts.len()) {
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
