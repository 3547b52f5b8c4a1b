//! A request as JSON. Times are in microseconds; empty fields are omitted.

use std::time::Duration;

use lockkeeper_core::record::Priority;
use lockkeeper_core::request::Request;
use lockkeeper_core::retry::RetryPolicy;
use serde::{Deserialize, Serialize};

#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Written {
    id: String,
    title: String,
    command: Vec<String>,
    dir: String,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    env: Vec<(String, String)>,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    locks: Vec<String>,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    paths: Vec<String>,
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    shared: bool,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    needs: Vec<String>,
    priority: i32,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    after: Vec<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    queue_timeout: Option<u64>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    timeout: Option<u64>,
    retries: u32,
    retry_base: u64,
    retry_longest: u64,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    retry_codes: Vec<u8>,
    success: Vec<u8>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    key: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    origin: Option<String>,
}

/// Writes a request as JSON.
pub(super) fn write(request: &Request) -> String {
    let written = Written {
        id: request.id.to_string(),
        title: request.title.clone(),
        command: request.command.clone(),
        dir: request.dir.clone(),
        env: request.env.clone(),
        locks: request.locks.iter().map(ToString::to_string).collect(),
        paths: request.paths.iter().map(ToString::to_string).collect(),
        shared: request.shared,
        needs: request.needs.iter().map(ToString::to_string).collect(),
        priority: request.priority.get(),
        after: request.after.iter().map(ToString::to_string).collect(),
        queue_timeout: request.queue_timeout.map(micros),
        timeout: request.timeout.map(micros),
        retries: request.retry.limit,
        retry_base: micros(request.retry.base),
        retry_longest: micros(request.retry.longest),
        retry_codes: request.retry.codes.clone(),
        success: request.success.clone(),
        key: request.key.clone(),
        origin: request.origin.clone(),
    };
    serde_json::to_string(&written).expect("texts and numbers can always be written")
}

/// Reads a request, or says why the text is none.
pub(super) fn read(text: &str) -> Result<Request, String> {
    let written: Written = serde_json::from_str(text).map_err(|error| error.to_string())?;
    fn all<T: std::str::FromStr<Err: ToString>>(texts: &[String]) -> Result<Vec<T>, String> {
        texts.iter().map(|text| text.parse().map_err(|error: T::Err| error.to_string())).collect()
    }
    Ok(Request {
        id: written.id.parse().map_err(|error| format!("{error}"))?,
        title: written.title,
        command: written.command,
        dir: written.dir,
        env: written.env,
        locks: all(&written.locks)?,
        paths: all(&written.paths)?,
        shared: written.shared,
        needs: all(&written.needs)?,
        priority: Priority::new(written.priority).map_err(|error| error.to_string())?,
        after: all(&written.after)?,
        queue_timeout: written.queue_timeout.map(Duration::from_micros),
        timeout: written.timeout.map(Duration::from_micros),
        retry: RetryPolicy {
            limit: written.retries,
            base: Duration::from_micros(written.retry_base),
            longest: Duration::from_micros(written.retry_longest),
            codes: written.retry_codes,
        },
        success: written.success,
        key: written.key,
        origin: written.origin,
    })
}

fn micros(span: Duration) -> u64 {
    u64::try_from(span.as_micros()).unwrap_or(u64::MAX)
}
