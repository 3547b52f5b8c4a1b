//! Lists: filters, counts and orders, compared with a search through all records.

use lockkeeper_core::id::{HolderId, RequestId};
use lockkeeper_core::liveness::{Origin, ProcessRef};
use lockkeeper_core::record::Priority;
use lockkeeper_core::request::{Request, RequestStatus};
use lockkeeper_core::run::Status;
use lockkeeper_core::run::admission::Submission;
use lockkeeper_core::run::transition::{AttemptOutcome, NEEDS_INPUT_CODE};
use lockkeeper_store::RunStore;
use lockkeeper_store::runs::{Match, RequestFilter, RunFilter, RunRecords, StoredRequest, Worker};

use super::Harness;
use super::sample::{
    FAILURE, SUCCESS, all_runs, apply, cancel, claim, claim_of, execute, request, request_after, run, store,
    submit, try_submit, worker,
};

const ALL: RequestFilter = RequestFilter {
    statuses: Vec::new(),
    run_statuses: Vec::new(),
    text: None,
    worker: None,
    ids: Vec::new(),
    before: None,
    newest: None,
    limit: usize::MAX,
};

/// Requests in every status, two of most.
fn fill(store: &dyn RunStore) {
    for number in 1..=2 {
        let id = |word: &str| format!("{word}-{number}");
        execute(store, &request(&id("done")), SUCCESS);
        execute(store, &request(&id("failed")), FAILURE);
        let help = lockkeeper_core::run::Ending::Exited(NEEDS_INPUT_CODE);
        execute(store, &request(&id("help")), AttemptOutcome::Ended(help));
        cancel(store, &submit(store, &request(&id("canceled"))));
        let titled = Request { title: format!("100%_Text {number}"), ..request(&id("queued")) };
        submit(store, &titled);
        claim(store, &submit(store, &request(&id("running"))));
        let cancelling = submit(store, &request(&id("cancelling")));
        let other = apply(store, claim_of(store, &cancelling, "W-2"));
        cancel(store, &other);
    }
    try_submit(store, &[request("rejected")], Some(0)).unwrap_err();
    try_submit(store, &[request("done-1")], None).unwrap_err();
}

pub(super) fn runs_are_filtered(harness: &dyn Harness) {
    let (_place, store) = store(harness);
    fill(&*store);
    let all = all_runs(&*store);
    assert_eq!(all.len(), 16);
    let records = store.snapshot().unwrap();
    let list = |filter: &RunFilter| records.runs(filter).unwrap();
    let any = RunFilter { limit: usize::MAX, ..RunFilter::default() };
    for statuses in [vec![Status::Queued], vec![Status::Succeeded, Status::Rejected], vec![Status::TimedOut]]
    {
        let expected: Vec<_> = all.iter().filter(|run| statuses.contains(&run.status())).cloned().collect();
        assert_eq!(list(&RunFilter { statuses, ..any.clone() }), expected);
    }
    let request: Option<RequestId> = Some("done-1".parse().unwrap());
    let of_request: Vec<_> = all.iter().filter(|run| Some(&run.request) == request.as_ref()).collect();
    assert_eq!(list(&RunFilter { request, ..any }).iter().collect::<Vec<_>>(), of_request);
    // Pages have no gap and no run twice.
    let (mut pages, mut before) = (Vec::new(), None);
    loop {
        let page = list(&RunFilter { before: before.take(), limit: 3, ..RunFilter::default() });
        let Some(last) = page.last() else { break };
        before = Some(last.id.clone());
        pages.extend(page);
    }
    assert_eq!(pages, all);
}

