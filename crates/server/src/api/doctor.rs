//! `/api/doctor`: examines the installation; the full pass also repairs.

use axum::Json;
use axum::extract::State;
use lockkeeper_engine::doctor::Pass;
use lockkeeper_engine::report::Report;
use serde::Deserialize;
use serde_json::Value;
use utoipa::IntoParams;

use crate::error::{ApiError, ErrorView};
use crate::extract::Params;
use crate::state::AppState;

/// The mode of the examination.
#[derive(Debug, Deserialize, IntoParams)]
#[into_params(parameter_in = Query)]
pub(crate) struct Mode {
    /// `quick` only reads; `full` also removes what is stale.
    mode: Option<String>,
}

/// Runs all checks of the doctor.
#[utoipa::path(get, path = "/api/doctor", operation_id = "examine", tag = "doctor", params(Mode), responses(
    (status = OK, description = "Every check with PASS, WARN or FAIL and a fix", body = Object),
    (status = BAD_REQUEST, description = "No such mode", body = ErrorView),
))]
pub(crate) async fn examine(
    State(state): State<AppState>,
    Params(mode): Params<Mode>,
) -> Result<Json<Value>, ApiError> {
    let pass = match mode.mode.as_deref() {
        None | Some("quick") => Pass::Quick,
        Some("full") => Pass::Full,
        Some(other) => {
            let message = format!("`{}` is no mode", other.escape_debug());
            return Err(Report::usage(message).with_hint("modes are quick and full").into());
        }
    };
    Ok(Json(state.blocking(move |state| Ok(state.examine(pass).to_json())).await?))
}
