//! Board page: what needs a person first, then what runs, waits and is queued. With a filter it is one list, with bulk
//! operations.

use askama::Template;
use axum::extract::State;
use axum::response::Response;
use lockkeeper_core::request::RequestStatus;
use lockkeeper_engine::overview::Requests;
use lockkeeper_engine::report::Report;
use lockkeeper_engine::runs::activity::Bar;
use lockkeeper_engine::runs::{RequestEntry, RequestFilter, WorkerEntry};
use lockkeeper_engine::{Listing, OwnerNames};

use super::chart::{Chart, charts};
use super::filter::{Choice, Query};
use super::request_row::{Row, Rows, runs_by_lease, sort};
use super::status::of_request;
use super::texts::{Texts, fill};
use super::times::{TimeFormat, TimePoint};
use super::{Layout, render};
use crate::error::ApiError;
use crate::extract::Params;
use crate::state::AppState;

/// How many requests of each status the board shows.
const SHOWN: usize = 50;
/// How many done and canceled requests it shows when they are unfolded.
const SHOWN_FOLDED: usize = 20;
/// How many requests a page of a list has.
const PAGE: usize = 50;
/// How many requests a list reads and sorts, the latest first.
const LISTED: usize = 1_000;

#[derive(Template)]
#[template(path = "board.html")]
struct Page {
    layout: Layout,
    now: i64,
    counts: [Count; 6],
    charts: Vec<Chart>,
    query: Query,
    choices: Vec<Choice>,
    orders: [Choice; 4],
    sections: Vec<Section>,
    list: Option<List>,
    workers: Vec<WorkerRow>,
    is_empty: bool,
}

/// How many requests have a status.
struct Count {
    name: &'static str,
    status: &'static str,
    count: u64,
    tone: &'static str,
}

/// Requests in one state.
struct Section {
    id: &'static str,
    title: &'static str,
    count: u64,
    note: Option<&'static str>,
    rows: Vec<Row>,
    folded: bool,
    /// The address and the text of a link to all of them.
    more: Option<(String, String)>,
}

/// The requests that match the filter, one page of them.
struct List {
    count: u64,
    /// The filter as a request body of the API, for bulk operations.
    body: String,
    rows: Vec<Row>,
    pages: usize,
    words: String,
    earlier: Option<String>,
    later: Option<String>,
    cut: Option<String>,
}

struct WorkerRow {
    id: String,
    is_alive: bool,
    process: u32,
    host: String,
    running: usize,
    jobs: u32,
    since: TimePoint,
}

/// Everything that the page reads.
struct Read {
    counts: Vec<(RequestStatus, u64)>,
    listing: Listing,
    names: OwnerNames,
    activity: Vec<Bar>,
    workers: Vec<WorkerEntry>,
    running: Requests,
    content: Content,
}

enum Content {
    Board { needs: [Requests; 2], queued: Requests, folded: [Requests; 2] },
    List { entries: Vec<RequestEntry>, matched: u64 },
}

pub(super) async fn page(
    State(state): State<AppState>,
    Params(query): Params<Query>,
    layout: Layout,
) -> Result<Response, ApiError> {
    let filter = query.filter(LISTED)?;
    let read = state.blocking(move |state| Read::new(state, &filter)).await?;
    let (texts, times) = (layout.texts, TimeFormat::new(state.runs().now().moment));
    let running = read.running.first.iter().map(|summary| &summary.entry);
    let runs =
        runs_by_lease(running.filter_map(|entry| Some((entry.latest.as_ref()?, &entry.request.request))));
    let rows = Rows { listing: &read.listing, names: &read.names, runs, texts, times: &times };
    let (sections, list) = match &read.content {
        Content::Board { needs, queued, folded } => (sections(&read, needs, queued, folded, &rows), None),
        Content::List { entries, matched } => (Vec::new(), Some(List::new(entries, *matched, &query, &rows))),
    };
    let worker = |entry: &WorkerEntry| WorkerRow {
        id: entry.worker.id.to_string(),
        is_alive: entry.is_alive,
        process: entry.worker.process.pid,
        host: entry.worker.origin.host.clone(),
        running: entry.running,
        jobs: entry.worker.jobs,
        since: times.since_micros(entry.worker.started_at),
    };
    let page = Page {
        now: times.now(),
        counts: counts(&read.counts, texts),
        charts: charts(&read.activity, texts),
        choices: query.choices(texts),
        orders: query.orders(texts),
        sections,
        list,
        workers: read.workers.iter().map(worker).collect(),
        is_empty: read.counts.is_empty(),
        query,
        layout: layout.at("/"),
    };
    render(&page)
}

