//! Futures: a lock or a run that is awaited, and futures that are dropped.

use std::time::Duration;

use lockkeeper::{Error, RunStatus};

use crate::Site;

/// Invariant 6.
#[tokio::test(flavor = "multi_thread")]
async fn a_dropped_future_leaves_no_ticket() {
    let site = Site::new();
    let keeper = site.keeper();
    let guard = keeper.lock("db").acquire_async().await.unwrap();
    let waiting = tokio::spawn(keeper.lock("db").acquire_async());
    site.until(1, 1);
    waiting.abort();
    assert!(waiting.await.unwrap_err().is_cancelled());
    // The lock is still held, so the ticket can only have been given up.
    site.until(1, 0);
    guard.release().unwrap();
    assert_eq!(site.counts(), (0, 0));
}

/// Invariant 6. The release and the drop race: the lock is free afterwards, whichever comes first.
#[tokio::test(flavor = "multi_thread")]
async fn a_future_that_is_dropped_while_it_is_granted_keeps_nothing() {
    let site = Site::new();
    let keeper = site.keeper();
    for _ in 0..100 {
        let guard = keeper.lock("db").acquire_async().await.unwrap();
        let waiting = tokio::spawn(keeper.lock("db").acquire_async());
        site.until(1, 1);
        let release = tokio::task::spawn_blocking(move || drop(guard));
        waiting.abort();
        release.await.unwrap();
        drop(waiting.await);
        site.until(0, 0);
    }
}

#[tokio::test]
async fn a_future_that_was_never_polled_does_nothing() {
    let site = Site::new();
    drop(site.keeper().lock("db").acquire_async());
    assert_eq!(site.counts(), (0, 0));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_guard_in_a_task_is_released_when_the_task_ends_or_is_aborted() {
    let site = Site::new();
    let keeper = site.keeper();
    let builder = keeper.lock("db");
    let task = tokio::spawn(async move {
        let _guard = builder.acquire_async().await.unwrap();
        std::future::pending::<()>().await;
    });
    site.until(1, 0);
    let waiting = tokio::spawn(keeper.lock("db").acquire_async());
    site.until(1, 1);
    task.abort();
    let guard = waiting.await.unwrap().unwrap();
    drop(guard);
    assert_eq!(site.counts(), (0, 0));
}

#[tokio::test]
async fn a_timeout_ends_an_awaited_lock_too() {
    let site = Site::new();
    let keeper = site.keeper();
    let _guard = keeper.lock("db").owner("worker:1").acquire_async().await.unwrap();
    match keeper.lock("db").timeout(Duration::from_millis(5)).acquire_async().await {
        Err(Error::Timeout { blockers, .. }) => assert_eq!(blockers[0].owner, "worker:1"),
        other => panic!("{other:?}"),
    }
    assert_eq!(site.counts(), (1, 0));
}

/// The end of a runtime drops its tasks. It does not wait for locks that never come.
#[test]
fn a_runtime_ends_while_a_task_waits_for_a_lock() {
    let site = Site::new();
    let keeper = site.keeper();
    let guard = keeper.lock("db").acquire().unwrap();
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(1).build().unwrap();
    drop(runtime.spawn(keeper.lock("db").acquire_async()));
    site.until(1, 1);
    drop(runtime);
    assert_eq!(site.counts(), (1, 0));
    guard.release().unwrap();
}

#[tokio::test]
async fn a_run_is_awaited() {
    let site = Site::new();
    let run = site.keeper().submit(["true"]).enqueue().unwrap();
    let waiting = {
        let run = run.clone();
        tokio::spawn(async move { run.wait_async().await })
    };
    assert!(tokio::time::timeout(Duration::from_millis(5), run.wait_async()).await.is_err());
    assert_eq!(run.status().unwrap(), RunStatus::Queued, "a dropped wait does not end the run");
    run.cancel().unwrap();
    assert_eq!(waiting.await.unwrap().unwrap().status, RunStatus::Canceled);
}
