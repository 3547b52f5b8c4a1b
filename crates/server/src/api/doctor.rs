//! `/api/doctor`: examines the installation. A GET only reads; the full pass also repairs, and is a POST.

use crate::json::Json;
use axum::extract::State;
use axum::http::StatusCode;
use lockkeeper_engine::doctor::{DiagnosisView, Pass};
use lockkeeper_engine::report::{Exit, Report};
use serde::Deserialize;
use utoipa::{IntoParams, ToSchema};

use crate::error::{ApiError, ErrorView};
use crate::extract::{Body, Params};
use crate::state::AppState;

/// The mode of the examination.
#[derive(Debug, Deserialize, IntoParams)]
#[into_params(parameter_in = Query)]
pub(crate) struct ModeQuery {
    /// `quick`, which only reads.
    mode: Option<String>,
}

/// The mode of the examination.
#[derive(Debug, Default, Deserialize, ToSchema)]
#[serde(default, deny_unknown_fields)]
#[schema(example = json!({ "mode": "quick" }))]
pub(crate) struct ModeBody {
    /// `quick` only reads; `full` also removes what is stale.
    mode: Option<String>,
}

/// Runs the quick checks of the doctor, which change nothing.
#[utoipa::path(get, path = "/api/doctor", operation_id = "examine", tag = "doctor", params(ModeQuery), responses(
    (status = OK, description = "Every check with PASS, WARN or FAIL and a fix", body = DiagnosisView),
    (status = BAD_REQUEST, description = "No such mode", body = ErrorView),
    (status = METHOD_NOT_ALLOWED, description = "The full pass is a POST", body = ErrorView),
))]
pub(crate) async fn examine(
    State(state): State<AppState>,
    Params(query): Params<ModeQuery>,
) -> Result<Json<DiagnosisView>, ApiError> {
    match pass(query.mode.as_deref())? {
        Pass::Quick => run(&state, Pass::Quick).await,
        Pass::Full => {
            let report =
                Report::new(Exit::Usage, "METHOD_NOT_ALLOWED", "the full pass repairs, so it is no GET")
                    .with_hint("send POST /api/doctor with {\"mode\":\"full\"}");
            Err(ApiError::new(StatusCode::METHOD_NOT_ALLOWED, report))
        }
    }
}

/// Runs all checks of the doctor; with `full` it also repairs.
#[utoipa::path(post, path = "/api/doctor", operation_id = "repair", tag = "doctor", request_body = ModeBody, responses(
    (status = OK, description = "Every check with PASS, WARN or FAIL and a fix", body = DiagnosisView),
    (status = BAD_REQUEST, description = "No such mode", body = ErrorView),
    (status = PAYLOAD_TOO_LARGE, description = "`BODY_TOO_LARGE`", body = ErrorView),
    (status = UNSUPPORTED_MEDIA_TYPE, description = "`UNSUPPORTED_MEDIA_TYPE`", body = ErrorView),
    (status = UNPROCESSABLE_ENTITY, description = "`IDEMPOTENCY_MISMATCH`", body = ErrorView),
))]
pub(crate) async fn repair(
    State(state): State<AppState>,
    Body(body): Body<ModeBody>,
) -> Result<Json<DiagnosisView>, ApiError> {
    run(&state, pass(body.mode.as_deref())?).await
}

fn pass(mode: Option<&str>) -> Result<Pass, Report> {
    match mode {
        None | Some("quick") => Ok(Pass::Quick),
        Some("full") => Ok(Pass::Full),
        Some(other) => {
            let message = format!("`{}` is no mode", other.escape_debug());
            Err(Report::usage(message).with_hint("modes are quick and full"))
        }
    }
}

async fn run(state: &AppState, pass: Pass) -> Result<Json<DiagnosisView>, ApiError> {
    Ok(Json(state.blocking(move |state| Ok(state.examine(pass).view())).await?))
}
