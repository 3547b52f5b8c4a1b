//! Metrics in the OpenMetrics text format: HTTP requests since the start, and leases at this moment.
//!
//! Each of the four alerts is a metric beside its value, so that a rule needs no threshold.
//! `examples/alerts.rules.yml` has rules for all of them.

use std::fmt;

use axum::extract::{MatchedPath, Request, State};
use axum::http::header::{CONTENT_TYPE, LOCATION};
use axum::middleware::Next;
use axum::response::{IntoResponse, Response};
use lockkeeper_core::alert::{Counts, Limits, raise};
use lockkeeper_engine::Listing;
use lockkeeper_engine::evidence::verdict_word;
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
struct StateLabel {
    state: &'static str,
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
    if super::access_policy::is_safe(&method) {
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
    let (listing, counts) = state
        .blocking(|state| {
            let listing = state.leases().listing()?;
            let counts = state.counts(&listing)?;
            Ok((listing, counts))
        })
        .await?;
    let text = state.render(&listing, counts).map_err(|error| ApiError::internal(error.to_string()))?;
    Ok(([(CONTENT_TYPE, OPEN_METRICS)], text).into_response())
}

impl AppState {
    fn render(&self, listing: &Listing, counts: Counts) -> Result<String, fmt::Error> {
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
        locks(&mut registry, listing, counts);
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
    let help = "How long the longest wait lasts already";
    let seconds = Gauge::<f64, std::sync::atomic::AtomicU64>::default();
    seconds.set(counts.longest_wait.as_secs_f64());
    registry.register_with_unit("longest_wait", help, Unit::Seconds, seconds);
    gauge(registry, "deadlocks", "Circles of waits that never end", counts.deadlocks);
    gauge(registry, "orphan_locks", "Leases whose holders are gone", counts.orphans);
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

fn micros(span: std::time::Duration) -> i64 {
    i64::try_from(span.as_micros()).unwrap_or(i64::MAX)
}

fn gauge(registry: &mut Registry, name: &str, help: &str, value: usize) {
    let gauge = Gauge::<i64>::default();
    gauge.set(i64::try_from(value).unwrap_or(i64::MAX));
    registry.register(name, help, gauge);
}
