//! Conflict graph of open requests: pairs whose paths overlap, so that the later one has to wait.

use std::collections::HashSet;

use lockkeeper_core::conflict::{Action, Conflict, Group, detect};
use lockkeeper_core::request::RequestStatus;
use lockkeeper_engine::report::Report;
use lockkeeper_engine::runs::{RequestEntry, RequestFilter};
use lockkeeper_stages::picture::Mark;
use lockkeeper_stages::{ConflictView, GroupView, PlanView};

use super::conflict_graph::ConflictGraph;
use super::status::of_request;
use super::texts::Texts;
use crate::state::AppState;

/// How many open requests are compared.
const MAX_REQUESTS: usize = 300;
/// How many pairs are shown.
const MAX_PAIRS: usize = 100;
/// The columns: running requests are on the left.
const COLUMNS: [RequestStatus; 2] = [RequestStatus::Running, RequestStatus::Queued];

/// Draws the graph; none when no requests conflict.
pub(super) fn request_conflicts(
    state: &AppState,
    texts: &'static Texts,
) -> Result<Option<ConflictGraph>, Report> {
    let filter =
        RequestFilter { statuses: COLUMNS.to_vec(), limit: MAX_REQUESTS, ..RequestFilter::default() };
    let mut entries = state.runs().requests(&filter)?;
    // The oldest request is on top.
    entries.reverse();
    // The agents of a group hold its paths together, so one of them is enough.
    let mut conductors = HashSet::new();
    entries.retain(|entry| {
        let conductor = entry.request.request.conductor();
        conductor.is_none_or(|conductor| conductors.insert(conductor.to_owned()))
    });
    let found = conflicts(&entries);
    if found.is_empty() {
        return Ok(None);
    }
    let left_out = found.len().saturating_sub(MAX_PAIRS);
    let found = &found[..found.len() - left_out];
    let id = |place: usize| entries[place].request.request.id.as_str();
    let conflicts = found.iter().map(|found| {
        let shape = ConflictView::of(found, [id(found.group1), id(found.group2)], None);
        // There are no rules for requests: the later one waits.
        ConflictView { severity: String::new(), action: String::new(), ..shape }
    });
    let takes_part = |place: &usize| found.iter().any(|found| [found.group1, found.group2].contains(place));
    let (mut groups, mut marks) = (Vec::new(), Vec::new());
    let mut columns = COLUMNS.map(|_| Vec::new());
    for place in (0..entries.len()).filter(takes_part) {
        let (request, status) = (&entries[place].request.request, entries[place].request.status);
        let conflict_paths = request.paths.iter().map(|path| path.as_str().to_owned()).collect();
        groups.push(GroupView { group_id: id(place).to_owned(), conflict_paths, ..GroupView::default() });
        let badge = of_request(status, texts);
        marks.push(Mark { tone: badge.tone, text: badge.text });
        columns[usize::from(status != COLUMNS[0])].push(id(place).to_owned());
    }
    let named = COLUMNS.iter().map(|status| of_request(*status, texts).text).zip(columns);
    let (names, columns): (Vec<&str>, Vec<Vec<String>>) = named.filter(|(_, ids)| !ids.is_empty()).unzip();
    let plan = PlanView::of_conflicts(groups, columns, conflicts.collect());
    let drawn = ConflictGraph::in_columns(&plan, "requests".to_owned(), texts, &marks, &names);
    Ok(Some(ConflictGraph { href: Some("/requests/"), left_out, ..drawn }))
}

/// The pairs that cannot hold their paths at the same time.
fn conflicts(entries: &[RequestEntry]) -> Vec<Conflict> {
    let request = |place: usize| &entries[place].request.request;
    let groups: Vec<Group> = (0..entries.len())
        .map(|place| Group { id: request(place).id.to_string(), paths: request(place).paths.clone() })
        .collect();
    let mut found = detect(&groups, &[], Action::MutexLock).conflicts;
    found.retain(|found| !(request(found.group1).shared && request(found.group2).shared));
    found
}
