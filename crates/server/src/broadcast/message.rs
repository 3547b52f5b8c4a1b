//! Messages of the event stream: what is written into the `data` of an event.

use std::sync::Arc;

use lockkeeper_engine::queue::QueueStop;
use lockkeeper_engine::runs::{AutoRun, StoredEvent};
use lockkeeper_engine::views::{EventView, LeaseView, TicketView};
use serde::Serialize;
use utoipa::ToSchema;

use crate::json;

/// A change that is sent to all event streams: the `data` of an event. `type` says what happened.
#[derive(Debug, Serialize, ToSchema)]
#[schema(as = StreamEvent)]
#[serde(untagged)]
pub(crate) enum Message {
    /// A lease changed.
    Lease {
        #[serde(rename = "type")]
        kind: &'static str,
        lease: LeaseView,
    },
    /// A ticket changed.
    Ticket {
        #[serde(rename = "type")]
        kind: &'static str,
        ticket: TicketView,
    },
    /// A run moved.
    Run {
        #[serde(rename = "type")]
        kind: String,
        event: EventView,
        /// The position of the event in the store.
        #[serde(skip)]
        position: u64,
    },
    /// The auto-run of the queue changed.
    Queue {
        #[serde(rename = "type")]
        kind: &'static str,
        auto_run: Option<AutoRunChange>,
    },
    /// An execution of stages changed.
    Stages {
        #[serde(rename = "type")]
        kind: &'static str,
        execution_id: String,
    },
}

/// An auto-run in the event stream.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct AutoRunChange {
    /// The worker that executes the queue.
    worker: String,
    /// How many runs it has started.
    runs: u32,
    /// The latest of them.
    current_run_id: Option<String>,
    /// Whether it was asked to stop.
    stopping: bool,
    /// Why it ended; null while it goes on.
    ended: Option<String>,
}

impl Message {
    pub(super) fn lease(kind: &'static str, lease: LeaseView) -> Self {
        Self::Lease { kind, lease }
    }

    pub(super) fn ticket(kind: &'static str, ticket: TicketView) -> Self {
        Self::Ticket { kind, ticket }
    }

    pub(crate) fn run(event: &StoredEvent) -> Self {
        let (kind, position) = (format!("run.{}", event.kind), event.position);
        Self::Run { kind, event: EventView::new(event), position }
    }

    /// The position of an event of a run in the store.
    pub(super) const fn position(&self) -> Option<u64> {
        match self {
            Self::Run { position, .. } => Some(*position),
            Self::Lease { .. } | Self::Ticket { .. } | Self::Queue { .. } | Self::Stages { .. } => None,
        }
    }

    pub(super) fn queue(auto_run: Option<&AutoRun>) -> Self {
        let auto_run = auto_run.map(|auto| AutoRunChange {
            worker: auto.worker.to_string(),
            runs: auto.runs,
            current_run_id: auto.current.as_ref().map(ToString::to_string),
            stopping: auto.stop,
            ended: QueueStop::of(auto)
                .map(|stop| stop.reason.as_str().to_owned())
                .or_else(|| auto.ended.clone()),
        });
        Self::Queue { kind: "queue.changed", auto_run }
    }

    pub(super) fn stages(kind: &'static str, execution_id: String) -> Self {
        Self::Stages { kind, execution_id }
    }

    /// The topic, which is the name of the event in the stream.
    pub(super) const fn topic(&self) -> &'static str {
        match self {
            Self::Lease { .. } => "lease",
            Self::Ticket { .. } => "ticket",
            Self::Run { .. } => "run",
            Self::Queue { .. } => "queue",
            Self::Stages { .. } => "stages",
        }
    }

    /// The message as one line of JSON.
    pub(crate) fn to_line(&self) -> Arc<str> {
        json::text(self).expect("strings and numbers can always be serialized").into()
    }
}
