//! What only a folder that is served does: it has sessions and output of other machines, beside the processes of its own.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use lockkeeper_core::id::HolderId;
use lockkeeper_core::liveness::{Origin, ProcessRef};
use lockkeeper_core::run::Status;
use lockkeeper_core::time::Ttl;
use lockkeeper_store::runs::{ClaimOrder, Claims, KeptOutput, OutputChange, Piece, Renewal, Worker};
use lockkeeper_store::{HttpAddress, HttpRunStore, RunStore, SqliteRunStore};

use super::sample::{apply, cancel, request, run, submit, worker};
use super::serving::{self, Serving};

const SESSION: Duration = Duration::from_secs(30);

/// A folder, and its server.
struct Served {
    address: String,
    serving: Arc<Serving>,
}

impl Served {
    fn new() -> Self {
        let (address, serving) = serving::start();
        Self { address: format!("{address}/shop"), serving }
    }

    fn folder(&self) -> PathBuf {
        self.serving.folder.path().join("shop")
    }

    fn local(&self) -> SqliteRunStore {
        SqliteRunStore::open(&self.folder(), "this-boot").unwrap()
    }

    /// The server begins anew after a reboot of its machine.
    fn reboot(&self) {
        *self.serving.boot.lock().unwrap() = "next-boot";
        self.serving.open.lock().unwrap().clear();
    }
}

fn remote(served: &Served) -> HttpRunStore {
    let address = HttpAddress::parse(&served.address, None).unwrap();
    let store = HttpRunStore::open(address, "shop", Duration::from_secs(5)).unwrap();
    store.with_session(Ttl::new(SESSION).unwrap())
}

/// A worker with a session, whose first heartbeat has the number 5.
fn registered(store: &dyn RunStore) -> Worker {
    let (host, boot) = ("mill".to_owned(), "another-boot".to_owned());
    let session = Some(Ttl::new(SESSION).unwrap());
    let registered = Worker {
        id: worker("W-1"),
        holder: HolderId(7),
        origin: Origin { host, boot, pid_namespace: 1, session },
        process: ProcessRef { pid: 42, started: 1 },
        jobs: 8,
        labels: vec!["gpu".parse().unwrap()],
        started_at: 5,
        heartbeat_at: None,
    };
    store.register_worker(&registered).unwrap();
    registered
}

/// Invariant 9. Both use the same records, and each run is claimed by one of them.
#[test]
fn processes_of_the_serving_machine_and_others_share_one_queue() {
    let served = Served::new();
    let remote = remote(&served);
    let local = served.local();
    let (first, second) = (submit(&local, &request("a")), submit(&remote, &request("b")));
    registered(&remote);
    let (here, there) = (worker("W-2"), worker("W-1"));
    let claims = |worker| Claims { worker, locks: &[HolderId(8)], order: ClaimOrder::Strict };
    let claimed = [remote.claim(&claims(&there)).unwrap(), local.claim(&claims(&here)).unwrap()];
    assert_eq!(claimed.map(|claimed| claimed[0].0.id.clone()), [first.id.clone(), second.id.clone()]);
    for store in [&remote as &dyn RunStore, &local] {
        let hosts = store.snapshot().unwrap().hosts(&[&first.id, &second.id]).unwrap();
        assert_eq!(hosts.into_iter().collect::<Vec<_>>(), [(first.id.clone(), "mill".to_owned())]);
        assert_eq!(run(store, &first.id).worker(), Some(&there));
        assert!(store.session() == Some(Ttl::new(SESSION).unwrap()));
    }
}

/// Invariant 1. Two machines that are clones of each other have one worker: the second one loses the compare-and-set.
#[test]
fn only_the_last_renewer_renews_a_session() {
    let served = Served::new();
    let store = remote(&served);
    let registered = registered(&store);
    let local = served.local();
    let found = |store: &dyn RunStore| store.snapshot().unwrap().workers().unwrap().swap_remove(0);
    let first = found(&store);
    assert_eq!(first, Worker { heartbeat_at: first.heartbeat_at, ..registered.clone() });
    let renew = |expected: &[i64], beat| store.renew_worker(&registered.id, expected, beat).unwrap();
    assert_eq!(renew(&[5], 6), Renewal::Renewed);
    assert!(found(&store).heartbeat_at >= first.heartbeat_at && first.heartbeat_at.is_some());
    assert!(found(&local).heartbeat_at.unwrap() <= local.now().moment);
    // The clone still has the earlier number.
    assert_eq!(renew(&[5], 7), Renewal::Taken);
    // One of the two may have been written by a call without an answer.
    assert_eq!(renew(&[8, 6], 9), Renewal::Renewed);
    local.remove_worker(&registered.id).unwrap();
    assert_eq!(renew(&[9], 10), Renewal::Gone);
}

