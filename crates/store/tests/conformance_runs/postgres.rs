//! What only PostgreSQL does: several programs make the tables at the same time, and a newer schema is refused.

use std::thread;
use std::time::Duration;

use lockkeeper_core::id::HolderId;
use lockkeeper_core::liveness::{Origin, ProcessRef};
use lockkeeper_core::run::transition::{self, Claimant};
use lockkeeper_core::time::Ttl;
use lockkeeper_store::runs::{ClaimOrder, Claims, KeptOutput, Moved, OutputChange, Piece, Renewal, Worker};
use lockkeeper_store::{PostgresRunStore, RunStore, SqliteRunStore, StoreError};

use super::harness::skip;
use super::import::{import, shown, source};
use super::on_server::NEEDED;
use super::own_database::Database;
use super::sample::{apply, claim_of, request, submit, worker};

fn open(database: &Database) -> Result<PostgresRunStore, StoreError> {
    PostgresRunStore::open(database.config(), "shop", Duration::from_secs(5))
}

#[test]
fn many_programs_make_the_tables_once() {
    let Some(database) = Database::new() else { return skip(NEEDED) };
    thread::scope(|scope| {
        for number in 0..8 {
            let database = &database;
            scope.spawn(move || submit(&open(database).unwrap(), &request(&format!("r{number}"))));
        }
    });
    let store = open(&database).unwrap();
    assert_eq!(store.examine(true).unwrap().flaws, [""; 0]);
    assert_eq!(store.snapshot().unwrap().queue_head(99).unwrap().len(), 8);
}

#[test]
fn a_newer_schema_is_refused() {
    let Some(database) = Database::new() else { return skip(NEEDED) };
    drop(open(&database).unwrap());
    for (schema, newest) in [("lockkeeper", 2), ("lockkeeper_runs", 3)] {
        database.execute(&format!("UPDATE {schema}.about SET version = version + 1"));
        let Err(error) = open(&database) else { panic!("{schema} was opened") };
        let StoreError::TooNew { found, known, .. } = error else { panic!("{error:?}") };
        assert_eq!((found, known), (newest + 1, newest));
        database.execute(&format!("UPDATE {schema}.about SET version = version - 1"));
    }
    open(&database).unwrap();
}

#[test]
fn an_older_schema_is_brought_up_to_date_once() {
    let Some(database) = Database::new() else { return skip(NEEDED) };
    let run = submit(&open(&database).unwrap(), &request("before"));
    database.execute(
        "DROP TABLE lockkeeper_runs.output; DROP FUNCTION lockkeeper.versions;
         ALTER TABLE lockkeeper_runs.run ADD CHECK (status = 'queued');
         UPDATE lockkeeper_runs.about SET version = 1; UPDATE lockkeeper.about SET version = 1",
    );
    thread::scope(|scope| {
        for _ in 0..4 {
            scope.spawn(|| open(&database).unwrap());
        }
    });
    let store = open(&database).unwrap();
    assert_eq!(store.snapshot().unwrap().output(&run.id, 1, 0).unwrap(), None);
    // A constraint of the table is gone.
    apply(&store, claim_of(&store, &run, "W-1"));
}

#[test]
fn a_row_that_cannot_be_is_refused() {
    let Some(database) = Database::new() else { return skip(NEEDED) };
    submit(&open(&database).unwrap(), &request("r"));
    let change = |what: &str| database.try_execute(&format!("UPDATE lockkeeper_runs.run SET {what}"));
    for what in
        ["attempt = -1", "status = 'asleep'", "status = 'succeeded'", "worker = 'W-1'", "completed_at = 1"]
    {
        let refusal = change(what).unwrap_err();
        assert!(refusal.code().is_some_and(|code| code.code() == "LK001"), "{what}: {refusal}");
    }
    change("give_up_at = 1").unwrap();
}

#[test]
fn the_first_and_the_last_part_of_an_output_are_kept() {
    let Some(database) = Database::new() else { return skip(NEEDED) };
    let store = open(&database).unwrap();
    let (run, other) = (submit(&store, &request("a")).id, submit(&store, &request("b")).id);
    let piece = |from, text: &str| Piece { from, bytes: text.as_bytes().to_vec() };
    let keep = |remove: std::ops::Range<u64>, add: &[Piece]| {
        let change = OutputChange { run: &run, attempt: 2, host: "mill", remove: &remove, add };
        store.keep_output(&[change]).unwrap();
    };
    let kept = |run, attempt, from| store.snapshot().unwrap().output(run, attempt, from).unwrap();
    keep(0..0, &[piece(0, "begin "), piece(6, "middle ")]);
    keep(6..13, &[piece(20, "end")]);
    let pieces = vec![piece(0, "begin "), piece(20, "end")];
    let all = KeptOutput { host: "mill".to_owned(), size: 23, is_complete: false, pieces: pieces.clone() };
    assert_eq!(kept(&run, 2, 0), Some(all.clone()));
    assert_eq!(kept(&run, 2, 6), Some(KeptOutput { pieces: pieces[1..].to_vec(), ..all.clone() }));
    assert_eq!(kept(&run, 2, 23), Some(KeptOutput { pieces: Vec::new(), ..all.clone() }));
    assert_eq!([kept(&run, 1, 0), kept(&other, 2, 0)], [None, None]);
    // The same again, by a process that does not know what was kept, and its end.
    keep(0..u64::MAX, &[&pieces[..], &[piece(23, "")]].concat());
    assert_eq!(kept(&run, 2, 0), Some(KeptOutput { is_complete: true, ..all }));
    let queued = store.snapshot().unwrap().run(&run).unwrap().unwrap();
    apply(&store, transition::cancel(&queued, store.now(), None).unwrap());
    assert_eq!(store.prune(i64::MAX).unwrap().len(), 1);
    assert_eq!(kept(&run, 2, 0), None);
    // A run that was pruned keeps nothing.
    keep(0..0, &pieces);
    assert_eq!(kept(&run, 2, 0), None);
}

