//! Which requests that are not done can touch one same path, so that the later one waits.

use std::collections::HashSet;

use lockkeeper_core::conflict::{Action, Conflict, Group, detect};
use lockkeeper_core::request::RequestStatus;

use super::super::site::Site;
use super::collisions::Collisions;
use super::status::of_request;
use super::words::Words;
use lockkeeper_engine::report::Report;
use lockkeeper_engine::runs::RequestEntry;
use lockkeeper_stages::picture::Mark;
use lockkeeper_stages::{ConflictView, GroupView, PlanView};
use lockkeeper_store::runs::RequestFilter;

/// So many are compared.
const MOST: usize = 300;
/// So many pairs are told of.
const MOST_PAIRS: usize = 100;
/// Running ones stand on the left.
const COLUMNS: [RequestStatus; 2] = [RequestStatus::Running, RequestStatus::Queued];

/// Draws them; nothing when none collide.
pub(super) fn open_requests(site: &Site, words: &'static Words) -> Result<Option<Collisions>, Report> {
    let filter = RequestFilter { statuses: COLUMNS.to_vec(), limit: MOST, ..RequestFilter::default() };
    let mut entries = site.runs().requests(&filter)?;
    // The first to come stands on top.
    entries.reverse();
    // The agents of a group hold its paths together: one of them stands for all.
    let mut conductors = HashSet::new();
    entries.retain(|entry| {
        let conductor = entry.request.request.conductor();
        conductor.is_none_or(|conductor| conductors.insert(conductor.to_owned()))
    });
    let found = collisions(&entries);
    if found.is_empty() {
        return Ok(None);
    }
    let left_out = found.len().saturating_sub(MOST_PAIRS);
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
        let badge = of_request(status, words);
        marks.push(Mark { tone: badge.tone, text: badge.text });
        columns[usize::from(status != COLUMNS[0])].push(id(place).to_owned());
    }
    let named = COLUMNS.iter().map(|status| of_request(*status, words).text).zip(columns);
    let (names, columns): (Vec<&str>, Vec<Vec<String>>) = named.filter(|(_, ids)| !ids.is_empty()).unzip();
    let plan = PlanView::of_conflicts(groups, columns, conflicts.collect());
    let drawn = Collisions::in_columns(&plan, "requests".to_owned(), words, &marks, &names);
    Ok(Some(Collisions { href: Some("/requests/"), left_out, ..drawn }))
}

/// The pairs that cannot hold their paths at the same time.
fn collisions(entries: &[RequestEntry]) -> Vec<Conflict> {
    let request = |place: usize| &entries[place].request.request;
    let groups: Vec<Group> = (0..entries.len())
        .map(|place| Group { id: request(place).id.to_string(), paths: request(place).paths.clone() })
        .collect();
    let mut found = detect(&groups, &[], Action::MutexLock).conflicts;
    found.retain(|found| !(request(found.group1).shared && request(found.group2).shared));
    found
}
