//! Spans of requests and of attempts at runs, and their OTLP/JSON form.

use std::hash::{DefaultHasher, Hash, Hasher};
use std::time::Duration;

use axum::http::{Method, StatusCode};
use lockkeeper_core::run::Run;
use lockkeeper_platform::random;
use lockkeeper_platform::wall_clock::WallTime;
use serde_json::{Value, json};

/// The span kinds of OTLP that are used here.
const INTERNAL: u8 = 1;
const SERVER: u8 = 2;
/// Status code of OTLP for an error.
const ERROR: u8 = 2;

/// A span.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Span {
    trace: u128,
    id: u64,
    parent: Option<u64>,
    name: String,
    kind: u8,
    began_at: WallTime,
    took: Duration,
    attributes: Vec<(&'static str, Value)>,
    failed: bool,
}

/// The parent span of a request, from the header `traceparent`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct TraceParent {
    trace: u128,
    span: u64,
}

impl TraceParent {
    /// Parses `00-TRACE-SPAN-FLAGS`; none when it has another form.
    pub(crate) fn read(text: &str) -> Option<Self> {
        let mut parts = text.split('-');
        let (version, trace, span, flags) = (parts.next()?, parts.next()?, parts.next()?, parts.next()?);
        let is_hex = |part: &str, length: usize| {
            part.len() == length && part.bytes().all(|byte| matches!(byte, b'0'..=b'9' | b'a'..=b'f'))
        };
        if !is_hex(version, 2)
            || version == "ff"
            || !is_hex(trace, 32)
            || !is_hex(span, 16)
            || !is_hex(flags, 2)
        {
            return None;
        }
        let (trace, span) = (u128::from_str_radix(trace, 16).ok()?, u64::from_str_radix(span, 16).ok()?);
        (trace != 0 && span != 0).then_some(Self { trace, span })
    }
}

impl Span {
    /// The span of an HTTP request.
    pub(crate) fn of_request(
        method: &Method,
        route: &str,
        status: StatusCode,
        began_at: WallTime,
        took: Duration,
        parent: Option<TraceParent>,
    ) -> Self {
        let attributes = vec![
            ("http.request.method", Value::from(method.as_str())),
            ("http.route", Value::from(route)),
            ("http.response.status_code", Value::from(status.as_u16())),
        ];
        Self {
            trace: parent
                .map_or_else(|| u128::from(number()) << 64 | u128::from(number()), |parent| parent.trace),
            id: number(),
            parent: parent.map(|parent| parent.span),
            name: format!("{method} {route}"),
            kind: SERVER,
            began_at,
            took,
            attributes,
            failed: status.is_server_error(),
        }
    }

    /// The span of an attempt that has ended; none when it never started. All attempts at one run are one trace.
    pub(crate) fn of_attempt(run: &Run, now: WallTime) -> Option<Self> {
        let began_at = WallTime::from_micros(run.started_at()?.unix_micros);
        let ended_at = run.completed_at().map_or(now, |at| WallTime::from_micros(at.unix_micros));
        let mut attributes = vec![
            ("lockkeeper.run.id", Value::from(run.id.as_str())),
            ("lockkeeper.request.id", Value::from(run.request.as_str())),
            ("lockkeeper.run.attempt", Value::from(run.attempt())),
            ("lockkeeper.run.status", Value::from(run.status().as_str())),
        ];
        attributes.extend(run.ending().map(|ending| ("process.exit.code", Value::from(ending.exit_code()))));
        attributes.extend(run.reason().map(|reason| ("lockkeeper.run.reason", Value::from(reason.as_str()))));
        let hash = |seed: u8| {
            let mut hasher = DefaultHasher::new();
            (seed, run.id.as_str()).hash(&mut hasher);
            hasher.finish()
        };
        Some(Self {
            trace: u128::from(hash(0)) << 64 | u128::from(hash(1)),
            id: number(),
            parent: None,
            name: "run".to_owned(),
            kind: INTERNAL,
            began_at,
            took: ended_at.since(began_at),
            attributes,
            failed: run.reason().is_some(),
        })
    }

    /// Adds an attribute.
    pub(crate) fn with(mut self, key: &'static str, value: &str) -> Self {
        self.attributes.push((key, value.into()));
        self
    }

