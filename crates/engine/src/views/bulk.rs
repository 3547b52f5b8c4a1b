//! Views of what a bulk cancel or retry did to each request.

use serde::Serialize;

use crate::report::Report;
use crate::runs::bulk::{Changed, Left};

/// A request that was changed.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema), schema(as = Changed))]
pub struct ChangedView {
    /// The request.
    pub request_id: String,
    /// The run that was canceled, or the new run.
    pub run_id: String,
    /// The status of that run.
    pub status: String,
}

impl ChangedView {
    /// Shows one change.
    pub fn new(changed: &Changed) -> Self {
        Self {
            request_id: changed.request.to_string(),
            run_id: changed.run.to_string(),
            status: changed.status.to_string(),
        }
    }
}

/// A request that was not changed.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema), schema(as = Refused))]
pub struct RefusedView {
    /// The request.
    pub request_id: String,
    /// Why, as a stable code. The commands leave it out.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub reason_code: Option<&'static str>,
    /// Why, in words.
    pub message: String,
}

impl RefusedView {
    /// Shows one refusal in words.
    pub fn new(left: &Left) -> Self {
        Self { request_id: left.request.to_string(), reason_code: None, message: left.error.to_string() }
    }

    /// Shows one refusal with its stable code.
    pub fn with_code(left: Left) -> Self {
        let view = Self::new(&left);
        Self { reason_code: Some(Report::from(left.error).code()), ..view }
    }
}