/// Whether a request matches, by the text of the contract.
fn matches(records: &dyn RunRecords, all: &[StoredRequest], place: usize, filter: &RequestFilter) -> bool {
    let stored = &all[place];
    let latest = records.latest_run(&stored.request.id).unwrap();
    let has = |text: &str, part: &str| text.to_ascii_lowercase().contains(&part.to_ascii_lowercase());
    let place_of = |id: &RequestId| all.iter().position(|other| other.request.id == *id);
    (filter.statuses.is_empty() || filter.statuses.contains(&stored.status))
        && (filter.run_statuses.is_empty()
            || latest.as_ref().is_some_and(|run| filter.run_statuses.contains(&run.status())))
        && filter
            .text
            .as_ref()
            .is_none_or(|text| has(&stored.request.title, text) || has(stored.request.id.as_str(), text))
        && filter
            .worker
            .as_ref()
            .is_none_or(|worker| latest.as_ref().is_some_and(|run| run.worker() == Some(worker)))
        && (filter.ids.is_empty() || filter.ids.contains(&stored.request.id))
        && filter.before.as_ref().is_none_or(|id| place_of(id).is_some_and(|other| place > other))
        && filter.newest.as_ref().is_none_or(|id| place_of(id).is_some_and(|other| place >= other))
}

pub(super) fn requests_are_filtered(harness: &dyn Harness) {
    let (_place, store) = store(harness);
    fill(&*store);
    let records = &*store.snapshot().unwrap();
    let all = records.requests(&ALL).unwrap();
    assert_eq!(all.len(), 15);
    assert!(all.windows(2).all(|pair| pair[0].created_at >= pair[1].created_at));
    let parts: [Vec<RequestFilter>; 6] = [
        [
            Vec::new(),
            vec![RequestStatus::Running],
            vec![RequestStatus::Queued],
            vec![RequestStatus::Failed, RequestStatus::Running],
            vec![RequestStatus::Queued, RequestStatus::Done],
            RequestStatus::ALL.to_vec(),
        ]
        .map(|statuses| RequestFilter { statuses, ..ALL })
        .to_vec(),
        [Vec::new(), vec![Status::Cancelling, Status::Queued]]
            .map(|run_statuses| RequestFilter { run_statuses, ..ALL })
            .to_vec(),
        [None, Some("%_tE"), Some("ED-1"), Some("nothing")]
            .map(|text| RequestFilter { text: text.map(ToOwned::to_owned), ..ALL })
            .to_vec(),
        [None, Some("W-2")].map(|id| RequestFilter { worker: id.map(worker), ..ALL }).to_vec(),
        [&[][..], &["done-1", "queued-2", "missing", "rejected"][..]]
            .map(|ids| RequestFilter { ids: ids.iter().map(|id| id.parse().unwrap()).collect(), ..ALL })
            .to_vec(),
        [(None, None), (Some("running-2"), None), (None, Some("help-2")), (Some("queued-2"), Some("help-2"))]
            .map(|(before, newest): (Option<&str>, Option<&str>)| RequestFilter {
                before: before.map(|id| id.parse().unwrap()),
                newest: newest.map(|id| id.parse().unwrap()),
                ..ALL
            })
            .to_vec(),
    ];
    let [statuses, run_statuses, texts, workers, ids, ranges] = &parts;
    for by_status in statuses {
        for by_run in run_statuses {
            for by_text in texts {
                for by_worker in workers {
                    for by_id in ids {
                        for range in ranges {
                            let filter = RequestFilter {
                                statuses: by_status.statuses.clone(),
                                run_statuses: by_run.run_statuses.clone(),
                                text: by_text.text.clone(),
                                worker: by_worker.worker.clone(),
                                ids: by_id.ids.clone(),
                                ..range.clone()
                            };
                            check(records, &all, &filter);
                        }
                    }
                }
            }
        }
    }
}