#[test]
fn the_first_and_the_last_part_of_an_output_are_kept() {
    let served = Served::new();
    let store = remote(&served);
    let local = served.local();
    let (run, other) = (submit(&store, &request("a")).id, submit(&store, &request("b")).id);
    let piece = |from, text: &str| Piece { from, bytes: text.as_bytes().to_vec() };
    let keep = |remove: std::ops::Range<u64>, add: &[Piece]| {
        let change = OutputChange { run: &run, attempt: 2, host: "mill", remove: &remove, add };
        store.keep_output(&[change]).unwrap();
    };
    let kept = |run, attempt, from| {
        let [here, there] = [&store as &dyn RunStore, &local]
            .map(|store| store.snapshot().unwrap().output(run, attempt, from).unwrap());
        assert_eq!(here, there);
        here
    };
    keep(0..0, &[piece(0, "begin "), piece(6, "middle ")]);
    keep(6..13, &[piece(20, "end")]);
    let pieces = vec![piece(0, "begin "), piece(20, "end")];
    let all = KeptOutput { host: "mill".to_owned(), size: 23, is_complete: false, pieces: pieces.clone() };
    assert_eq!(kept(&run, 2, 0), Some(all.clone()));
    assert_eq!(kept(&run, 2, 6), Some(KeptOutput { pieces: pieces[1..].to_vec(), ..all.clone() }));
    assert_eq!([kept(&run, 1, 0), kept(&other, 2, 0)], [None, None]);
    // The same again, by a process that does not know what was kept, and its end.
    keep(0..u64::MAX, &[&pieces[..], &[piece(23, "")]].concat());
    assert_eq!(kept(&run, 2, 0), Some(KeptOutput { is_complete: true, ..all }));
    cancel(&store, &super::sample::run(&store, &run));
    assert_eq!(store.prune(i64::MAX).unwrap().len(), 1);
    assert_eq!(kept(&run, 2, 0), None);
    // A run that was pruned keeps nothing.
    keep(0..0, &pieces);
    assert_eq!(kept(&run, 2, 0), None);
}

/// Invariant 9. Workers of other machines outlive a reboot of the serving machine, and have the time of a session to come back. Its own
/// do not.
#[test]
fn after_a_reboot_workers_of_other_machines_are_still_there() {
    let served = Served::new();
    let store = remote(&served);
    let queued = submit(&store, &request("a"));
    let registered = registered(&store);
    {
        let local = served.local();
        let origin = Origin { session: None, boot: "this-boot".to_owned(), ..registered.origin.clone() };
        local.register_worker(&Worker { id: worker("W-2"), origin, ..registered.clone() }).unwrap();
    }
    let claimed = apply(&store, super::sample::claim_of(&store, &queued, "W-1"));
    let before = store.now().moment;
    served.reboot();
    let records = store.snapshot().unwrap();
    assert!(records.now().moment >= before, "the clock goes on");
    let workers = records.workers().unwrap();
    let [found] = &workers[..] else { panic!("{workers:?}") };
    assert_eq!((&found.id, found.origin.session), (&registered.id, registered.origin.session));
    assert!(found.heartbeat_at.unwrap().after(SESSION) > records.now().moment);
    let after = records.run(&claimed.id).unwrap().unwrap();
    assert_eq!((after.status(), after.worker()), (Status::Running, Some(&registered.id)));
    assert_eq!(store.renew_worker(&registered.id, &[5], 6).unwrap(), Renewal::Renewed);
}

#[test]
fn many_clients_read_at_the_same_time() {
    let served = Served::new();
    let store = remote(&served);
    submit(&store, &request("a"));
    let snapshots: Vec<_> = (0..40).map(|_| store.snapshot().unwrap()).collect();
    let see = |count: usize| {
        assert!(snapshots.iter().all(|records| records.queue_head(9).unwrap().len() == count));
    };
    see(1);
    submit(&store, &request("b"));
    see(1);
    drop(snapshots);
    assert_eq!(store.snapshot().unwrap().queue_head(9).unwrap().len(), 2);
}

/// A request that waits when the first machine comes is converted once.
#[test]
fn requests_that_wait_are_converted_when_the_folder_is_served() {
    let served = Served::new();
    submit(&served.local(), &request("a"));
    assert_eq!(served.local().session(), None);
    let store = remote(&served);
    submit(&store, &request("b"));
    let requests = store.snapshot().unwrap().requests_in_order(None, 9).unwrap();
    let folders: Vec<&str> = requests.iter().map(|stored| stored.request.dir.as_str()).collect();
    assert_eq!(folders, ["converted", request("b").dir.as_str()]);
}
