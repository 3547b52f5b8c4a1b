//! Metrics in the OpenMetrics text format: HTTP requests since the start, and leases, requests and runs at this moment.
//!
//! Each of the four alerts is a metric beside its value, so that a rule needs no threshold.
//! `examples/alerts.rules.yml` has rules for all of them.

use std::fmt;
use std::time::Duration;

use axum::extract::{MatchedPath, Request, State};
use axum::http::header::{CONTENT_TYPE, LOCATION};
use axum::middleware::Next;
use axum::response::{IntoResponse, Response};
use lockkeeper_core::alert::{Counts, Limits, raise};
use lockkeeper_core::request::RequestStatus;
use lockkeeper_core::run::Status;
use lockkeeper_engine::Listing;
use lockkeeper_engine::evidence::verdict_word;
use lockkeeper_engine::foreign_locks::ForeignLocks;
use lockkeeper_engine::runs::Totals;
use lockkeeper_platform::wall_clock::WallTime;
use prometheus_client::encoding::EncodeLabelSet;
use prometheus_client::encoding::text::encode;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::metrics::histogram::Histogram;
use prometheus_client::metrics::info::Info;
use prometheus_client::registry::{Registry, Unit};
use tokio::time::Instant;

use crate::error::ApiError;
use crate::otlp::{Span, TraceParent};
use crate::state::AppState;

/// The bounds of the histogram, in seconds.
const BUCKETS: [f64; 8] = [0.001, 0.005, 0.01, 0.05, 0.1, 0.5, 1.0, 5.0];
const OPEN_METRICS: &str = "application/openmetrics-text; version=1.0.0; charset=utf-8";

/// Counters of HTTP requests since the start.
pub(super) struct HttpMetrics {
    requests: Family<RequestLabels, Counter>,
    seconds: Histogram,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct RequestLabels {
    method: String,
    route: String,
    status: u16,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct FormatStateLabel {
    format: &'static str,
    state: &'static str,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct FormatLabel {
    format: &'static str,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct StateLabel {
    state: &'static str,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct StatusLabel {
    status: &'static str,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct AlertLabel {
    alert: &'static str,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct OutcomeLabel {
    outcome: &'static str,
}

impl Default for HttpMetrics {
    fn default() -> Self {
        Self { requests: Family::default(), seconds: Histogram::new(BUCKETS) }
    }
}

/// Middleware that counts, logs and traces a request.
pub(super) async fn measure(State(state): State<AppState>, request: Request, next: Next) -> Response {
    let begun_at = Instant::now();
    let (method, path) = (request.method().clone(), request.uri().path().to_owned());
    let header = request.headers().get("traceparent").and_then(|value| value.to_str().ok());
    let parent = header.and_then(TraceParent::read);
    // The route is the label, not the path: clients can send any number of different paths.
    let route = request.extensions().get::<MatchedPath>().map_or("none", MatchedPath::as_str).to_owned();
    let response = next.run(request).await;
    let (status, took) = (response.status(), begun_at.elapsed());
    let known = matches!(method.as_str(), "GET" | "HEAD" | "POST" | "DELETE");
    let label = if known { method.as_str() } else { "other" };
    if let Some(exporter) = state.exporter() {
        let began_at = WallTime::from_micros(WallTime::now().as_micros() - micros(took));
        let mut span = Span::of_request(&method, &route, status, began_at, took, parent);
        // The span of a request that started a run names the run.
        let location = response.headers().get(LOCATION).and_then(|value| value.to_str().ok());
        if let Some(run) = location.and_then(|location| location.strip_prefix("/api/runs/")) {
            span = span.with("lockkeeper.run.id", run);
        }
        exporter.send(span);
    }
    let labels = RequestLabels { method: label.to_owned(), route, status: status.as_u16() };
    state.http_metrics().requests.get_or_create(&labels).inc();
    state.http_metrics().seconds.observe(took.as_secs_f64());
    let ms = took.as_secs_f64() * 1e3;
    // Other machines call the store all the time.
    if super::access_policy::is_safe(&method) || path.starts_with("/api/store") {
        tracing::debug!(%method, path, status = status.as_u16(), ms, "answered");
    } else {
        tracing::info!(%method, path, status = status.as_u16(), ms, "answered");
    }
    response
}

/// All metrics as text.
#[utoipa::path(get, path = "/metrics", tag = "server", responses(
    (status = OK, description = "OpenMetrics text", content_type = "application/openmetrics-text", body = String)
))]
pub(super) async fn metrics(State(state): State<AppState>) -> Result<Response, ApiError> {
    let now = state
        .blocking(|state| {
            let (listing, foreign) = (state.leases().listing()?, state.foreign_locks());
            let counts = state.counts(&listing, &foreign)?;
            Ok(Measured { listing, foreign, counts, totals: state.runs().totals()? })
        })
        .await?;
    let text = state.render(&now).map_err(|error| ApiError::internal(error.to_string()))?;
    Ok(([(CONTENT_TYPE, OPEN_METRICS)], text).into_response())
}

/// What is measured at one moment.
struct Measured {
    listing: Listing,
    foreign: ForeignLocks,
    counts: Counts,
    totals: Totals,
}

