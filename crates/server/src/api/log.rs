//! `/api/runs/{id}/log`, `/output` and `/search`: a window of the output of a run, with `wait` a long poll for more; all of
//! it; and where a text is.

use std::os::fd::BorrowedFd;
use std::time::Duration;

use crate::json::Json;
use axum::Extension;
use axum::extract::State;
use axum::http::header::{CONTENT_DISPOSITION, CONTENT_TYPE};
use axum::response::{IntoResponse, Response};
use lockkeeper_core::id::RunId;
use lockkeeper_engine::report::{Exit, Report};
use lockkeeper_engine::runs::output::{Found, Output};
use lockkeeper_platform::changes::Changes;
use serde::{Deserialize, Serialize};
use tokio::io::unix::AsyncFd;
use tokio::sync::broadcast::Receiver;
use tokio::sync::mpsc;
use tokio::time::Instant;
use utoipa::{IntoParams, ToSchema};
use utoipa_axum::router::OpenApiRouter;
use utoipa_axum::routes;

use super::events::StreamBody;
use crate::broadcast::Event;
use crate::error::{ApiError, ErrorView};
use crate::extract::{Id, Params};
use crate::shutdown::Shutdown;
use crate::state::AppState;

/// The default size of a window, in bytes.
const DEFAULT_BYTES: usize = 64 * 1024;
/// The largest window, in bytes.
const MAX_BYTES: usize = 1024 * 1024;
/// The longest wait for more output, in seconds.
const MAX_WAIT: u64 = 25;
/// How often the output is read where the system cannot report changed files.
const POLL_INTERVAL: Duration = Duration::from_secs(1);
/// How often the output of another machine is read.
const REMOTE_INTERVAL: Duration = Duration::from_millis(300);
/// The longest text that is searched for, in bytes.
const LONGEST_TEXT: usize = 1_000;
/// The largest number of continuation bytes of a UTF-8 character.
const MAX_CONTINUATION: usize = 3;

pub(super) fn routes(shutdown: &Shutdown) -> OpenApiRouter<AppState> {
    let output = OpenApiRouter::new().routes(routes!(download)).routes(routes!(search));
    OpenApiRouter::new().routes(routes!(log)).layer(Extension(shutdown.clone())).merge(output)
}

/// Which window of the output.
#[derive(Clone, Debug, Deserialize, IntoParams)]
#[into_params(parameter_in = Query)]
pub(crate) struct WindowQuery {
    /// The first byte of the window. Without this and `lines`, the window is at the end of the output.
    from: Option<u64>,
    /// The last lines, this many.
    lines: Option<u64>,
    /// The largest number of bytes, up to 1048576; 65536 by default.
    #[param(minimum = 1, maximum = 1_048_576)]
    limit: Option<usize>,
    /// The number of the attempt; the latest by default.
    attempt: Option<u32>,
    /// How many seconds to wait for more output when there is none yet, up to 25.
    #[param(maximum = 25)]
    wait: Option<u64>,
}

/// A window of the output of a run.
#[derive(Serialize, ToSchema)]
pub(crate) struct LogWindow {
    run_id: String,
    /// The position of `text` in the output. It is larger than requested where bytes were cut out of a very long output.
    from: u64,
    /// The position after `text`: the `from` of the next window.
    to: u64,
    /// The size of the output at this moment.
    size: u64,
    /// The output. Bytes that are not UTF-8 are replaced. No character is cut at the end of the window.
    text: String,
    /// Whether the run has ended, so that no more output will follow.
    ended: bool,
    /// The first byte that was cut out of a very long output; null if nothing was.
    cut_from: Option<u64>,
    /// The first byte after those that were cut out.
    cut_to: Option<u64>,
    /// The machine that has the whole output, if the run is executed on another one than this server.
    host: Option<String>,
}