impl Read {
    fn new(state: &AppState, filter: &RequestFilter) -> Result<Self, Report> {
        let runs = state.runs();
        let counts = runs.request_counts()?;
        let read = |status| Requests::read(runs, status, SHOWN);
        let content = if filter.is_selective() {
            // A filter by status alone is answered from the counts; others have to search.
            let matched = if filter.is_by_status_only() {
                counts.iter().filter(|(status, _)| filter.statuses.contains(status)).map(|(_, n)| n).sum()
            } else {
                runs.count_matching(filter)?
            };
            Content::List { entries: runs.requests(filter)?, matched }
        } else {
            let folded = |status| Requests::read(runs, status, SHOWN_FOLDED);
            Content::Board {
                needs: [read(RequestStatus::NeedsInput)?, read(RequestStatus::Failed)?],
                queued: read(RequestStatus::Queued)?,
                folded: [folded(RequestStatus::Done)?, folded(RequestStatus::Canceled)?],
            }
        };
        let listing = state.leases().listing()?;
        Ok(Self {
            names: OwnerNames::of(&listing, state.root()),
            listing,
            activity: runs.activity()?,
            workers: runs.workers()?,
            running: read(RequestStatus::Running)?,
            counts,
            content,
        })
    }
}

fn counts(found: &[(RequestStatus, u64)], texts: &'static Texts) -> [Count; 6] {
    let count = |wanted: RequestStatus, tone: &'static str| {
        let count = found.iter().find(|(status, _)| *status == wanted).map_or(0, |(_, count)| *count);
        let (name, status) = (of_request(wanted, texts).text, wanted.as_str());
        Count { name, status, count, tone: if count > 0 { tone } else { "" } }
    };
    [
        count(RequestStatus::NeedsInput, "is-ask"),
        count(RequestStatus::Failed, "is-bad"),
        count(RequestStatus::Running, "is-info"),
        count(RequestStatus::Queued, ""),
        count(RequestStatus::Done, ""),
        count(RequestStatus::Canceled, ""),
    ]
}

/// The sections of the board, the most urgent first.
fn sections(
    read: &Read,
    needs: &[Requests; 2],
    queued: &Requests,
    folded: &[Requests; 2],
    rows: &Rows<'_>,
) -> Vec<Section> {
    let texts = rows.texts;
    let made = |requests: &Requests| -> Vec<Row> {
        let summaries = requests.first.iter();
        summaries.map(|summary| rows.row(&summary.entry, summary.last_line.as_deref())).collect()
    };
    let more = |requests: &Requests, status: RequestStatus| {
        let text = fill(texts.all_of_them, &[("n", &requests.count.to_string())]);
        let is_cut = requests.count > requests.first.len() as u64;
        is_cut.then(|| (format!("/?status={}", status.as_str()), text))
    };
    let (waiting, in_line): (Vec<Row>, Vec<Row>) = made(queued).into_iter().partition(|row| row.waits);
    let waits = waiting.len() as u64;
    let section =
        |id, title, count, rows| Section { id, title, count, note: None, rows, folded: false, more: None };
    let [asks, failed] = needs;
    let [done, canceled] = folded;
    vec![
        Section {
            more: more(failed, RequestStatus::Failed),
            ..section(
                "needs",
                texts.needs_person,
                asks.count + failed.count,
                made(asks).into_iter().chain(made(failed)).collect(),
            )
        },
        Section {
            more: more(&read.running, RequestStatus::Running),
            ..section("running", texts.running, read.running.count, made(&read.running))
        },
        section("waiting", texts.waiting_for_lock, waits, waiting),
        Section {
            note: Some(texts.next_first),
            more: more(queued, RequestStatus::Queued),
            ..section("queued", texts.queued, queued.count.saturating_sub(waits), in_line)
        },
        Section {
            folded: true,
            more: more(done, RequestStatus::Done),
            ..section("done", texts.done_status, done.count, made(done))
        },
        Section {
            folded: true,
            more: more(canceled, RequestStatus::Canceled),
            ..section("canceled", texts.canceled, canceled.count, made(canceled))
        },
    ]
}

impl List {
    fn new(entries: &[RequestEntry], count: u64, query: &Query, rows: &Rows<'_>) -> Self {
        let mut all: Vec<Row> = entries.iter().map(|entry| rows.row(entry, None)).collect();
        sort(&mut all, &query.sort);
        let pages = all.len().div_ceil(PAGE).max(1);
        let number = query.page().clamp(1, pages);
        let shown = all.into_iter().skip((number - 1) * PAGE).take(PAGE).collect();
        let at = |number: usize| query.address(number);
        let values = [("n", &*number.to_string()), ("all", &*pages.to_string())];
        let cut = count > LISTED as u64;
        Self {
            count,
            body: query.body(),
            rows: shown,
            pages,
            words: fill(rows.texts.page_of, &values),
            earlier: (number > 1).then(|| at(number - 1)),
            later: (number < pages).then(|| at(number + 1)),
            cut: cut.then(|| fill(rows.texts.latest_only, &[("n", &LISTED.to_string())])),
        }
    }
}
