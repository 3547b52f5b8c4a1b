//! Admission control: decides which of the submitted requests enter the queue. A store calls it in one transaction.

mod replacement;

use std::collections::{HashMap, HashSet};

use thiserror::Error;

use super::transition::{self, Transition};
use super::{Reason, Stamp, Status};
use crate::id::{RequestId, RunId};
use crate::request::{Request, find_cycle};

pub use replacement::{Existing, Replacement, replace};

/// Requests that are submitted together: all of them enter the queue, or none.
#[derive(Clone, Copy, Debug)]
pub struct Submission<'s> {
    /// The requests. They may depend on each other.
    pub requests: &'s [Request],
    /// A new run id for each of them.
    pub runs: &'s [RunId],
    /// At most this many runs may be queued.
    pub queue_limit: Option<u64>,
    /// Why a conflict rule forbids them; none if none does.
    pub forbidden: Option<&'s str>,
}

/// The records of the store that a decision about a submission needs.
#[derive(Clone, Debug, Default)]
pub struct Known {
    /// The requests with the keys of the submission, each with its latest run.
    pub keys: HashMap<String, (RequestId, RunId)>,
    /// Those ids of the submission, and of its dependencies, that exist.
    pub ids: HashSet<RequestId>,
    /// How many runs are queued. Only read if there is a limit.
    pub queue_length: u64,
}

/// A request that was submitted.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Submitted {
    /// Its id.
    pub request: RequestId,
    /// Its run.
    pub run: RunId,
    /// Whether it existed before, with the same key.
    pub existing: bool,
    /// Whether a request with this id existed before and has got a new definition.
    pub replaced: bool,
}

/// Why requests do not enter the queue.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum Refusal {
    /// A request with this id exists.
    #[error("request `{request}` is there already")]
    Duplicate {
        /// Which request.
        request: RequestId,
        /// The run that records the refusal; none if several requests were submitted.
        run: Option<RunId>,
    },
    /// The queue has as many runs as it may have.
    #[error("the queue is full: {length} runs wait")]
    QueueFull {
        /// The request.
        request: RequestId,
        /// The run that records the refusal; none if several requests were submitted.
        run: Option<RunId>,
        /// How many runs are queued.
        length: u64,
    },
    /// A conflict rule forbids it.
    #[error("a rule forbids request `{request}`: {why}")]
    Forbidden {
        /// Which request.
        request: RequestId,
        /// The run that records the refusal; none if several requests were submitted.
        run: Option<RunId>,
        /// The conflict and its rule.
        why: String,
    },
    /// The request cannot be replaced while it runs.
    #[error("request `{request}` cannot be replaced: its run {run} is {status}")]
    InProgress {
        /// Which request.
        request: RequestId,
        /// Its latest run.
        run: RunId,
        /// The status of that run.
        status: Status,
    },
    /// A request that it depends on does not exist.
    #[error("request `{request}` comes after `{after}`, which is not there")]
    MissingDependency {
        /// Which request.
        request: RequestId,
        /// What is missing.
        after: RequestId,
    },
    /// The requests depend on each other in a cycle.
    #[error("these requests would wait for each other for ever: {}", names(cycle))]
    Cycle {
        /// Each depends on the next, and the last on the first.
        cycle: Vec<RequestId>,
    },
}

impl Refusal {
    /// What the user can do about it.
    pub fn hint(&self) -> String {
        match self {
            Self::Duplicate { request, .. } => {
                format!(
                    "run it again with `lockkeeper run retry {request}`, change it with --replace, or choose another --id"
                )
            }
            Self::QueueFull { .. } => "wait until there is room, or raise queue_limit".to_owned(),
            Self::Forbidden { .. } => "`lockkeeper stages plan` shows the conflict and its rule".to_owned(),
            Self::InProgress { run, .. } => {
                format!(
                    "`lockkeeper run wait {run}` waits for its end, `lockkeeper run cancel {run}` ends it"
                )
            }
            Self::MissingDependency { .. } => "`lockkeeper requests` lists those that are there".to_owned(),
            Self::Cycle { .. } => "leave out one --after".to_owned(),
        }
    }
}

