//! Requests, runs and events as JSON, in the one shape that every interface gives them. No secret is in it.

use std::time::Duration;

use lockkeeper_core::request::RequestStatus;
use lockkeeper_core::run::{Ending, Run};
use lockkeeper_core::secret;
use lockkeeper_core::time::Moment;
use serde_json::{Map, Value, json};

use super::view::Blocked;
use lockkeeper_platform::wall_clock::{ClockOffset, WallTime};
use lockkeeper_store::runs::{StoredEvent, StoredRequest};

/// A run.
pub fn run(run: &Run, now: Moment) -> Value {
    let dial = ClockOffset::at(now);
    let moment = |moment: Option<Moment>| moment.map(|moment| dial.utc(moment));
    let signal = match run.ending {
        Some(Ending::Signaled(signal)) => Some(signal),
        Some(Ending::Exited(_)) | None => None,
    };
    json!({
        "id": run.id.as_str(),
        "request_id": run.request.as_str(),
        "status": run.status.as_str(),
        "attempt": run.attempt,
        "claim": run.claim,
        "worker": run.worker.as_ref().map(|worker| worker.as_str()),
        "exit_code": run.ending.map(Ending::exit_code),
        "signal": signal,
        "reason_code": run.reason.map(|reason| reason.as_str()),
        "message": run.message,
        "help": run.help,
        "queued_at": time(run.queued_at.unix_micros),
        "started_at": run.started_at.map(|at| time(at.unix_micros)),
        "completed_at": run.completed_at.map(|at| time(at.unix_micros)),
        "gives_up_at": moment(run.give_up_at),
        "times_out_at": moment(run.times_out_at()),
        "retry_at": moment(run.retry_at),
        "pid": run.process.and_then(|process| process.command).map(|command| command.pid),
        "lease": run.lease.map(|(lease, _)| lease.to_string()),
        "token": run.lease.map(|(_, token)| token.0),
    })
}

/// A request and where it is.
pub fn request(stored: &StoredRequest) -> Value {
    let request = &stored.request;
    let env: Map<String, Value> =
        request.env.iter().map(|(name, value)| (name.clone(), secret::shown(name, value).into())).collect();
    json!({
        "id": request.id.as_str(),
        "title": request.title,
        "status": stored.status.as_str(),
        "locked": stored.status == RequestStatus::Running,
        "latest_run": stored.latest.as_ref().map(|run| run.as_str()),
        "command": request.command,
        "cwd": request.dir,
        "env": env,
        "locks": texts(&request.locks),
        "paths": texts(&request.paths),
        "shared": request.shared,
        "priority": request.priority.get(),
        "after": texts(&request.after),
        "unmet": stored.unmet,
        "queue_timeout": request.queue_timeout.map(seconds),
        "timeout": request.timeout.map(seconds),
        "retries": request.retry.limit,
        "backoff": seconds(request.retry.base),
        "max_backoff": seconds(request.retry.longest),
        "retry_on": request.retry.codes,
        "success": request.success,
        "key": request.key,
        "origin": request.origin,
        "created_at": time(stored.created_at),
    })
}

/// An event.
pub fn event(event: &StoredEvent) -> Value {
    json!({
        "id": event.id.to_string(),
        "run_id": event.id.run.as_str(),
        "request_id": event.request,
        "at": time(event.at),
        "kind": event.kind,
        "from": event.from,
        "to": event.to,
        "attempt": event.attempt,
        "claim": event.claim,
        "reason_code": event.reason,
        "message": event.message,
    })
}

/// Why a run has not begun.
pub fn blocked(blocked: &Blocked, now: Moment) -> Value {
    match blocked {
        Blocked::Dependencies(requests) => {
            let requests: Vec<&str> = requests.iter().map(|request| request.as_str()).collect();
            json!({ "because": "dependencies", "requests": requests })
        }
        Blocked::Retry(at) => json!({ "because": "retry", "retry_at": ClockOffset::at(now).utc(*at) }),
        Blocked::Position(ahead) => json!({ "because": "queue", "ahead": ahead }),
        Blocked::Behind(ahead) => json!({ "because": "queue", "ahead": ahead, "or_more": true }),
        Blocked::NoWorker => json!({ "because": "no_worker" }),
    }
}

/// A time on the wall clock, as every interface writes it.
pub fn time(unix_micros: i64) -> String {
    WallTime::from_micros(unix_micros).to_string()
}

/// A span in seconds, without a fraction where there is none.
pub fn seconds(span: Duration) -> Value {
    if span.subsec_nanos() == 0 { span.as_secs().into() } else { span.as_secs_f64().into() }
}

fn texts<T: ToString>(words: &[T]) -> Vec<String> {
    words.iter().map(ToString::to_string).collect()
}
