//! How requests come in.

use std::collections::HashMap;

use lockkeeper_core::id::{RequestId, RunId};
use lockkeeper_core::request::{Request, find_cycle};
use lockkeeper_core::run::{Event, EventKind, Reason, Run, Stamp, Status};
use thiserror::Error;

use super::{RunError, Runs, new_id};
use lockkeeper_store::StoreError;
use lockkeeper_store::runs::Tables;

/// A request that came in.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Submitted {
    /// Its id.
    pub request: RequestId,
    /// Its run.
    pub run: RunId,
    /// Whether it was there before, under the same key.
    pub existing: bool,
}

/// Why a request did not come in.
#[derive(Debug, Error)]
pub enum Refused {
    /// There is one with this id. The refusal is kept as a run.
    #[error("request `{request}` is there already")]
    Duplicate {
        /// Which request.
        request: RequestId,
        /// The run that tells of the refusal; none when several came at once, of which nothing is kept.
        run: Option<RunId>,
    },
    /// The queue has as many runs as it may have. The refusal is kept as a run.
    #[error("the queue is full: {length} runs wait")]
    QueueFull {
        /// The request, which is kept too.
        request: RequestId,
        /// The run that tells of the refusal; none when several came at once, of which nothing is kept.
        run: Option<RunId>,
        /// How many wait.
        length: u64,
    },
    /// One of those that it comes after is not there.
    #[error("request `{request}` comes after `{after}`, which is not there")]
    NothingToComeAfter {
        /// Which request.
        request: RequestId,
        /// What is missing.
        after: RequestId,
    },
    /// Requests that all wait for each other.
    #[error("these requests would wait for each other for ever: {}", names(circle))]
    Circle {
        /// Each comes after the next, and the last after the first.
        circle: Vec<RequestId>,
    },
    /// The store failed.
    #[error(transparent)]
    Run(#[from] RunError),
}

impl Refused {
    /// The way out.
    pub fn hint(&self) -> String {
        match self {
            Self::Duplicate { request, .. } => {
                format!("run it again with `lockkeeper run retry {request}`, or choose another --id")
            }
            Self::QueueFull { .. } => "wait until there is room, or raise queue_limit".to_owned(),
            Self::NothingToComeAfter { .. } => "`lockkeeper requests` lists those that are there".to_owned(),
            Self::Circle { .. } => "leave out one --after".to_owned(),
            Self::Run(error) => error.hint(),
        }
    }
}

fn names(circle: &[RequestId]) -> String {
    let first = circle.first().into_iter();
    circle.iter().chain(first).map(ToString::to_string).collect::<Vec<_>>().join(" after ")
}

impl Runs {
    /// Makes an id for a request whose user did not choose one.
    pub fn new_request_id(&self) -> Result<RequestId, RunError> {
        new_id("RQ", lockkeeper_store::runs::now().unix_micros)
    }

    /// Takes a request in, with one run that is queued. When this returns, it survives a power cut.
    ///
    /// With `queue_limit`, no more than so many runs may wait.
    pub fn submit(&self, request: &Request, queue_limit: Option<u64>) -> Result<Submitted, Refused> {
        let mut submitted = self.submit_all(std::slice::from_ref(request), queue_limit)?;
        Ok(submitted.pop().expect("one request gives one answer"))
    }

    /// Takes several requests in, all or none. They may come after each other.
    pub fn submit_all(
        &self,
        requests: &[Request],
        queue_limit: Option<u64>,
    ) -> Result<Vec<Submitted>, Refused> {
        if let Some(circle) =
            find_cycle(requests.iter().map(|request| (&request.id, request.after.as_slice())))
        {
            return Err(Refused::Circle { circle });
        }
        let now = lockkeeper_store::runs::now().unix_micros;
        let ids = requests.iter().map(|_| new_id::<RunId>("RUN", now)).collect::<Result<Vec<_>, _>>()?;
        let admitted = self.store.write(|tables| {
            if requests.len() > 1 {
                // All or none: nothing is written before it is known that nothing will be refused.
                let mut new = Vec::new();
                for request in requests {
                    if known_by_key(tables, request)?.is_none() {
                        new.push(request);
                    }
                }
                let together = ids_of(requests);
                let more = (new.len() as u64).saturating_sub(1);
                for request in new {
                    if let Err(refused) = check(tables, request, &together, queue_limit, more)? {
                        return Ok(Err(refused));
                    }
                }
            }
            let mut submitted = Vec::new();
            for (request, run) in in_order(requests).into_iter().zip(ids) {
                match admit(tables, request, run, queue_limit)? {
                    Ok(one) => submitted.push(one),
                    Err(refused) => return Ok(Err(refused)),
                }
            }
            Ok(Ok(submitted))
        });
        admitted.map_err(RunError::from)?
    }