/// Reads a window of the output of a run.
#[utoipa::path(get, path = "/api/runs/{id}/log", operation_id = "read_log", tag = "runs",
    params(("id" = String, Path, description = "The id of the run"), WindowQuery),
    responses(
        (status = OK, description = "A window of the output", body = LogWindow),
        (status = BAD_REQUEST, description = "Not an id, or not a window", body = ErrorView),
        (status = NOT_FOUND, description = "`NO_SUCH_RUN`", body = ErrorView),
    )
)]
pub(crate) async fn log(
    State(state): State<AppState>,
    Extension(shutdown): Extension<Shutdown>,
    Id(id): Id,
    Params(query): Params<WindowQuery>,
) -> Result<Json<LogWindow>, ApiError> {
    let id: RunId = id.parse().map_err(Report::from)?;
    let limit = query.limit.unwrap_or(DEFAULT_BYTES);
    if !(1..=MAX_BYTES).contains(&limit) {
        let message = format!("a part cannot have {limit} bytes");
        return Err(Report::usage(message).with_hint("ask for 1 to 1048576 with ?limit=").into());
    }
    let wait = query.wait.unwrap_or(0);
    if wait > MAX_WAIT {
        return Err(Report::usage(format!("nobody waits for {wait} s here"))
            .with_hint("ask for up to 25 with ?wait=, and then again")
            .into());
    }
    let until = Instant::now() + Duration::from_secs(wait);
    // Subscribed before the output is read, so that no change is missed in between.
    let mut events = (wait > 0).then(|| state.broadcaster().subscribe(None).receiver);
    loop {
        let folder = state.runs().folder_of(&id).path().to_owned();
        let changes = if wait > 0 { Changes::watch(&folder).ok() } else { None };
        let (asked, run) = (query.clone(), id.clone());
        let log = state.blocking(move |state| window(state, &run, &asked, limit)).await?;
        let Some(events) =
            events.as_mut().filter(|_| log.text.is_empty() && !log.ended && Instant::now() < until)
        else {
            return Ok(Json(log));
        };
        let is_elsewhere = log.host.is_some() || (log.size == 0 && state.runs().is_shared());
        let folder = changes.as_ref().and_then(Changes::as_fd).filter(|_| !is_elsewhere);
        let interval = if is_elsewhere { REMOTE_INTERVAL } else { POLL_INTERVAL };
        tokio::select! {
            () = wait_for_change(folder, interval, events) => {}
            () = tokio::time::sleep_until(until) => return Ok(Json(log)),
            () = shutdown.draining() => return Ok(Json(log)),
        }
    }
}

/// Returns when a file in the folder changed, or after the interval where that cannot be known, or when an event was published.
async fn wait_for_change(folder: Option<BorrowedFd<'_>>, interval: Duration, events: &mut Receiver<Event>) {
    let written = async {
        #[expect(
            deprecated,
            reason = "the borrow keeps the descriptor open, which its successor demands by unsafe code"
        )]
        let descriptor = folder.and_then(|folder| AsyncFd::new(folder).ok());
        match &descriptor {
            Some(descriptor) => drop(descriptor.readable().await),
            None => tokio::time::sleep(interval).await,
        }
    };
    tokio::select! {
        () = written => {}
        // A lagging receiver has missed events, and reads the output again as well.
        _ = events.recv() => {}
    }
}

/// Opens the output of an attempt; none if nothing is written. Says whether it has ended.
fn output(
    state: &AppState,
    id: &RunId,
    attempt: Option<u32>,
    from: u64,
) -> Result<(Option<Output>, bool), Report> {
    let run = state.runs().run(id)?;
    let earlier = attempt.filter(|attempt| *attempt != run.attempt());
    let opened = state.runs().output(&run, attempt, from)?;
    Ok((opened, earlier.is_some() || run.status().is_terminal()))
}

/// Which output.
#[derive(Debug, Deserialize, IntoParams)]
#[into_params(parameter_in = Query)]
pub(crate) struct OutputQuery {
    /// The number of the attempt; the latest by default.
    attempt: Option<u32>,
}

