//! Web pages: rendered on the server, kept up to date by one small script in the browser.

mod activity;
mod agents;
mod api_reference;
mod assets;
mod attempts;
mod attention;
mod board;
mod chart;
mod conflict_graph;
mod doctor;
mod error;
mod execution;
mod filter;
mod hosts;
mod locks;
mod login;
mod plan;
mod request;
mod request_conflicts;
mod request_row;
mod run;
mod stages;
mod status;
mod texts;
mod times;
mod wait_graph;

use askama::Template;
use axum::Router;
use axum::extract::FromRequestParts;
use axum::http::HeaderMap;
use axum::http::header::{CACHE_CONTROL, CONTENT_TYPE};
use axum::http::request::Parts;
use axum::response::{IntoResponse, Redirect, Response};
use axum::routing::{get, post};
use lockkeeper_core::printable::printable_lines;
use lockkeeper_core::queue::Stop;
use lockkeeper_engine::messages::{Language, Messages};
use lockkeeper_engine::queue::{self, FailedCheck, QueueStop};
use lockkeeper_engine::views::QueueStopView;

use crate::access_policy::Access;
use crate::cookies::cookie;
use crate::error::{ApiError, RequestLanguage};
use crate::state::AppState;
pub(super) use api_reference::ApiReference;
use attention::Attention;
pub(super) use error::error_page;
use texts::Texts;

/// The cookie with the theme that the user chose.
const THEME_COOKIE: &str = "lockkeeper_theme";

/// The routes of all pages.
pub(super) fn routes(reference: ApiReference) -> Router<AppState> {
    Router::new()
        .route("/", get(board::page))
        .route("/requests", get(|| async { Redirect::to("/") }))
        .route("/requests/{id}", get(request::page))
        .route("/runs", get(activity::page))
        .route("/runs/{id}", get(run::page))
        .route("/locks", get(locks::page))
        .route("/agents", get(agents::page))
        .route("/stages", get(stages::page))
        .route("/stages/plan", get(plan::page))
        .route("/stages/{id}", get(execution::page))
        .route("/hosts", get(hosts::page))
        .route("/doctor", get(doctor::page))
        .route("/login", get(login::page).post(login::log_in))
        .route("/logout", post(login::log_out))
        .merge(reference.routes())
        .merge(assets::routes())
}

/// Layout of every page: language, theme, navigation and the banner of the queue.
struct Layout {
    language: Language,
    texts: &'static Texts,
    theme: &'static str,
    tab: &'static str,
    queue: Option<Banner>,
    /// The run or process of another program that holds the lock file of the queue.
    held_by: Option<String>,
    /// Why the queue stopped, if a person should look at it.
    stop: Option<StopNotice>,
    /// What needs a person.
    attention: Attention,
    /// Whether the browser has a session that it can end.
    has_session: bool,
    /// Whether several machines share the store.
    is_shared: bool,
}

/// Banner that is shown while the queue is executed.
struct Banner {
    runs: u32,
    current: Option<String>,
    stopping: bool,
}

/// Notice that the queue has stopped.
struct StopNotice {
    message: String,
    run: Option<String>,
    check: Option<FailedCheck>,
    actions: Vec<String>,
}

impl StopNotice {
    /// The notice of a stop that needs a person; none if the queue is empty, or somebody has stopped it.
    fn new(stop: &QueueStop, language: Language, messages: &Messages) -> Option<Self> {
        match stop.reason {
            Stop::NothingLeft | Stop::Asked => return None,
            Stop::NeedsInput
            | Stop::Failed
            | Stop::Canceled
            | Stop::DoctorFailed
            | Stop::RunLimit
            | Stop::TimeLimit
            | Stop::LockLost => {}
        }
        let view = QueueStopView::new(stop, language, messages);
        Some(Self { message: view.message, run: view.run_id, check: view.check, actions: view.actions })
    }
}

/// Entry of the navigation.
struct Tab {
    href: &'static str,
    name: &'static str,
    key: &'static str,
    current: bool,
}

impl Layout {
    fn new(language: Language, headers: &HeaderMap) -> Self {
        let theme = match cookie(headers, THEME_COOKIE) {
            Some("light") => "light",
            Some("dark") => "dark",
            Some(_) | None => "auto",
        };
        Self {
            language,
            texts: Texts::of(language),
            theme,
            tab: "",
            queue: None,
            held_by: None,
            stop: None,
            attention: Attention::default(),
            has_session: false,
            is_shared: false,
        }
    }

    /// Sets the current tab.
    fn at(mut self, tab: &'static str) -> Self {
        self.tab = tab;
        self
    }

    fn tabs(&self) -> Vec<Tab> {
        let texts = self.texts;
        let all = [
            ("/", texts.board, "b"),
            ("/locks", texts.locks, "l"),
            ("/agents", texts.agents, "g"),
            ("/stages", texts.stages, "s"),
            ("/runs", texts.activity, "r"),
            ("/hosts", texts.hosts, "h"),
            ("/doctor", texts.doctor, "d"),
            ("/api", "API", "a"),
        ];
        // One machine has no list of machines.
        let shown = all.into_iter().filter(|(href, ..)| self.is_shared || *href != "/hosts");
        shown.map(|(href, name, key)| Tab { href, name, key, current: href == self.tab }).collect()
    }

    fn themes(&self) -> [(&'static str, &'static str); 3] {
        let texts = self.texts;
        [("auto", texts.theme_auto), ("light", texts.theme_light), ("dark", texts.theme_dark)]
    }

    fn languages(&self) -> [(Language, &'static str); 3] {
        [(Language::En, "English"), (Language::Ja, "日本語"), (Language::Zh, "中文")]
    }
}

impl FromRequestParts<AppState> for Layout {
    type Rejection = ApiError;

    async fn from_request_parts(parts: &mut Parts, state: &AppState) -> Result<Self, ApiError> {
        let reader = parts.extensions.get::<RequestLanguage>();
        let language = reader.map_or(state.settings().language, |reader| reader.0);
        let texts = Texts::of(language);
        let ((auto, stop), file_holder, attention) = state
            .blocking(move |state| {
                let attention = Attention::read(state, texts)?;
                let file_holder = queue::lock_file_holder(state.runs(), &state.settings().execution);
                Ok((queue::state(state.runs(), state.leases())?, file_holder, attention))
            })
            .await?;
        // An auto-run that has not begun its first run holds the file itself.
        let held_by = file_holder.filter(|_| auto.is_none());
        let stop = stop.filter(|_| held_by.is_none());
        let stop = stop.and_then(|stop| StopNotice::new(&stop, language, state.messages()));
        let queue = auto.map(|auto| Banner {
            runs: auto.runs,
            current: auto.current.map(|run| run.to_string()),
            stopping: auto.stop,
        });
        let has_session = matches!(parts.extensions.get::<Access>(), Some(Access::Session(_)));
        let is_shared = state.runs().is_shared();
        Ok(Self {
            queue,
            held_by,
            stop,
            attention,
            has_session,
            is_shared,
            ..Self::new(language, &parts.headers)
        })
    }
}

/// Renders a page.
fn render(page: &impl Template) -> Result<Response, ApiError> {
    let text =
        page.render().map_err(|error| ApiError::internal(format!("a page cannot be rendered: {error}")))?;
    let headers = [(CONTENT_TYPE, "text/html; charset=utf-8"), (CACHE_CONTROL, "no-store")];
    // Templates have no such characters, so they are all from the texts that a page shows.
    Ok((headers, printable_lines(&text).into_owned()).into_response())
}
