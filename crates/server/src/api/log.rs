//! `/api/runs/{id}/log`: a window onto what a run's command wrote, of any length, now or as soon as there is more.

use std::os::fd::BorrowedFd;
use std::time::Duration;

use axum::extract::State;
use axum::{Extension, Json};
use lockkeeper_core::id::RunId;
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
use lockkeeper_engine::report::{Exit, Report};
use lockkeeper_engine::runs::output::Output;
use lockkeeper_platform::changes::Changes;

/// A window of output has this many bytes unless asked otherwise.
const WINDOW: usize = 64 * 1024;
/// It has no more than this.
const MOST_BYTES: usize = 1024 * 1024;
/// Nobody waits longer for more.
const LONGEST_WAIT: u64 = 25;
/// How often to look where nobody tells that something was written.
const LOOK: Duration = Duration::from_secs(1);
/// A letter has no more bytes than this after its first.
const LETTER_REST: usize = 3;

pub(super) fn routes(shutdown: &Shutdown) -> OpenApiRouter<AppState> {
    OpenApiRouter::new().routes(routes!(log)).layer(Extension(shutdown.clone()))
}

/// Which part of an output.
#[derive(Clone, Debug, Deserialize, IntoParams)]
#[into_params(parameter_in = Query)]
pub(crate) struct Part {
    /// From this byte on; without it and `lines`, the last bytes.
    from: Option<u64>,
    /// The last so many lines.
    lines: Option<u64>,
    /// At most so many bytes, up to 1048576; 65536 if not said.
    #[param(minimum = 1, maximum = 1_048_576)]
    limit: Option<usize>,
    /// The output of this attempt; the latest if not said.
    attempt: Option<u32>,
    /// Where nothing is there yet and more may come, wait so many seconds for it, up to 25.
    #[param(maximum = 25)]
    wait: Option<u64>,
}

/// A part of what a run's command wrote.
#[derive(Serialize, ToSchema)]
pub(crate) struct Log {
    run_id: String,
    /// The first byte of `text`; larger than asked for where bytes were cut out of a very long output.
    from: u64,
    /// The byte after `text`: where the next part begins.
    to: u64,
    /// How long the output is by now.
    size: u64,
    /// What is there; bytes that are no UTF-8 are replaced. No letter is cut in two where the part ends.
    text: String,
    /// Whether nothing more will come.
    ended: bool,
}

/// A part of what a run's command wrote.
#[utoipa::path(get, path = "/api/runs/{id}/log", operation_id = "read_log", tag = "runs",
    params(("id" = String, Path, description = "The run's id"), Part),
    responses(
        (status = OK, description = "A window of the output", body = Log),
        (status = BAD_REQUEST, description = "Not an id or a part", body = ErrorView),
        (status = NOT_FOUND, description = "`NO_SUCH_RUN`", body = ErrorView),
    )
)]
pub(crate) async fn log(
    State(state): State<AppState>,
    Extension(shutdown): Extension<Shutdown>,
    Id(id): Id,
    Params(part): Params<Part>,
) -> Result<Json<Log>, ApiError> {
    let id: RunId = id.parse().map_err(Report::from)?;
    let limit = part.limit.unwrap_or(WINDOW);
    if !(1..=MOST_BYTES).contains(&limit) {
        let message = format!("a part cannot have {limit} bytes");
        return Err(Report::usage(message).with_hint("ask for 1 to 1048576 with ?limit=").into());
    }
    let wait = part.wait.unwrap_or(0);
    if wait > LONGEST_WAIT {
        return Err(Report::usage(format!("nobody waits for {wait} s here"))
            .with_hint("ask for up to 25 with ?wait=, and then again")
            .into());
    }
    let until = Instant::now() + Duration::from_secs(wait);
    // Listened to before anything is looked at, so that nothing falls in between.
    let mut events = (wait > 0).then(|| state.broadcaster().subscribe(None).receiver);
    loop {
        let folder = state.runs().folder_of(&id).path().to_owned();
        let changes = if wait > 0 { Changes::watch(&folder).ok() } else { None };
        let (asked, run) = (part.clone(), id.clone());
        let log = state.blocking(move |state| window(state, &run, &asked, limit)).await?;
        let Some(events) =
            events.as_mut().filter(|_| log.text.is_empty() && !log.ended && Instant::now() < until)
        else {
            return Ok(Json(log));
        };
        tokio::select! {
            () = told(changes.as_ref().and_then(Changes::as_fd), events) => {}
            () = tokio::time::sleep_until(until) => return Ok(Json(log)),
            () = shutdown.draining() => return Ok(Json(log)),
        }
    }
}

