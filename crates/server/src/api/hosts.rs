//! `/api/hosts`: the machines that have workers.

use axum::extract::State;
use lockkeeper_engine::views::HostView;
use serde::Serialize;
use utoipa::ToSchema;

use crate::error::ApiError;
use crate::json::Json;
use crate::state::AppState;

/// The machines that have workers.
#[derive(Serialize, ToSchema)]
pub(crate) struct Hosts {
    /// In the order of their names.
    hosts: Vec<HostView>,
}

/// Lists the machines that have workers: when each was last heard of, and how many runs it executes.
#[utoipa::path(get, path = "/api/hosts", operation_id = "list_hosts", tag = "hosts", responses(
    (status = OK, description = "The machines", body = Hosts),
))]
pub(crate) async fn list(State(state): State<AppState>) -> Result<Json<Hosts>, ApiError> {
    let hosts = state.blocking(|state| Ok(state.runs().hosts()?)).await?;
    Ok(Json(Hosts { hosts: hosts.iter().map(HostView::new).collect() }))
}