fn check(records: &dyn RunRecords, all: &[StoredRequest], filter: &RequestFilter) {
    let places = (0..all.len()).filter(|place| matches(records, all, *place, filter));
    let expected: Vec<&StoredRequest> = places.map(|place| &all[place]).collect();
    for limit in [2, usize::MAX] {
        let limited = RequestFilter { limit, ..filter.clone() };
        let expected: Vec<&StoredRequest> = expected.iter().take(limit).copied().collect();
        assert_eq!(records.requests(&limited).unwrap().iter().collect::<Vec<_>>(), expected, "{limited:?}");
        let ids = expected
            .into_iter()
            .map(|stored| Match { request: stored.request.id.clone(), run: stored.latest.clone() });
        assert_eq!(records.matching(&limited).unwrap(), ids.collect::<Vec<_>>(), "{limited:?}");
    }
    let counts = records.count_matching(filter).unwrap();
    assert_eq!(counts.iter().map(|(_, count)| *count).sum::<u64>(), expected.len() as u64, "{filter:?}");
    for (status, count) in counts {
        let of_status = expected.iter().filter(|stored| {
            let latest = records.latest_run(&stored.request.id).unwrap();
            latest.map(|run| run.status()) == status
        });
        assert_eq!(of_status.count() as u64, count, "{filter:?}");
    }
}

pub(super) fn open_requests_are_in_order(harness: &dyn Harness) {
    let (_place, store) = store(harness);
    fill(&*store);
    submit(&*store, &Request { priority: Priority::new(3).unwrap(), ..request("urgent") });
    submit(&*store, &request_after("later", &["queued-1"]));
    let ids = |next, others| {
        let open = store.snapshot().unwrap().open_requests(next, others).unwrap();
        open.into_iter().map(|stored| stored.request.id.to_string()).collect::<Vec<_>>()
    };
    assert_eq!(ids(9, 0), ["urgent", "queued-1", "queued-2"]);
    let others = ["cancelling-2", "later", "help-2", "rejected", "canceled-2"];
    assert_eq!(ids(1, 1), [&["urgent"][..], &others[..]].concat());
    assert_eq!(ids(9, 9).len(), 3 + 4 + 1 + 2 + 3 + 2);
}

pub(super) fn rows_that_belong_together_come_together(harness: &dyn Harness) {
    let (_place, store) = store(harness);
    fill(&*store);
    submit(&*store, &request_after("later", &["queued-1"]));
    let records = store.snapshot().unwrap();
    let filters = [
        ALL,
        RequestFilter { statuses: vec![RequestStatus::Failed, RequestStatus::Queued], ..ALL },
        RequestFilter { text: Some("2".to_owned()), limit: 3, ..ALL },
    ];
    for filter in filters {
        let (requests, runs): (Vec<_>, Vec<_>) =
            records.requests_with_runs(&filter).unwrap().into_iter().unzip();
        assert_eq!(requests, records.requests(&filter).unwrap());
        let latest = requests.iter().map(|request| records.latest_run(&request.request.id).unwrap());
        assert_eq!(runs, latest.collect::<Vec<_>>());
    }
    let all = RunFilter { limit: usize::MAX, ..RunFilter::default() };
    let two = vec![Status::Failed, Status::Queued];
    for filter in [all.clone(), RunFilter { statuses: two, limit: 3, ..all }] {
        let (runs, requests): (Vec<_>, Vec<_>) =
            records.runs_with_requests(&filter).unwrap().into_iter().unzip();
        assert_eq!(runs, records.runs(&filter).unwrap());
        let own = runs.iter().map(|run| records.request(&run.request).unwrap().unwrap());
        assert_eq!(requests, own.collect::<Vec<_>>());
    }
}

pub(super) fn the_oldest_run_of_the_queue_is_known(harness: &dyn Harness) {
    let (_place, store) = store(harness);
    assert_eq!(store.snapshot().unwrap().oldest_queued_at().unwrap(), None);
    fill(&*store);
    submit(&*store, &Request { priority: Priority::new(3).unwrap(), ..request("urgent") });
    let queued = all_runs(&*store).into_iter().filter(|run| run.status() == Status::Queued);
    let oldest = queued.map(|run| run.queued_at.unix_micros).min();
    assert_eq!(store.snapshot().unwrap().oldest_queued_at().unwrap(), oldest);
}

