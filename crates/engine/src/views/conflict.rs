//! View of two patterns that conflict.

use lockkeeper_core::overlap::Comparison;
use serde::Serialize;

/// Two patterns, and how they relate.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema), schema(as = PatternConflict))]
pub struct PatternConflictView {
    /// The first pattern.
    pub a: String,
    /// The second pattern.
    pub b: String,
    /// `EXACT`, `PARENT_CHILD`, `OVERLAP`, or `SAME_DIR`, which is advice only.
    #[serde(rename = "type")]
    pub kind: &'static str,
    /// A path that both match.
    pub witness: Option<String>,
}

impl PatternConflictView {
    /// Shows how two patterns relate.
    pub fn new(a: &str, b: &str, comparison: Comparison) -> Self {
        let kind = comparison.relation.as_str();
        Self { a: a.to_owned(), b: b.to_owned(), kind, witness: comparison.witness }
    }
}