/// The decision about a submission.
#[derive(Clone, Debug)]
#[must_use = "nothing has changed until a store has written it"]
pub struct Admission<'s> {
    /// The runs to insert, in this order.
    pub inserts: Vec<Insert<'s>>,
    /// The answer for the submitter.
    pub answer: Result<Vec<Submitted>, Refusal>,
}

/// A run to insert, with its first event.
#[derive(Clone, Debug)]
pub struct Insert<'s> {
    /// Its request.
    pub request: &'s Request,
    /// Whether the request has to be inserted first.
    pub is_new_request: bool,
    /// The run and its event.
    pub first: Transition,
}

/// Decides about a submission. Requests come before those that depend on them, in the inserts and in the answer.
///
/// The refusal of a single request is recorded as a run. Of several requests nothing is recorded if one is refused.
pub fn admit<'s>(submission: &Submission<'s>, known: Known, now: Stamp) -> Admission<'s> {
    let mut inserts = Vec::new();
    let answer = decide(submission, known, now, &mut inserts);
    if answer.is_err() && submission.requests.len() > 1 {
        inserts.clear();
    }
    Admission { inserts, answer }
}

fn permit(request: &Request, forbidden: Option<&str>) -> Result<(), Refusal> {
    forbidden.map_or(Ok(()), |why| {
        Err(Refusal::Forbidden { request: request.id.clone(), run: None, why: why.to_owned() })
    })
}

fn decide<'s>(
    submission: &Submission<'s>,
    mut known: Known,
    now: Stamp,
    inserts: &mut Vec<Insert<'s>>,
) -> Result<Vec<Submitted>, Refusal> {
    let Submission { requests, runs, queue_limit, forbidden } = *submission;
    if let Some(cycle) = find_cycle(requests.iter().map(|request| (&request.id, request.after.as_slice()))) {
        return Err(Refusal::Cycle { cycle });
    }
    if requests.len() > 1 {
        check_together(requests, &known, queue_limit)?;
    }
    let mut submitted = Vec::new();
    for (request, run) in in_order(requests).into_iter().zip(runs) {
        if let Some(existing) = find_by_key(&known, request) {
            submitted.push(existing);
            continue;
        }
        let insert = |is_new_request, first| Insert { request, is_new_request, first };
        let rejected = |reason, message| transition::reject(request, run.clone(), reason, message, now);
        match check(request, &known, queue_limit).and_then(|()| permit(request, forbidden)) {
            Ok(()) => inserts.push(insert(true, transition::submit(request, run.clone(), now))),
            Err(Refusal::Duplicate { request, .. }) => {
                inserts.push(insert(false, rejected(Reason::Duplicate, "there is a request with this id")));
                return Err(Refusal::Duplicate { request, run: Some(run.clone()) });
            }
            Err(Refusal::QueueFull { request, length, .. }) => {
                inserts.push(insert(true, rejected(Reason::QueueFull, "the queue is full")));
                return Err(Refusal::QueueFull { request, run: Some(run.clone()), length });
            }
            Err(Refusal::Forbidden { request, why, .. }) => {
                inserts.push(insert(true, rejected(Reason::ConflictAbort, &why)));
                return Err(Refusal::Forbidden { request, run: Some(run.clone()), why });
            }
            Err(
                refusal @ (Refusal::InProgress { .. }
                | Refusal::MissingDependency { .. }
                | Refusal::Cycle { .. }),
            ) => return Err(refusal),
        }
        known.ids.insert(request.id.clone());
        if let Some(key) = &request.key {
            known.keys.insert(key.clone(), (request.id.clone(), run.clone()));
        }
        submitted.push(Submitted {
            request: request.id.clone(),
            run: run.clone(),
            existing: false,
            replaced: false,
        });
    }
    Ok(submitted)
}

