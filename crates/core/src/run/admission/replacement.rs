//! Replacement: submits requests whose ids may be in use. A request that exists gets the new definition and a new run.
//!
//! The definition of a run never changes: a worker may wait for the locks of a queued run, and would execute the new
//! command under the old locks. So a queued run is canceled, and the new run takes its turn by its own age.

use std::collections::{HashMap, HashSet};

use super::{Refusal, Submission, Submitted, in_order};
use crate::id::RequestId;
use crate::request::{Request, find_cycle};
use crate::run::transition::{self, Transition};
use crate::run::{Run, Stamp, Status};

/// The records that a decision about a replacement needs: the requests of the submission that exist, each with its latest
/// run, and all requests that they will depend on, directly or through others.
#[derive(Clone, Debug, Default)]
pub struct Existing(HashMap<RequestId, (Request, Option<Run>)>);

impl Existing {
    /// Reads these records. `read` returns a request with its latest run that was not rejected; none if there is no such
    /// request.
    pub fn read<E>(
        requests: &[Request],
        mut read: impl FnMut(&RequestId) -> Result<Option<(Request, Option<Run>)>, E>,
    ) -> Result<Self, E> {
        let replaced: HashSet<&RequestId> = requests.iter().map(|request| &request.id).collect();
        let of_submission = requests.iter().flat_map(|request| request.after.iter().chain([&request.id]));
        let mut open: Vec<RequestId> = of_submission.cloned().collect();
        let mut found = HashMap::new();
        while let Some(id) = open.pop() {
            if found.contains_key(&id) {
                continue;
            }
            let Some((request, latest)) = read(&id)? else { continue };
            if !replaced.contains(&id) {
                open.extend(request.after.iter().cloned());
            }
            found.insert(id, (request, latest));
        }
        Ok(Self(found))
    }

    fn has(&self, id: &RequestId) -> bool {
        self.0.contains_key(id)
    }

    /// The latest run of a request, unless all its runs were rejected.
    fn latest(&self, id: &RequestId) -> Option<&Run> {
        self.0.get(id)?.1.as_ref()
    }
}

/// A request to write, with its new run. A store writes its parts in the order of the fields.
#[derive(Clone, Debug)]
#[must_use = "nothing has changed until a store has written it"]
pub struct Replacement<'s> {
    /// Cancels the queued run of the request, if it has one.
    pub cancel: Option<Transition>,
    /// The new definition.
    pub request: &'s Request,
    /// Whether the request exists: its definition is replaced. Otherwise it is inserted.
    pub exists: bool,
    /// The new run and its event.
    pub first: Transition,
}

impl Replacement<'_> {
    /// The answer for the submitter.
    pub fn submitted(&self) -> Submitted {
        let (request, run) = (self.request.id.clone(), self.first.run.id.clone());
        Submitted { request, run, existing: false, replaced: self.exists }
    }
}

/// Decides about a submission that replaces: all requests are written, or none. Requests come before those that depend
/// on them. No refusal is recorded.
///
/// `queue_length` is the number of queued runs. It only matters if there is a limit.
pub fn replace<'s>(
    submission: &Submission<'s>,
    existing: &Existing,
    queue_length: u64,
    now: Stamp,
) -> Result<Vec<Replacement<'s>>, Refusal> {
    let Submission { requests, runs, queue_limit, forbidden } = *submission;
    check_dependencies(requests, existing)?;
    if let (Some(why), Some(request)) = (forbidden, requests.first()) {
        return Err(Refusal::Forbidden { request: request.id.clone(), run: None, why: why.to_owned() });
    }
    let mut replacements = Vec::with_capacity(requests.len());
    for (request, run) in in_order(requests).into_iter().zip(runs) {
        let cancel =
            existing.latest(&request.id).map(|latest| cancel_queued(latest, request, run.as_str(), now));
        let cancel = cancel.transpose()?.flatten();
        let first = transition::submit(request, run.clone(), now);
        replacements.push(Replacement { cancel, request, exists: existing.has(&request.id), first });
    }
    if let Some(limit) = queue_limit {
        check_limit(&replacements, queue_length, limit)?;
    }
    Ok(replacements)
}

/// Checks that the ids are different, that all dependencies will exist, and that they form no cycle.
fn check_dependencies(requests: &[Request], existing: &Existing) -> Result<(), Refusal> {
    let mut new = HashSet::new();
    if let Some(twice) = requests.iter().find(|request| !new.insert(&request.id)) {
        return Err(Refusal::Duplicate { request: twice.id.clone(), run: None });
    }
    for request in requests {
        let missing = request.after.iter().find(|after| !new.contains(after) && !existing.has(after));
        if let Some(after) = missing {
            return Err(Refusal::MissingDependency { request: request.id.clone(), after: after.clone() });
        }
    }
    let kept = existing.0.iter().filter(|(id, _)| !new.contains(id));
    let kept = kept.map(|(id, (request, _))| (id, request.after.as_slice()));
    let all = requests.iter().map(|request| (&request.id, request.after.as_slice())).chain(kept);
    find_cycle(all).map_or(Ok(()), |cycle| Err(Refusal::Cycle { cycle }))
}

