//! `/api/agents`: the coding agents of the repository.

use crate::json::Json;
use axum::extract::State;
use lockkeeper_agents::Board;
use lockkeeper_engine::views::BoardView;

use crate::error::ApiError;
use crate::state::AppState;

/// Lists the coding agents here: what each works on, waits for and was denied.
#[utoipa::path(get, path = "/api/agents", operation_id = "list_agents", tag = "agents", responses(
    (status = OK, description = "The agents, and who waits for what", body = BoardView),
))]
pub(crate) async fn list(State(state): State<AppState>) -> Result<Json<BoardView>, ApiError> {
    board(&state).await.map(Json)
}

/// Reads the board.
pub(crate) async fn board(state: &AppState) -> Result<BoardView, ApiError> {
    state.blocking(|state| Ok(Board::read(state.state_folder())?.view())).await
}