/// Downloads the output of a run, byte for byte. What was cut out of a very long output is left out.
#[utoipa::path(get, path = "/api/runs/{id}/output", operation_id = "download_output", tag = "runs",
    params(("id" = String, Path, description = "The id of the run"), OutputQuery),
    responses(
        (status = OK, description = "The output so far", content_type = "text/plain", body = String),
        (status = BAD_REQUEST, description = "Not an id", body = ErrorView),
        (status = NOT_FOUND, description = "`NO_SUCH_RUN`", body = ErrorView),
    )
)]
pub(crate) async fn download(
    State(state): State<AppState>,
    Id(id): Id,
    Params(query): Params<OutputQuery>,
) -> Result<Response, ApiError> {
    let id: RunId = id.parse().map_err(Report::from)?;
    let name = format!("attachment; filename=\"{id}.log\"");
    let (output, _) = state.blocking(move |state| output(state, &id, query.attempt, 0)).await?;
    let (sender, parts) = mpsc::channel(2);
    if let Some(output) = output {
        tokio::task::spawn_blocking(move || {
            let (size, mut at) = (output.len().unwrap_or(0), 0);
            while at < size {
                let Ok(window) = output.read(at, DEFAULT_BYTES) else { return };
                at = window.end();
                // The client has gone, or the file has become shorter.
                if window.bytes.is_empty() || sender.blocking_send(window.bytes.into()).is_err() {
                    return;
                }
            }
        });
    }
    let headers = [(CONTENT_TYPE, "text/plain; charset=utf-8".to_owned()), (CONTENT_DISPOSITION, name)];
    Ok((headers, axum::body::Body::new(StreamBody::new(parts))).into_response())
}

/// What to look for.
#[derive(Debug, Deserialize, IntoParams)]
#[into_params(parameter_in = Query)]
pub(crate) struct SearchQuery {
    /// The text. The case of ASCII letters does not matter.
    text: String,
    /// Where to begin, in bytes; the end of the output if `back` is true, otherwise its beginning.
    from: Option<u64>,
    /// Search towards the beginning.
    back: Option<bool>,
    /// The number of the attempt; the latest by default.
    attempt: Option<u32>,
}

/// Where a text is.
#[derive(Serialize, ToSchema)]
pub(crate) struct LogMatch {
    /// The first byte of the match; null if there is none.
    at: Option<u64>,
    /// Where to search on, if nothing was found in the first 64 MiB; null otherwise.
    next: Option<u64>,
}

/// Searches the output of a run for a text.
#[utoipa::path(get, path = "/api/runs/{id}/search", operation_id = "search_log", tag = "runs",
    params(("id" = String, Path, description = "The id of the run"), SearchQuery),
    responses(
        (status = OK, description = "Where the next match is", body = LogMatch),
        (status = BAD_REQUEST, description = "Not an id, or no text", body = ErrorView),
        (status = NOT_FOUND, description = "`NO_SUCH_RUN`", body = ErrorView),
    )
)]
pub(crate) async fn search(
    State(state): State<AppState>,
    Id(id): Id,
    Params(query): Params<SearchQuery>,
) -> Result<Json<LogMatch>, ApiError> {
    let id: RunId = id.parse().map_err(Report::from)?;
    if query.text.is_empty() || query.text.len() > LONGEST_TEXT {
        let message = format!("a search needs a text of 1 to {LONGEST_TEXT} bytes");
        return Err(Report::usage(message).with_hint("give it with ?text=").into());
    }
    let found = state
        .blocking(move |state| {
            let (Some(output), _) = output(state, &id, query.attempt, 0)? else { return Ok(None) };
            let back = query.back == Some(true);
            let from = query.from.unwrap_or(if back { u64::MAX } else { 0 });
            output.find(query.text.as_bytes(), from, !back).map_err(|error| unreadable(&error))
        })
        .await?;
    Ok(Json(match found {
        Some(Found::At(at)) => LogMatch { at: Some(at), next: None },
        Some(Found::Further(next)) => LogMatch { at: None, next: Some(next) },
        None => LogMatch { at: None, next: None },
    }))
}

