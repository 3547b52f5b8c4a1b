//! Compares guards with the records of the store.

use std::thread;

use super::Keeper;

/// Invariants 1 and 2. A waiter takes the lease that its wake-up brings, without a look at the store.
#[test]
fn a_lease_that_was_waited_for_is_the_one_that_the_store_has() {
    let folder = tempfile::tempdir().unwrap();
    let waited: usize = thread::scope(|scope| {
        let turns = || {
            let keeper = Keeper::open(folder.path()).unwrap();
            let turn = |_: &usize| {
                let guard = keeper.lock("db").acquire().unwrap();
                assert_eq!(keeper.engine().lease(guard.held.id).unwrap(), Some(guard.lease()));
                guard.lease().was_waited_for()
            };
            (0..50).filter(turn).count()
        };
        let threads: Vec<_> = (0..4).map(|_| scope.spawn(turns)).collect();
        threads.into_iter().map(|thread| thread.join().unwrap()).sum()
    });
    let at_once = Keeper::open(folder.path()).unwrap().lock("db").acquire().unwrap();
    assert!(waited > 0 && !at_once.lease().was_waited_for(), "{waited} of 200 turns were waited for");
}
