//! Which requests that are not done can touch one same path, so that the later one waits.

use lockkeeper_core::conflict::{Action, Conflict, Group, detect};
use lockkeeper_core::request::{Request, RequestStatus};

use super::super::site::Site;
use super::collisions::Collisions;
use super::status::of_request;
use super::words::Words;
use crate::engine::runs::RequestEntry;
use crate::report::Report;
use crate::stages::picture::Mark;
use crate::stages::{ConflictShape, GroupShape, PlanShape};
use crate::store::runs::RequestFilter;

/// So many are compared.
const MOST: usize = 1_000;
/// Running ones stand on the left.
const COLUMNS: [RequestStatus; 2] = [RequestStatus::Running, RequestStatus::Queued];

/// Draws them; nothing when none collide.
pub(super) fn open_requests(site: &Site, words: &'static Words) -> Result<Option<Collisions>, Report> {
    let filter = RequestFilter { statuses: COLUMNS.to_vec(), limit: MOST, ..RequestFilter::default() };
    let entries = site.runs().requests(&filter)?;
    let found = collisions(&entries);
    if found.is_empty() {
        return Ok(None);
    }
    let id = |place: usize| entries[place].request.request.id.as_str();
    let conflicts =
        found.iter().map(|found| ConflictShape::of(found, [id(found.group1), id(found.group2)], None));
    let takes_part = |place: &usize| found.iter().any(|found| [found.group1, found.group2].contains(place));
    let (mut groups, mut marks) = (Vec::new(), Vec::new());
    let mut columns = COLUMNS.map(|_| Vec::new());
    for place in (0..entries.len()).filter(takes_part) {
        let (request, status) = (&entries[place].request.request, entries[place].request.status);
        let conflict_paths = request.paths.iter().map(|path| path.as_str().to_owned()).collect();
        groups.push(GroupShape { group_id: id(place).to_owned(), conflict_paths, ..GroupShape::default() });
        let badge = of_request(status, words);
        marks.push(Mark { tone: badge.tone, text: badge.text });
        columns[usize::from(status != COLUMNS[0])].push(id(place).to_owned());
    }
    let columns = columns.into_iter().filter(|ids| !ids.is_empty()).collect();
    let plan = PlanShape::of_conflicts(groups, columns, conflicts.collect());
    let drawn = Collisions::new(&plan, "requests".to_owned(), words, &marks);
    Ok(Some(Collisions { href: Some("/requests/"), ..drawn }))
}

/// The pairs that cannot hold their paths at the same time.
fn collisions(entries: &[RequestEntry]) -> Vec<Conflict> {
    let request = |place: usize| &entries[place].request.request;
    let groups: Vec<Group> = (0..entries.len())
        .map(|place| Group { id: request(place).id.to_string(), paths: request(place).paths.clone() })
        .collect();
    let mut found = detect(&groups, &[], Action::MutexLock).conflicts;
    found.retain(|found| excludes(request(found.group1), request(found.group2)));
    found
}

/// Two that share do not wait for each other, and neither do agents of one group.
fn excludes(one: &Request, other: &Request) -> bool {
    let are_shared = one.shared && other.shared;
    let of_one_group = one.conductor().is_some() && one.conductor() == other.conductor();
    !are_shared && !of_one_group
}