/// Checks several requests before any of them is inserted, also that the queue has room for all.
fn check_together(requests: &[Request], known: &Known, queue_limit: Option<u64>) -> Result<(), Refusal> {
    let new: Vec<&Request> =
        requests.iter().filter(|request| find_by_key(known, request).is_none()).collect();
    let more = (new.len() as u64).saturating_sub(1);
    let mut seen = HashSet::new();
    let twice: HashSet<&RequestId> =
        requests.iter().map(|request| &request.id).filter(|id| !seen.insert(*id)).collect();
    for request in new {
        for after in &request.after {
            if !seen.contains(after) && !known.ids.contains(after) {
                let (request, after) = (request.id.clone(), after.clone());
                return Err(Refusal::MissingDependency { request, after });
            }
        }
        if twice.contains(&request.id) || known.ids.contains(&request.id) {
            return Err(Refusal::Duplicate { request: request.id.clone(), run: None });
        }
        check_limit(request, known, queue_limit, more)?;
    }
    Ok(())
}

/// Checks one request.
fn check(request: &Request, known: &Known, queue_limit: Option<u64>) -> Result<(), Refusal> {
    if let Some(after) = request.after.iter().find(|after| !known.ids.contains(after)) {
        let (request, after) = (request.id.clone(), after.clone());
        return Err(Refusal::MissingDependency { request, after });
    }
    if known.ids.contains(&request.id) {
        return Err(Refusal::Duplicate { request: request.id.clone(), run: None });
    }
    check_limit(request, known, queue_limit, 0)
}

/// Checks that there is room for a request and for `more` others.
fn check_limit(request: &Request, known: &Known, queue_limit: Option<u64>, more: u64) -> Result<(), Refusal> {
    let length = known.queue_length;
    match queue_limit {
        Some(limit) if length + more >= limit => {
            Err(Refusal::QueueFull { request: request.id.clone(), run: None, length })
        }
        Some(_) | None => Ok(()),
    }
}

/// The request that was submitted before with the same key.
fn find_by_key(known: &Known, request: &Request) -> Option<Submitted> {
    let (id, run) = known.keys.get(request.key.as_ref()?)?;
    Some(Submitted { request: id.clone(), run: run.clone(), existing: true, replaced: false })
}

/// Dependencies first (topological order). There is no cycle.
fn in_order(requests: &[Request]) -> Vec<&Request> {
    let places: HashMap<&RequestId, usize> =
        requests.iter().enumerate().map(|(place, request)| (&request.id, place)).collect();
    let mut ordered = Vec::with_capacity(requests.len());
    let mut is_put = vec![false; requests.len()];
    for start in 0..requests.len() {
        if is_put[start] {
            continue;
        }
        // A path of dependencies. Each entry has the number of its dependencies that were followed.
        let mut path = vec![(start, 0)];
        while let Some((place, followed)) = path.last_mut() {
            let (place, next) = (*place, requests[*place].after.get(*followed));
            *followed += 1;
            match next.map(|after| places.get(after).copied()) {
                Some(Some(before)) if !is_put[before] => path.push((before, 0)),
                Some(_) => {}
                None => {
                    is_put[place] = true;
                    ordered.push(&requests[place]);
                    path.pop();
                }
            }
        }
    }
    ordered
}