    fn to_json(&self) -> Value {
        let end = self.began_at.after(self.took);
        let nanoseconds = |time: WallTime| format!("{}000", time.as_micros());
        let mut span = json!({
            "traceId": format!("{:032x}", self.trace),
            "spanId": format!("{:016x}", self.id),
            "name": self.name,
            "kind": self.kind,
            "startTimeUnixNano": nanoseconds(self.began_at),
            "endTimeUnixNano": nanoseconds(end),
            "attributes": self.attributes.iter().map(|(key, value)| attribute(key, value)).collect::<Vec<_>>(),
        });
        if let Some(parent) = self.parent {
            span["parentSpanId"] = format!("{parent:016x}").into();
        }
        if self.failed {
            span["status"] = json!({ "code": ERROR });
        }
        span
    }
}

/// The document that a collector receives.
pub(super) fn document(spans: &[Span], service: &str) -> Value {
    let version = env!("CARGO_PKG_VERSION");
    let resource = [("service.name", Value::from(service)), ("service.version", Value::from(version))];
    json!({ "resourceSpans": [{
        "resource": { "attributes": resource.map(|(key, value)| attribute(key, &value)) },
        "scopeSpans": [{
            "scope": { "name": "lockkeeper", "version": version },
            "spans": spans.iter().map(Span::to_json).collect::<Vec<_>>(),
        }],
    }] })
}

/// An attribute. OTLP/JSON writes integers as strings.
fn attribute(key: &str, value: &Value) -> Value {
    let value = match value {
        Value::Number(number) => json!({ "intValue": number.to_string() }),
        Value::Bool(truth) => json!({ "boolValue": truth }),
        Value::String(text) => json!({ "stringValue": text }),
        Value::Null | Value::Array(_) | Value::Object(_) => json!({ "stringValue": value.to_string() }),
    };
    json!({ "key": key, "value": value })
}

/// A random id; 1 when the system has no random source.
fn number() -> u64 {
    random::number().unwrap_or(1).max(1)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_a_whole_traceparent_counts() {
        let good = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01";
        let read = TraceParent::read(good).unwrap();
        assert_eq!(
            (read.trace, read.span),
            (0x4bf9_2f35_77b3_4da6_a3ce_929d_0e0e_4736, 0x00f0_67aa_0ba9_02b7)
        );
        for bad in [
            "",
            "00",
            "ff-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01",
            "00-00000000000000000000000000000000-00f067aa0ba902b7-01",
            "00-4bf92f3577b34da6a3ce929d0e0e4736-0000000000000000-01",
            "00-4BF92F3577B34DA6A3CE929D0E0E4736-00f067aa0ba902b7-01",
            "00-4bf92f3577b34da6a3ce929d0e0e473-00f067aa0ba902b7-01",
            "00-+bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01",
        ] {
            assert_eq!(TraceParent::read(bad), None, "{bad}");
        }
    }

    #[test]
    fn a_span_is_written_as_the_protocol_has_it() {
        let parent = TraceParent { trace: 10, span: 11 };
        let (began_at, took) = (WallTime::from_micros(1_000_000), Duration::from_micros(7));
        let status = StatusCode::INTERNAL_SERVER_ERROR;
        let span = Span::of_request(&Method::GET, "/api/runs", status, began_at, took, Some(parent));
        let written = document(&[span], "name")["resourceSpans"][0].take();
        assert_eq!(written["resource"]["attributes"][0]["value"]["stringValue"], "name");
        let span = &written["scopeSpans"][0]["spans"][0];
        assert_eq!(span["traceId"], "0000000000000000000000000000000a");
        assert_eq!(span["parentSpanId"], "000000000000000b");
        assert_eq!(
            (&span["startTimeUnixNano"], &span["endTimeUnixNano"]),
            (&json!("1000000000"), &json!("1000007000"))
        );
        assert_eq!(
            span["attributes"][2],
            json!({ "key": "http.response.status_code", "value": { "intValue": "500" } })
        );
        assert_eq!((&span["kind"], &span["status"]["code"]), (&json!(2), &json!(2)));
    }
}
