//! JSON bodies of responses.

use axum::http::header::CONTENT_TYPE;
use axum::response::{IntoResponse, Response};
use lockkeeper_core::printable::printable_json;
use serde::Serialize;

use crate::error::ApiError;

/// A value as JSON. Characters that steer a terminal or reverse the direction of text are written as `\u202e`: programs read the same
/// value, and people who look at it see what is there.
#[derive(Debug)]
pub(crate) struct Json<T>(pub(crate) T);

impl<T: Serialize> IntoResponse for Json<T> {
    fn into_response(self) -> Response {
        match text(&self.0) {
            Ok(text) => ([(CONTENT_TYPE, "application/json")], text).into_response(),
            Err(error) => ApiError::internal(error.to_string()).into_response(),
        }
    }
}

/// A value as one line of such JSON.
pub(crate) fn text(value: &impl Serialize) -> serde_json::Result<String> {
    Ok(printable_json(&serde_json::to_string(value)?).into_owned())
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    #[test]
    fn characters_that_reverse_text_are_escaped() {
        assert_eq!(super::text(&json!({ "a": "x\u{202e}é" })).unwrap(), r#"{"a":"x\u202eé"}"#);
    }
}