fn names(cycle: &[RequestId]) -> String {
    let first = cycle.first().into_iter();
    cycle.iter().chain(first).map(ToString::to_string).collect::<Vec<_>>().join(" after ")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::time::Moment;

    const NOW: Stamp = Stamp { moment: Moment::from_micros(1), unix_micros: 1 };

    fn request(id: &str, key: Option<&str>, after: &[&str]) -> Request {
        let after = after.iter().map(|id| id.parse().unwrap()).collect();
        let key = key.map(ToOwned::to_owned);
        Request { key, after, ..Request::new(id.parse().unwrap(), vec!["true".to_owned()], "/".to_owned()) }
    }

    fn run_ids(count: usize) -> Vec<RunId> {
        (0..count).map(|number| format!("RUN-{number}").parse().unwrap()).collect()
    }

    /// The ids that are inserted, and the answer.
    fn admitted(
        requests: &[Request],
        known: Known,
        queue_limit: Option<u64>,
    ) -> (Vec<String>, Result<Vec<Submitted>, Refusal>) {
        let runs = run_ids(requests.len());
        let admission =
            admit(&Submission { requests, runs: &runs, queue_limit, forbidden: None }, known, NOW);
        let inserted = admission.inserts.iter().map(|insert| {
            format!("{} {}{}", insert.request.id, insert.first.run.status(), insert.first.run.version)
        });
        (inserted.collect(), admission.answer)
    }

    #[test]
    fn dependencies_come_first() {
        let batch = [request("c", None, &["b", "a"]), request("b", None, &["a"]), request("a", None, &[])];
        let (inserted, answer) = admitted(&batch, Known::default(), None);
        assert_eq!(inserted, ["a queued1", "b queued1", "c queued1"]);
        assert!(answer.unwrap().iter().all(|one| !one.existing));
        let known = Known { ids: HashSet::from(["old".parse().unwrap()]), ..Known::default() };
        let batch = [request("b", None, &["old"]), request("c", None, &[])];
        assert_eq!(admitted(&batch, known, None).0, ["b queued1", "c queued1"]);
        let (inserted, answer) = admitted(&[request("a", None, &["a"])], Known::default(), None);
        assert!(inserted.is_empty());
        assert!(answer.unwrap_err().to_string().ends_with(": a after a"));
    }

    #[test]
    fn the_same_key_is_the_same_request() {
        let keys = HashMap::from([("k".to_owned(), ("old".parse().unwrap(), "RUN-9".parse().unwrap()))]);
        let (inserted, answer) =
            admitted(&[request("new", Some("k"), &[])], Known { keys, ..Known::default() }, Some(0));
        assert!(inserted.is_empty());
        assert_eq!(answer.unwrap()[0].request.as_str(), "old");
        let batch = [request("a", Some("k"), &[]), request("b", Some("k"), &[])];
        let (inserted, answer) = admitted(&batch, Known::default(), None);
        assert_eq!(inserted, ["a queued1"]);
        assert!(answer.unwrap()[1].existing);
    }

    /// The second request is the first one by its key, so the id that the third names is never there.
    #[test]
    fn a_batch_that_is_refused_at_its_end_inserts_nothing() {
        let batch = [request("a", Some("k"), &[]), request("b", Some("k"), &[]), request("c", None, &["b"])];
        let (inserted, answer) = admitted(&batch, Known::default(), None);
        assert!(inserted.is_empty() && matches!(answer, Err(Refusal::MissingDependency { .. })));
    }

    #[test]
    fn only_the_refusal_of_a_single_request_is_recorded() {
        let ids = HashSet::from(["a".parse().unwrap()]);
        let known = || Known { ids: ids.clone(), queue_length: 2, ..Known::default() };
        let (inserted, answer) = admitted(&[request("a", None, &[])], known(), None);
        assert_eq!(inserted, ["a rejected1"]);
        assert!(matches!(answer, Err(Refusal::Duplicate { run: Some(_), .. })));
        let (inserted, answer) = admitted(&[request("b", None, &[])], known(), Some(2));
        assert_eq!(inserted, ["b rejected1"]);
        assert!(matches!(answer, Err(Refusal::QueueFull { length: 2, .. })));
        let several = [request("b", None, &[]), request("a", None, &[])];
        let (inserted, answer) = admitted(&several, known(), None);
        assert!(inserted.is_empty() && matches!(answer, Err(Refusal::Duplicate { run: None, .. })));
        let several = [request("b", None, &[]), request("c", None, &["x"])];
        let (inserted, answer) = admitted(&several, known(), None);
        assert!(inserted.is_empty() && matches!(answer, Err(Refusal::MissingDependency { .. })));
        let several = [request("b", None, &[]), request("c", None, &[])];
        let (inserted, answer) = admitted(&several, known(), Some(3));
        assert!(inserted.is_empty() && matches!(answer, Err(Refusal::QueueFull { run: None, .. })));
        assert!(admitted(&several, known(), Some(4)).1.is_ok());
    }
}