/// Reads a window of the output, which may be very long.
pub(crate) fn window(
    state: &AppState,
    id: &RunId,
    query: &WindowQuery,
    limit: usize,
) -> Result<LogWindow, Report> {
    let (output, ended) = output(state, id, query.attempt, query.from.unwrap_or(0))?;
    let run_id = id.to_string();
    let Some(output) = output else {
        let text = String::new();
        let (cut_from, cut_to, host) = (None, None, None);
        return Ok(LogWindow { run_id, from: 0, to: 0, size: 0, text, ended, cut_from, cut_to, host });
    };
    let size = output.len().map_err(|error| unreadable(&error))?;
    let from = match (query.from, query.lines) {
        (Some(from), _) => from.min(size),
        (None, Some(lines)) => output.last_lines(lines.min(100_000)).map_err(|error| unreadable(&error))?,
        (None, None) => size.saturating_sub(limit as u64),
    };
    let mut window = output.read(from, limit).map_err(|error| unreadable(&error))?;
    if query.from.is_none() && window.from > 0 {
        // The client gave no position: start at a character boundary.
        let rest =
            window.bytes.iter().take(MAX_CONTINUATION).take_while(|byte| is_continuation(**byte)).count();
        window.bytes.drain(..rest);
        window.from += rest as u64;
    }
    let whole = complete_characters(&window.bytes);
    // The end of an output that is complete is kept, also when it is not valid UTF-8.
    if limit > MAX_CONTINUATION && !(ended && window.end() >= size) {
        window.bytes.truncate(whole);
    }
    let text = String::from_utf8_lossy(&window.bytes).into_owned();
    let cut = output.cut().map_err(|error| unreadable(&error))?;
    let (cut_from, cut_to) = (cut.as_ref().map(|cut| cut.start), cut.as_ref().map(|cut| cut.end));
    let (from, to, host) = (window.from, window.end(), output.host().map(ToOwned::to_owned));
    Ok(LogWindow { run_id, from, to, size, text, ended, cut_from, cut_to, host })
}

/// Whether a byte is a continuation byte of UTF-8.
const fn is_continuation(byte: u8) -> bool {
    byte & 0b1100_0000 == 0b1000_0000
}

/// The number of bytes without an incomplete character at the end.
fn complete_characters(bytes: &[u8]) -> usize {
    let rest = bytes.iter().rev().take(MAX_CONTINUATION).take_while(|byte| is_continuation(**byte)).count();
    let begin = bytes.len().saturating_sub(rest + 1);
    match std::str::from_utf8(&bytes[begin..]) {
        Err(error) if error.error_len().is_none() => begin + error.valid_up_to(),
        Ok(_) | Err(_) => bytes.len(),
    }
}

impl LogWindow {
    /// The text, and its begin and end in the output, and the size of the output.
    pub(crate) fn into_text(self) -> (String, [u64; 3]) {
        (self.text, [self.from, self.to, self.size])
    }
}

impl WindowQuery {
    /// The window at the end of the output of an attempt.
    pub(crate) const fn end(attempt: Option<u32>) -> Self {
        Self { from: None, lines: None, limit: None, attempt, wait: None }
    }
}

fn unreadable(error: &std::io::Error) -> Report {
    Report::of(Exit::Failed, "UNREADABLE", error).with_hint("look into the folder of the run")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_character_is_not_cut_in_two() {
        let text = "aé日🦀".as_bytes();
        let whole = [0, 1, 1, 3, 3, 3, 6, 6, 6, 6, 10];
        for (length, expected) in whole.into_iter().enumerate() {
            assert_eq!(complete_characters(&text[..length]), expected, "{length}");
        }
        // Bytes that can never become a character are not held back.
        assert_eq!(complete_characters(b"a\xff"), 2);
        assert_eq!(complete_characters(b"\x80\x80\x80\x80"), 4);
    }
}
