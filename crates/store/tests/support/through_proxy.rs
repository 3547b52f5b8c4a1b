//! Backends whose connections to the server break now and then.

use std::sync::Arc;

use lockkeeper_testing::{Dice, ServerProxy};

use super::harness::{Harness, Place};
use super::on_server::OnServer;

/// One message in about this many breaks its connection.
const OFTEN: u64 = 20;
/// How often connections break after a store was opened. A call has one try more than that, so its last try always succeeds.
const MOST: usize = 2;

/// A backend on a server, behind a proxy that breaks connections at random messages. The environment variable
/// LOCKKEEPER_SEED repeats a run.
pub struct ThroughProxy<S: ?Sized>(pub OnServer<S>);

impl<S: ?Sized + 'static> Harness<S> for ThroughProxy<S> {
    fn name(&self) -> &'static str {
        self.0.name
    }

    fn lacks(&self) -> Option<&'static str> {
        self.0.lacks()
    }

    fn place(&self) -> Box<dyn Place<S>> {
        let proxy = ServerProxy::start(&self.0.address());
        let project = self.0.place().address().unwrap();
        Box::new(Behind { proxy, project, open: self.0.open, dice: Dice::from_environment() })
    }

    fn open(&self, address: &str) -> Arc<S> {
        self.0.open(address)
    }
}

struct Behind<S: ?Sized> {
    proxy: ServerProxy,
    project: String,
    open: fn(&str, &str) -> Arc<S>,
    dice: Dice,
}

impl<S: ?Sized> Place<S> for Behind<S> {
    fn open(&self) -> Arc<S> {
        self.proxy.reset();
        let store = (self.open)(self.proxy.address(), &self.project);
        self.proxy.break_sometimes(self.dice.clone(), OFTEN, MOST);
        store
    }

    fn address(&self) -> Option<String> {
        Some(self.project.clone())
    }
}
