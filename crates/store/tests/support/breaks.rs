//! One call at a time behind a proxy that breaks the connection at message 1, 2, 3 …, before the server reads it and after it has
//! answered.

use std::fmt::Debug;

use lockkeeper_store::StoreError;
use lockkeeper_testing::{Break, ServerProxy};

use super::harness::{Harness, skip};
use super::on_server::OnServer;

/// Checks a call: with every break it is made once, or not at all, and its answer is right. `state` shows everything that the
/// store has, without times.
pub fn every_break<S: ?Sized + 'static, A: Clone + Debug + PartialEq>(
    backend: &OnServer<S>,
    prepare: fn(&S),
    call: fn(&S) -> Result<A, StoreError>,
    state: fn(&S) -> String,
) {
    if let Some(what) = backend.lacks() {
        return skip(what);
    }
    let proxy = ServerProxy::start(&backend.address());
    let open = || {
        proxy.reset();
        let store = (backend.open)(proxy.address(), &backend.place().address().unwrap());
        prepare(&*store);
        store
    };
    let store = open();
    let before = state(&*store);
    let answer = call(&*store).unwrap();
    let after = state(&*store);
    for when in [Break::Before, Break::After] {
        for number in 1.. {
            let store = open();
            proxy.break_at(number, when);
            let called = call(&*store);
            if proxy.breaks() == 0 {
                assert!(number > 1, "the proxy saw no message");
                break;
            }
            proxy.reset();
            let found = state(&*store);
            let what = format!("{when:?} message {number}: {called:?}");
            match called {
                Ok(called) => assert_eq!((called, found), (answer.clone(), after.clone()), "{what}"),
                Err(StoreError::Unreachable { .. }) => assert_eq!(found, before, "{what}"),
                Err(StoreError::InDoubt { .. }) => {
                    assert!(found == before || found == after, "{what}: {found}");
                }
                Err(_) => panic!("{what}"),
            }
        }
    }
}