fn session() -> Ttl {
    Ttl::new(Duration::from_secs(30)).unwrap()
}

/// A worker with a session, whose first heartbeat has the number 5.
fn registered(store: &PostgresRunStore) -> Worker {
    let (host, boot) = ("here".to_owned(), "now".to_owned());
    let registered = Worker {
        id: worker("W-1"),
        holder: HolderId(7),
        origin: Origin { host, boot, pid_namespace: 1, session: Some(session()) },
        process: ProcessRef { pid: 42, started: 1 },
        jobs: 8,
        labels: Vec::new(),
        started_at: 5,
        heartbeat_at: None,
    };
    store.register_worker(&registered).unwrap();
    registered
}

/// Invariant 9. A server that may have lost claims lets nobody claim anything for one session, in either way.
#[test]
fn nothing_is_claimed_while_workers_write_their_runs_again() {
    let Some(database) = Database::new() else { return skip(NEEDED) };
    let store = open(&database).unwrap().with_session(session());
    let registered = registered(&store);
    let (first, second) = (submit(&store, &request("a")), submit(&store, &request("b")));
    let renew = |expected: &[i64], beat| store.renew_worker(&registered.id, expected, beat).unwrap();
    assert_eq!((renew(&[5], 6), store.silent_until()), (Renewal::Renewed, None));
    // A server that was restored is another incarnation than the one that its tables name.
    database.execute("UPDATE lockkeeper.clock SET server = 'another'");
    let claim = || {
        let claims = Claims { worker: &registered.id, locks: &[HolderId(8)], order: ClaimOrder::Strict };
        store.claim(&claims).unwrap()
    };
    let claim_first = || store.move_runs(&[claim_of(&store, &first, "W-2")]).unwrap();
    assert_eq!(claim_first(), [Moved::Conflict(Some(Box::new(first.clone())))]);
    assert!(claim().is_empty() && store.silent_until().is_some());
    // It has lost the last heartbeat. From the next one on, a clone is noticed again.
    assert_eq!((renew(&[77], 78), renew(&[6], 7)), (Renewal::Renewed, Renewal::Taken));
    // What is no claim is written.
    let again = transition::claim(&second, claimant(), store.now()).unwrap().run;
    let again = transition::write_again(&second, &again, store.now()).unwrap().unwrap();
    assert_eq!(apply(&store, again).worker(), Some(&registered.id));
    database.execute("UPDATE lockkeeper.clock SET since = since - 31000000");
    assert!(claim_first() == [Moved::Applied] && store.silent_until().is_none() && claim().is_empty());
    submit(&store, &request("c"));
    assert_eq!(claim().len(), 1);
}

fn claimant() -> Claimant {
    Claimant { worker: worker("W-1"), holder: Some(HolderId(7)), lease: None }
}

/// Invariant 1. Two machines that are clones of each other have one worker: the second one loses the compare-and-set.
#[test]
fn only_the_last_renewer_renews_a_session() {
    let Some(database) = Database::new() else { return skip(NEEDED) };
    let store = open(&database).unwrap();
    let registered = registered(&store);
    let session = registered.origin.session;
    let found = || store.snapshot().unwrap().workers().unwrap().swap_remove(0);
    let first = found();
    assert_eq!(first.origin.session, session);
    let renew = |expected: &[i64], beat| store.renew_worker(&registered.id, expected, beat).unwrap();
    assert_eq!(renew(&[5], 6), Renewal::Renewed);
    assert!(found().heartbeat_at >= first.heartbeat_at && first.heartbeat_at.is_some());
    // The clone still has the earlier number.
    assert_eq!(renew(&[5], 7), Renewal::Taken);
    // One of the two may have been written by a call without an answer.
    assert_eq!(renew(&[8, 6], 9), Renewal::Renewed);
    store.remove_worker(&registered.id).unwrap();
    assert_eq!(renew(&[9], 10), Renewal::Gone);
}

/// Records survive a move to another backend and back, also the machines of runs and large positions.
#[test]
fn records_go_from_sqlite_to_a_server_and_back() {
    let Some(database) = Database::new() else { return skip(NEEDED) };
    let server = open(&database).unwrap();
    let (_folder, first) = source();
    import(&first, &server, false).unwrap();
    assert_eq!(shown(&server), shown(&first));
    submit(&server, &request("on the server"));
    let there = tempfile::tempdir().unwrap();
    let last = SqliteRunStore::open(there.path(), "this-boot").unwrap();
    import(&server, &last, false).unwrap();
    assert_eq!(shown(&last), shown(&server));
    submit(&last, &request("back again"));
    let other = PostgresRunStore::open(database.config(), "other", Duration::from_secs(5)).unwrap();
    import(&last, &other, false).unwrap();
    let before = other.snapshot().unwrap().last_position().unwrap();
    submit(&other, &request("on the server again"));
    assert!(other.snapshot().unwrap().last_position().unwrap() > before);
}
