//! View of a request.

use std::time::Duration;

use lockkeeper_core::request::RequestStatus;
use lockkeeper_core::secret;
use lockkeeper_store::runs::StoredRequest;
use serde::{Serialize, Serializer};

use super::{RunView, time};

/// A request: a command to be executed.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema), schema(as = Request))]
pub struct RequestView {
    /// Its id.
    pub id: String,
    /// Its title.
    pub title: String,
    /// `QUEUED`, `RUNNING`, `DONE`, `NEEDS_INPUT`, `FAILED` or `CANCELED`.
    pub status: String,
    /// True while a run of it is executed: no second run can start.
    pub locked: bool,
    /// Its latest run; null when every run was rejected.
    pub latest_run: Option<LatestRun>,
    /// The command with its arguments.
    pub command: Vec<String>,
    /// The working directory of the command.
    pub cwd: String,
    /// Variables for the command. Values that look like secrets are masked.
    #[serde(serialize_with = "as_object")]
    #[cfg_attr(feature = "openapi", schema(value_type = std::collections::HashMap<String, String>))]
    pub env: Vec<(String, String)>,
    /// Names that it holds while it runs.
    pub locks: Vec<String>,
    /// Patterns over paths that it holds while it runs.
    pub paths: Vec<String>,
    /// Whether it shares what it holds with others that share.
    pub shared: bool,
    /// Labels of workers: only a worker that has all of them runs it.
    pub needs: Vec<String>,
    /// Its priority, from −100 to 100.
    pub priority: i32,
    /// Requests that have to be done first.
    pub after: Vec<String>,
    /// How many of those are not done.
    pub unmet: u32,
    /// How long a run may stay in the queue, in seconds.
    pub queue_timeout: Option<Seconds>,
    /// How long a run may take, in seconds.
    pub timeout: Option<Seconds>,
    /// How many times a failed attempt is repeated.
    pub retries: u32,
    /// The pause before the first repetition, in seconds.
    pub backoff: Seconds,
    /// The longest pause between two attempts, in seconds.
    pub max_backoff: Seconds,
    /// Exit codes that are repeated; empty for all.
    pub retry_on: Vec<u8>,
    /// Exit codes that count as success.
    pub success: Vec<u8>,
    /// The deduplication key.
    pub key: Option<String>,
    /// What created it, if not a user.
    pub origin: Option<String>,
    /// When it was submitted.
    pub created_at: String,
}

/// The latest run of a request: its id, or where a list includes runs, all of it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(untagged)]
pub enum LatestRun {
    /// Its id.
    Id(String),
    /// The run itself.
    Run(Box<RunView>),
}

impl RequestView {
    /// Shows a request with the id of its latest run.
    pub fn new(stored: &StoredRequest) -> Self {
        let request = &stored.request;
        let env =
            request.env.iter().map(|(name, value)| (name.clone(), secret::shown(name, value).into_owned()));
        Self {
            id: request.id.to_string(),
            title: request.title.clone(),
            status: stored.status.to_string(),
            locked: stored.status == RequestStatus::Running,
            latest_run: stored.latest.as_ref().map(|run| LatestRun::Id(run.to_string())),
            command: secret::shown_command(&request.command),
            cwd: request.dir.clone(),
            env: env.collect(),
            locks: texts(&request.locks),
            paths: texts(&request.paths),
            shared: request.shared,
            needs: texts(&request.needs),
            priority: request.priority.get(),
            after: texts(&request.after),
            unmet: stored.unmet,
            queue_timeout: request.queue_timeout.map(Seconds),
            timeout: request.timeout.map(Seconds),
            retries: request.retry.limit,
            backoff: Seconds(request.retry.base),
            max_backoff: Seconds(request.retry.longest),
            retry_on: request.retry.codes.clone(),
            success: request.success.clone(),
            key: request.key.clone(),
            origin: request.origin.clone(),
            created_at: time(stored.created_at),
        }
    }
}

/// A duration in seconds, written without a fraction where there is none.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema), schema(value_type = f64))]
pub struct Seconds(pub Duration);

impl Serialize for Seconds {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        if self.0.subsec_nanos() == 0 {
            serializer.serialize_u64(self.0.as_secs())
        } else {
            serializer.serialize_f64(self.0.as_secs_f64())
        }
    }
}

/// Pairs as a JSON object, in their own order.
fn as_object<S: Serializer>(pairs: &[(String, String)], serializer: S) -> Result<S::Ok, S::Error> {
    serializer.collect_map(pairs.iter().map(|(name, value)| (name, value)))
}

fn texts<T: ToString>(values: &[T]) -> Vec<String> {
    values.iter().map(ToString::to_string).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn whole_seconds_have_no_fraction() {
        let written = |millis| serde_json::to_string(&Seconds(Duration::from_millis(millis))).unwrap();
        assert_eq!([written(90_000), written(1_500), written(0)], ["90", "1.5", "0"]);
    }
}