pub(super) fn everything_is_counted(harness: &dyn Harness) {
    let (_place, store) = store(harness);
    assert_eq!(store.snapshot().unwrap().request_counts().unwrap(), []);
    fill(&*store);
    let records = store.snapshot().unwrap();
    for (status, count) in records.run_counts().unwrap() {
        assert_eq!(all_runs(&*store).iter().filter(|run| run.status() == status).count() as u64, count);
    }
    let all = records.requests(&ALL).unwrap();
    let counts = records.request_counts().unwrap();
    assert_eq!(counts.iter().map(|(_, count)| count).sum::<u64>(), all.len() as u64);
    for (status, count) in counts {
        assert_eq!(all.iter().filter(|stored| stored.status == status).count() as u64, count);
    }
}

pub(super) fn runs_are_found_by_a_part_of_their_id(harness: &dyn Harness) {
    let (_place, store) = store(harness);
    let requests = ["a", "b", "c", "d"].map(request);
    let ids = ["RUN-1-end", "RUN-2-end", "RUN-3-end", "RUN-4-k3x9f2m7qd"];
    let runs = ids.map(|id| id.parse().unwrap());
    let submission = Submission { requests: &requests, runs: &runs, queue_limit: None, forbidden: None };
    store.submit(&submission).unwrap().unwrap();
    let records = store.snapshot().unwrap();
    let found = |text: &str| records.runs_by_part(text).unwrap();
    assert_eq!(found("2-end").into_iter().map(|run| run.id).collect::<Vec<_>>(), runs[1..2]);
    assert_eq!(found("-end").len(), 2);
    for part in ["k3x", "k3x9f2m7qd", "7qd"] {
        assert_eq!(found(part).into_iter().map(|run| run.id).collect::<Vec<_>>(), runs[3..], "{part}");
    }
    for none in ["%", "_end", "1-END", "missing", "3x9", "K3X", "k3x9f2m7qdx"] {
        assert_eq!(found(none), []);
    }
}

pub(super) fn timings_are_those_of_the_runs(harness: &dyn Harness) {
    let (_place, store) = store(harness);
    let titled = Request { title: "title".to_owned(), ..request("a") };
    let ended = execute(&*store, &titled, SUCCESS);
    submit(&*store, &request("b"));
    let records = store.snapshot().unwrap();
    let timings = records.timings(0).unwrap();
    assert_eq!(timings.len(), 2);
    let first = &timings[0];
    assert_eq!((first.title.as_str(), first.status, first.attempts), ("title", Status::Succeeded, 1));
    assert_eq!(first.queued_at, ended.queued_at.unix_micros);
    assert_eq!(first.claimed_at, ended.started_at().map(|at| at.unix_micros));
    assert_eq!(first.completed_at, ended.completed_at().map(|at| at.unix_micros));
    assert_eq!((timings[1].claimed_at, timings[1].completed_at), (None, None));
    assert_eq!(records.timings(i64::MAX).unwrap(), []);
    assert_eq!(run(&*store, &ended.id), ended);
}

pub(super) fn workers_come_and_go(harness: &dyn Harness) {
    let (place, store) = store(harness);
    let new = |id: &str, started_at| Worker {
        id: worker(id),
        holder: HolderId(u64::MAX),
        origin: Origin {
            host: "here".to_owned(),
            boot: "now".to_owned(),
            pid_namespace: u64::MAX,
            session: None,
        },
        process: ProcessRef { pid: 42, started: u64::MAX },
        jobs: 8,
        labels: ["gpu", "linux/arm64"].map(|label| label.parse().unwrap()).to_vec(),
        started_at,
        heartbeat_at: None,
    };
    let workers = || place.open().snapshot().unwrap().workers().unwrap();
    assert_eq!(workers(), []);
    let [late, early] = [new("W-1", 2), new("W-2", 1)];
    store.register_worker(&late).unwrap();
    store.register_worker(&early).unwrap();
    assert_eq!(workers(), [early, late.clone()]);
    store.remove_worker(&worker("W-2")).unwrap();
    store.remove_worker(&worker("W-3")).unwrap();
    assert_eq!(workers(), [late]);
}