/// Returns when something was written to the folder, or happened to a run.
async fn told(folder: Option<BorrowedFd<'_>>, events: &mut Receiver<Event>) {
    let written = async {
        #[expect(
            deprecated,
            reason = "it is borrowed, so open for as long as it is listened to: all that its successor asks for, as unsafe code"
        )]
        let listening = folder.and_then(|folder| AsyncFd::new(folder).ok());
        match &listening {
            Some(listening) => drop(listening.readable().await),
            None => tokio::time::sleep(LOOK).await,
        }
    };
    tokio::select! {
        () = written => {}
        // One who has missed some looks as well.
        _ = events.recv() => {}
    }
}

/// Reads a part of an output, however long that is.
pub(crate) fn window(state: &AppState, id: &RunId, part: &Part, limit: usize) -> Result<Log, Report> {
    let run = state.runs().run(id)?;
    let ended = run.status.is_terminal();
    let attempt = part.attempt.filter(|attempt| *attempt != run.attempt);
    let folder = state.runs().folder_of(id);
    let run_id = id.to_string();
    let Some(output) = Output::open(&folder, attempt).map_err(|error| unreadable(&error))? else {
        return Ok(Log { run_id, from: 0, to: 0, size: 0, text: String::new(), ended });
    };
    let size = output.len().map_err(|error| unreadable(&error))?;
    let from = match (part.from, part.lines) {
        (Some(from), _) => from.min(size),
        (None, Some(lines)) => output.last_lines(lines.min(100_000)).map_err(|error| unreadable(&error))?,
        (None, None) => size.saturating_sub(limit as u64),
    };
    let mut window = output.read(from, limit).map_err(|error| unreadable(&error))?;
    if part.from.is_none() && window.from > 0 {
        // Nobody said where to begin: not within a letter.
        let rest = window.bytes.iter().take(LETTER_REST).take_while(|byte| is_rest(**byte)).count();
        window.bytes.drain(..rest);
        window.from += rest as u64;
    }
    let whole = whole_letters(&window.bytes);
    // What is all there is stays, also when it is no letter.
    if limit > LETTER_REST && !(ended && window.end() >= size) {
        window.bytes.truncate(whole);
    }
    let text = String::from_utf8_lossy(&window.bytes).into_owned();
    Ok(Log { run_id, from: window.from, to: window.end(), size, text, ended })
}

/// Whether a byte goes on with a letter.
const fn is_rest(byte: u8) -> bool {
    byte & 0b1100_0000 == 0b1000_0000
}

/// How many bytes there are without a letter at the end of which more is to come.
fn whole_letters(bytes: &[u8]) -> usize {
    let rest = bytes.iter().rev().take(LETTER_REST).take_while(|byte| is_rest(**byte)).count();
    let begin = bytes.len().saturating_sub(rest + 1);
    match std::str::from_utf8(&bytes[begin..]) {
        Err(error) if error.error_len().is_none() => begin + error.valid_up_to(),
        Ok(_) | Err(_) => bytes.len(),
    }
}

impl Log {
    /// The text with its first byte and the byte after it, and the size of all.
    pub(crate) fn into_text(self) -> (String, [u64; 3]) {
        (self.text, [self.from, self.to, self.size])
    }
}

impl Part {
    /// The end of the output.
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
    fn a_letter_is_not_cut_in_two() {
        let text = "aé日🦀".as_bytes();
        let whole = [0, 1, 1, 3, 3, 3, 6, 6, 6, 6, 10];
        for (length, expected) in whole.into_iter().enumerate() {
            assert_eq!(whole_letters(&text[..length]), expected, "{length}");
        }
        // What never becomes a letter is not waited for.
        assert_eq!(whole_letters(b"a\xff"), 2);
        assert_eq!(whole_letters(b"\x80\x80\x80\x80"), 4);
    }
}