    /// Puts a new run of a request into the queue, whose last one has ended.
    pub fn run_again(&self, request: &RequestId) -> Result<RunId, RunError> {
        let id: RunId = new_id("RUN", lockkeeper_store::runs::now().unix_micros)?;
        self.store.write(|tables| queue_again(tables, request, id))?
    }
}

/// Puts a new run of a request into the queue within a transaction, unless one is going on.
pub(super) fn queue_again(
    tables: &Tables<'_>,
    request: &RequestId,
    id: RunId,
) -> Result<Result<RunId, RunError>, StoreError> {
    let Some(stored) = tables.request(request)? else {
        return Ok(Err(RunError::NoRequest(request.clone())));
    };
    let latest = tables.latest_run(request)?;
    if let Some(latest) = latest.filter(|latest| !latest.status.is_terminal()) {
        let (request, run, status) = (request.clone(), latest.id, latest.status);
        return Ok(Err(RunError::InProgress { request, run, status }));
    }
    queue(tables, &stored.request, id.clone())?;
    Ok(Ok(id))
}

/// Those that others come after, first; there is no circle.
fn in_order(requests: &[Request]) -> Vec<&Request> {
    let places: HashMap<&RequestId, usize> =
        requests.iter().enumerate().map(|(place, request)| (&request.id, place)).collect();
    let mut ordered = Vec::with_capacity(requests.len());
    let mut put = vec![false; requests.len()];
    for start in 0..requests.len() {
        // A path into what comes before, and how many of each place's were followed.
        let mut path = vec![(start, 0)];
        while let Some((place, followed)) = path.last_mut() {
            let (place, next) = (*place, requests[*place].after.get(*followed));
            *followed += 1;
            match next.map(|after| places.get(after).copied()) {
                Some(Some(before)) if !put[before] => path.push((before, 0)),
                Some(_) => {}
                None => {
                    if !std::mem::replace(&mut put[place], true) {
                        ordered.push(&requests[place]);
                    }
                    path.pop();
                }
            }
        }
    }
    ordered
}

/// How often each id is among these.
fn ids_of(requests: &[Request]) -> HashMap<&RequestId, usize> {
    let mut ids = HashMap::new();
    for request in requests {
        *ids.entry(&request.id).or_default() += 1;
    }
    ids
}

/// What came before under the same key.
fn known_by_key(tables: &Tables<'_>, request: &Request) -> Result<Option<Submitted>, StoreError> {
    let known = match &request.key {
        Some(key) => tables.request_by_key(key)?,
        None => None,
    };
    Ok(known.and_then(|known| {
        let run = known.latest?;
        Some(Submitted { request: known.request.id, run, existing: true })
    }))
}

/// Whether a request can come in, beside those that come with it, `more` of which wait then.
fn check(
    tables: &Tables<'_>,
    request: &Request,
    together: &HashMap<&RequestId, usize>,
    queue_limit: Option<u64>,
    more: u64,
) -> Result<Result<(), Refused>, StoreError> {
    for after in &request.after {
        if !together.contains_key(after) && tables.request(after)?.is_none() {
            let (request, after) = (request.id.clone(), after.clone());
            return Ok(Err(Refused::NothingToComeAfter { request, after }));
        }
    }
    let twice = together.get(&request.id).is_some_and(|count| *count > 1);
    if twice || tables.request(&request.id)?.is_some() {
        return Ok(Err(Refused::Duplicate { request: request.id.clone(), run: None }));
    }
    match queue_limit {
        Some(limit) if tables.queue_length()? + more >= limit => {
            let length = tables.queue_length()?;
            Ok(Err(Refused::QueueFull { request: request.id.clone(), run: None, length }))
        }
        Some(_) | None => Ok(Ok(())),
    }
}

fn admit(
    tables: &Tables<'_>,
    request: &Request,
    run: RunId,
    queue_limit: Option<u64>,
) -> Result<Result<Submitted, Refused>, StoreError> {
    if let Some(known) = known_by_key(tables, request)? {
        return Ok(Ok(known));
    }
    match check(tables, request, &ids_of(std::slice::from_ref(request)), queue_limit, 0)? {
        Ok(()) => {
            tables.insert_request(request)?;
            queue(tables, request, run.clone())?;
            Ok(Ok(Submitted { request: request.id.clone(), run, existing: false }))
        }
        Err(Refused::Duplicate { request: id, .. }) => {
            reject(tables, request, &run, Reason::Duplicate, "there is a request with this id")?;
            Ok(Err(Refused::Duplicate { request: id, run: Some(run) }))
        }
        Err(Refused::QueueFull { request: id, length, .. }) => {
            tables.insert_request(request)?;
            reject(tables, request, &run, Reason::QueueFull, "the queue is full")?;
            Ok(Err(Refused::QueueFull { request: id, run: Some(run), length }))
        }
        Err(refused) => Ok(Err(refused)),
    }
}

fn queue(tables: &Tables<'_>, request: &Request, id: RunId) -> Result<(), StoreError> {
    let run = first_record(request, id, Status::Queued, tables.now());
    let event = Event { kind: EventKind::Submitted, from: None, to: run.status, reason: None, message: None };
    tables.insert_run(&run, request.priority.get(), &event)
}

fn reject(
    tables: &Tables<'_>,
    request: &Request,
    id: &RunId,
    reason: Reason,
    message: &str,
) -> Result<(), StoreError> {
    let now = tables.now();
    let run = Run {
        completed_at: Some(now),
        reason: Some(reason),
        message: Some(message.to_owned()),
        give_up_at: None,
        ..first_record(request, id.clone(), Status::Rejected, now)
    };
    let (kind, to, message) = (EventKind::Submitted, run.status, run.message.clone());
    let event = Event { kind, from: None, to, reason: Some(reason), message };
    tables.insert_run(&run, request.priority.get(), &event)
}

fn first_record(request: &Request, id: RunId, status: Status, now: Stamp) -> Run {
    Run {
        id,
        request: request.id.clone(),
        status,
        attempt: 0,
        claim: 0,
        worker: None,
        process: None,
        lease: None,
        queued_at: now,
        give_up_at: request.queue_timeout.map(|span| now.moment.after(span)),
        started_at: None,
        timeout: request.timeout,
        retry_at: None,
        completed_at: None,
        ending: None,
        reason: None,
        message: None,
        help: false,
    }
}
