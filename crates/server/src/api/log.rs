//! `/api/runs/{id}/log`: a window of the output of a run; with `wait`, a long poll for more output.

use std::os::fd::BorrowedFd;
use std::time::Duration;

use axum::extract::State;
use axum::{Extension, Json};
use lockkeeper_core::id::RunId;
use lockkeeper_engine::report::{Exit, Report};
use lockkeeper_engine::runs::output::Output;
use lockkeeper_platform::changes::Changes;
use serde::{Deserialize, Serialize};
use tokio::io::unix::AsyncFd;
use tokio::sync::broadcast::Receiver;
use tokio::time::Instant;
use utoipa::{IntoParams, ToSchema};
use utoipa_axum::router::OpenApiRouter;
use utoipa_axum::routes;

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
/// The largest number of continuation bytes of a UTF-8 character.
const MAX_CONTINUATION: usize = 3;

pub(super) fn routes(shutdown: &Shutdown) -> OpenApiRouter<AppState> {
    OpenApiRouter::new().routes(routes!(log)).layer(Extension(shutdown.clone()))
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
        tokio::select! {
            () = wait_for_change(changes.as_ref().and_then(Changes::as_fd), events) => {}
            () = tokio::time::sleep_until(until) => return Ok(Json(log)),
            () = shutdown.draining() => return Ok(Json(log)),
        }
    }
}

/// Returns when a file in the folder changed, or an event was published.
async fn wait_for_change(folder: Option<BorrowedFd<'_>>, events: &mut Receiver<Event>) {
    let written = async {
        #[expect(
            deprecated,
            reason = "the borrow keeps the descriptor open, which its successor demands by unsafe code"
        )]
        let descriptor = folder.and_then(|folder| AsyncFd::new(folder).ok());
        match &descriptor {
            Some(descriptor) => drop(descriptor.readable().await),
            None => tokio::time::sleep(POLL_INTERVAL).await,
        }
    };
    tokio::select! {
        () = written => {}
        // A lagging receiver has missed events, and reads the output again as well.
        _ = events.recv() => {}
    }
}

/// Reads a window of the output, which may be very long.
pub(crate) fn window(
    state: &AppState,
    id: &RunId,
    query: &WindowQuery,
    limit: usize,
) -> Result<LogWindow, Report> {
    let run = state.runs().run(id)?;
    let ended = run.status().is_terminal();
    let attempt = query.attempt.filter(|attempt| *attempt != run.attempt());
    let folder = state.runs().folder_of(id);
    let run_id = id.to_string();
    let Some(output) = Output::open(&folder, attempt).map_err(|error| unreadable(&error))? else {
        return Ok(LogWindow { run_id, from: 0, to: 0, size: 0, text: String::new(), ended });
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
    Ok(LogWindow { run_id, from: window.from, to: window.end(), size, text, ended })
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
    /// The window at the end of the output.
    pub(crate) const fn end() -> Self {
        Self { from: None, lines: None, limit: None, attempt: None, wait: None }
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