impl AppState {
    fn render(&self, now: &Measured) -> Result<String, fmt::Error> {
        let mut registry = Registry::with_prefix("lockkeeper");
        let version = Info::new(vec![("version", env!("CARGO_PKG_VERSION"))]);
        registry.register("build", "Version of the server", version);
        let http_metrics = self.http_metrics();
        registry.register("http_requests", "Requests that were answered", http_metrics.requests.clone());
        let help = "How long it took to answer, event streams until their beginning";
        registry.register_with_unit("http_request", help, Unit::Seconds, http_metrics.seconds.clone());
        gauge(
            &mut registry,
            "event_streams",
            "Event streams that are open, and readers who wait for more output",
            self.broadcaster().subscribers(),
        );
        if let Some(exporter) = self.exporter() {
            let spans = Family::<OutcomeLabel, Counter>::default();
            let (sent, dropped) = exporter.counts();
            for (outcome, count) in [("sent", sent), ("dropped", dropped)] {
                spans.get_or_create(&OutcomeLabel { outcome }).inc_by(count);
            }
            registry.register("otlp_spans", "Spans for the collector by what became of them", spans);
        }
        locks(&mut registry, &now.listing, now.counts);
        foreign_locks(&mut registry, &now.foreign);
        requests_and_runs(&mut registry, &now.totals);
        let mut text = String::new();
        encode(&mut text, &registry)?;
        Ok(text)
    }
}

fn locks(registry: &mut Registry, listing: &Listing, counts: Counts) {
    let leases = Family::<StateLabel, Gauge>::default();
    for state in ["alive", "unknown", "dead", "expired", "overdue"] {
        leases.get_or_create(&StateLabel { state }).set(0);
    }
    for holder in &listing.holders {
        leases.get_or_create(&StateLabel { state: verdict_word(holder.verdict) }).inc();
    }
    registry.register("leases", "Leases by what is seen of their holders", leases);
    let waiters = listing.waiters.iter().filter(|waiter| !waiter.verdict.is_free()).count();
    gauge(registry, "waiters", "Tickets in line", waiters);
    seconds(registry, "longest_wait", "How long the longest wait lasts already", counts.longest_wait);
    gauge(registry, "deadlocks", "Circles of waits that never end", counts.deadlocks);
    gauge(registry, "orphan_locks", "Locks of all formats whose holders are gone", counts.orphans);
    gauge(registry, "downgrades", "Fallbacks to a stricter strategy within the last hour", counts.downgrades);
    let raised = Family::<AlertLabel, Gauge>::default();
    for alert in ["LOCK_WAIT", "DEADLOCKS", "ORPHAN_LOCKS", "DOWNGRADES"] {
        raised.get_or_create(&AlertLabel { alert }).set(0);
    }
    for alert in raise(&counts, &Limits::default()) {
        raised.get_or_create(&AlertLabel { alert: alert.code() }).set(1);
    }
    registry.register("alert", "1 while something needs attention", raised);
}

/// Requests and runs by status, and the queue. Every status has a line.
fn requests_and_runs(registry: &mut Registry, totals: &Totals) {
    let by_status = |all: Vec<&'static str>, counts: Vec<(&'static str, u64)>| {
        let family = Family::<StatusLabel, Gauge>::default();
        for (status, count) in all.into_iter().map(|status| (status, 0)).chain(counts) {
            family.get_or_create(&StatusLabel { status }).set(i64::try_from(count).unwrap_or(i64::MAX));
        }
        family
    };
    let all = RequestStatus::ALL.map(RequestStatus::as_str).to_vec();
    let counts = totals.requests.iter().map(|(status, count)| (status.as_str(), *count)).collect();
    registry.register("requests", "Requests by status", by_status(all, counts));
    let all = Status::ALL.map(Status::as_str).to_vec();
    let counts: Vec<_> = totals.runs.iter().map(|(status, count)| (status.as_str(), *count)).collect();
    let depth = counts.iter().find(|(status, _)| *status == Status::Queued.as_str());
    let depth = depth.map_or(0, |(_, count)| usize::try_from(*count).unwrap_or(usize::MAX));
    registry.register("runs", "Runs by status", by_status(all, counts));
    gauge(
        registry,
        "queue_depth",
        "Runs in the queue, also those that wait for others or for a retry",
        depth,
    );
    let age = totals.oldest_queued_at.map_or(0, |at| WallTime::now().as_micros().saturating_sub(at));
    let age = Duration::from_micros(u64::try_from(age).unwrap_or(0));
    seconds(registry, "queue_oldest", "How long the oldest run of the queue waits already", age);
}

/// The locks of other formats. Every format and state has a line, so that a rule of an alert never lacks its series.
fn foreign_locks(registry: &mut Registry, foreign: &ForeignLocks) {
    let (locks, waiters) =
        (Family::<FormatStateLabel, Gauge>::default(), Family::<FormatLabel, Gauge>::default());
    for format in ["sprint", "swarm", "group", "aiflow"] {
        for state in ["held", "stale", "unknown"] {
            locks.get_or_create(&FormatStateLabel { format, state }).set(0);
        }
        waiters.get_or_create(&FormatLabel { format }).set(0);
    }
    for lock in &foreign.locks {
        locks.get_or_create(&FormatStateLabel { format: lock.format, state: lock.state }).inc();
    }
    for waiter in &foreign.waiters {
        waiters.get_or_create(&FormatLabel { format: waiter.format }).inc();
    }
    registry.register("foreign_locks", "Locks of other formats by what is seen of their holders", locks);
    registry.register("foreign_waiters", "Processes that wait for locks of other formats", waiters);
}

fn micros(span: std::time::Duration) -> i64 {
    i64::try_from(span.as_micros()).unwrap_or(i64::MAX)
}

fn seconds(registry: &mut Registry, name: &str, help: &str, span: Duration) {
    let gauge = Gauge::<f64, std::sync::atomic::AtomicU64>::default();
    gauge.set(span.as_secs_f64());
    registry.register_with_unit(name, help, Unit::Seconds, gauge);
}

fn gauge(registry: &mut Registry, name: &str, help: &str, value: usize) {
    let gauge = Gauge::<i64>::default();
    gauge.set(i64::try_from(value).unwrap_or(i64::MAX));
    registry.register(name, help, gauge);
}
