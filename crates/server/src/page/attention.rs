//! What needs a person, on every page: alerts, and how many requests failed or need input.

use lockkeeper_core::alert::{Alert, Limits, raise};
use lockkeeper_core::request::RequestStatus;
use lockkeeper_engine::report::Report;

use super::texts::Texts;
use crate::state::AppState;

/// What needs a person.
#[derive(Default)]
pub(super) struct Attention {
    /// Counts that are above their limits.
    pub(super) alerts: Vec<Warning>,
    /// How many requests failed or need input, and how many alerts there are.
    pub(super) count: u64,
}

/// An alert.
pub(super) struct Warning {
    pub(super) code: &'static str,
    pub(super) tone: &'static str,
    pub(super) text: &'static str,
    /// The page that shows more.
    pub(super) href: &'static str,
}

impl Attention {
    pub(super) fn read(state: &AppState, texts: &'static Texts) -> Result<Self, Report> {
        let (listing, foreign) = (state.leases().listing()?, state.foreign_locks());
        let counts = state.counts(&listing, &foreign)?;
        let alerts = raise(&counts, &Limits::default());
        let requests = state.runs().request_counts()?;
        let open = requests
            .iter()
            .filter(|(status, _)| matches!(status, RequestStatus::Failed | RequestStatus::NeedsInput));
        let count = open.map(|(_, count)| count).sum::<u64>() + alerts.len() as u64;
        Ok(Self { alerts: alerts.iter().map(|alert| Warning::new(alert, texts)).collect(), count })
    }
}

impl Warning {
    fn new(alert: &Alert, texts: &'static Texts) -> Self {
        let (tone, text, href) = match alert {
            Alert::LongWait { .. } => ("warn", texts.alert_wait, "/locks"),
            Alert::Deadlocks { .. } => ("bad", texts.alert_deadlock, "/locks"),
            Alert::Orphans { .. } => ("warn", texts.alert_orphans, "/locks"),
            Alert::Downgrades { .. } => ("warn", texts.alert_downgrades, "/stages"),
        };
        Self { code: alert.code(), tone, text, href }
    }
}
