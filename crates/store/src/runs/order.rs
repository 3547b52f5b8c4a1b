//! The order of claims. The same for all backends.

use std::cmp::Reverse;

use lockkeeper_core::request::Request;
use lockkeeper_core::run::Run;

/// Runs whose next attempt is due, and queued runs: by priority, and among equals the due ones first.
pub(super) fn in_order(due: Vec<(Run, Request)>, ready: Vec<(Run, Request)>) -> Vec<(Run, Request)> {
    if due.is_empty() {
        return ready;
    }
    let mut all = due;
    all.extend(ready);
    all.sort_by_key(|(_, request)| Reverse(request.priority.get()));
    all
}