/// Cancels the latest run of a request if it is queued. Nothing if it has ended; an error if it is executed, or waits for
/// its next attempt.
fn cancel_queued(
    latest: &Run,
    request: &Request,
    new: &str,
    now: Stamp,
) -> Result<Option<Transition>, Refusal> {
    let status = latest.status();
    match status {
        Status::Queued => {
            let canceled = transition::cancel(latest, now, Some(format!("replaced by {new}")));
            Ok(Some(canceled.expect("a queued run can be canceled")))
        }
        Status::Running | Status::Cancelling => {
            Err(Refusal::InProgress { request: request.id.clone(), run: latest.id.clone(), status })
        }
        Status::Succeeded | Status::Failed | Status::Canceled | Status::TimedOut | Status::Rejected => {
            Ok(None)
        }
    }
}

/// Checks that the queue has room. A run that takes the place of a queued one needs none.
fn check_limit(replacements: &[Replacement<'_>], length: u64, limit: u64) -> Result<(), Refusal> {
    let canceled = replacements.iter().filter(|one| one.cancel.is_some()).count() as u64;
    let more = replacements.len() as u64 - canceled;
    match replacements.iter().find(|one| one.cancel.is_none()) {
        Some(one) if length + more > limit => {
            Err(Refusal::QueueFull { request: one.request.id.clone(), run: None, length })
        }
        Some(_) | None => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::id::RunId;
    use crate::run::Ending;
    use crate::run::transition::{AttemptOutcome, Claimant, FinishPolicy};
    use crate::time::Moment;

    const NOW: Stamp = Stamp { moment: Moment::from_micros(1), unix_micros: 1 };

    fn request(id: &str, after: &[&str]) -> Request {
        let after = after.iter().map(|id| id.parse().unwrap()).collect();
        Request { after, ..Request::new(id.parse().unwrap(), vec!["true".to_owned()], "/".to_owned()) }
    }

    /// A queued run of a request.
    fn queued(request: &Request) -> Run {
        transition::submit(request, format!("RUN-old-{}", request.id).parse().unwrap(), NOW).run
    }

    /// Decides with these requests in the store. Each answer is the id, and whether it exists and a run is canceled.
    fn decide(
        submitted: &[Request],
        stored: &[(Request, Option<Run>)],
        limit: Option<u64>,
    ) -> Result<Vec<(String, bool, bool)>, Refusal> {
        let existing = Existing::read(submitted, |id| {
            Ok::<_, std::convert::Infallible>(stored.iter().find(|(request, _)| request.id == *id).cloned())
        });
        let length =
            stored.iter().flat_map(|(_, run)| run).filter(|run| run.status() == Status::Queued).count();
        let runs: Vec<RunId> = (0..submitted.len()).map(|n| format!("RUN-{n}").parse().unwrap()).collect();
        let submission = Submission { requests: submitted, runs: &runs, queue_limit: limit, forbidden: None };
        let decided = replace(&submission, &existing.unwrap(), length as u64, NOW)?;
        Ok(decided.iter().map(|one| (one.request.id.to_string(), one.exists, one.cancel.is_some())).collect())
    }

    #[test]
    fn only_a_queued_run_is_canceled() {
        let (a, b) = (request("a", &[]), request("b", &["a"]));
        let stored = [(a.clone(), Some(queued(&a))), (b.clone(), None)];
        let decided = decide(&[b, a, request("c", &[])], &stored, None).unwrap();
        let expected = [("a", true, true), ("b", true, false), ("c", false, false)];
        assert_eq!(decided, expected.map(|(id, exists, cancels)| (id.to_owned(), exists, cancels)));
    }

    /// A run that waits for its next attempt is not over: a worker may begin it at any moment.
    #[test]
    fn a_run_that_waits_for_its_next_attempt_is_in_progress() {
        let a = request("a", &[]);
        let claimant = Claimant { worker: "W-1".parse().unwrap(), holder: None, lease: None };
        let running = transition::claim(&queued(&a), claimant, NOW).unwrap().run;
        let retry = crate::retry::RetryPolicy { limit: 1, ..a.retry.clone() };
        let policy = FinishPolicy { success: &[0], retry: &retry, random: 0 };
        let failed = AttemptOutcome::Ended(Ending::Exited(1));
        let waits = transition::finish(&running, running.claim(), failed, policy, NOW).unwrap().run;
        for run in [running, waits] {
            assert_eq!(run.status(), Status::Running);
            let refused = decide(std::slice::from_ref(&a), &[(a.clone(), Some(run))], None);
            assert!(matches!(refused, Err(Refusal::InProgress { .. })), "{refused:?}");
        }
    }

    #[test]
    fn a_cycle_may_lead_through_requests_that_stay() {
        let stored = [(request("a", &[]), None), (request("b", &["a"]), None), (request("c", &["b"]), None)];
        let refused = decide(&[request("a", &["c"])], &stored, None);
        assert!(matches!(&refused, Err(Refusal::Cycle { cycle }) if cycle.len() == 3), "{refused:?}");
        // With `b` replaced as well there is none.
        assert!(decide(&[request("a", &["c"]), request("b", &[])], &stored, None).is_ok());
        let refused = decide(&[request("a", &[]), request("a", &[])], &stored, None);
        assert!(matches!(refused, Err(Refusal::Duplicate { run: None, .. })), "{refused:?}");
    }

    #[test]
    fn only_more_queued_runs_need_room() {
        let (a, b) = (request("a", &[]), request("b", &[]));
        let stored = [(a.clone(), Some(queued(&a))), (b.clone(), None)];
        assert!(decide(std::slice::from_ref(&a), &stored, Some(1)).is_ok());
        let refused = decide(&[a.clone(), b.clone()], &stored, Some(1));
        assert!(matches!(refused, Err(Refusal::QueueFull { request, length: 1, .. }) if request == b.id));
        assert!(decide(&[a, b], &stored, Some(2)).is_ok());
    }
}
