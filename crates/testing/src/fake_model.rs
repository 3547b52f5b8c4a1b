//! A language model that follows a script: a loopback HTTP server for tests of real coding agents.
//!
//! It speaks the four protocols that coding agents use: Anthropic Messages, OpenAI Responses, OpenAI Chat Completions
//! and Gemini `generateContent`. The prompt carries a [`Script`]: which tools the model calls, and what it says. Each
//! request brings the whole conversation, so the server finds the next step by counting the calls made since the
//! script. It keeps no state for a conversation: sub-agents and several agents at once work with one server.
//!
//! ```no_run
//! # use lockkeeper_testing::{Call, FakeModel, Script};
//! # use serde_json::json;
//! let model = FakeModel::start();
//! let write = Call::new("Write", json!({ "file_path": "/tmp/a", "content": "x" }));
//! let script = Script::new().call(write).say("done");
//! // Start an agent with the base URL `model.url()` and the prompt `script.prompt()`, and wait for its end.
//! assert!(model.was_told("denied"));
//! ```

mod anthropic;
mod chat;
mod connection;
mod conversation;
mod gemini;
mod responses;
mod script;

use std::collections::BTreeSet;
use std::net::{Ipv4Addr, SocketAddr, TcpListener, TcpStream};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::Instant;

use serde_json::Value;

use crate::LIMIT;
use crate::http::Http;
use connection::Answer;
use conversation::{Item, Reply};
pub use script::{Call, Script};

/// A running server on a free port. Its threads end with the test process.
pub struct FakeModel {
    address: SocketAddr,
    shared: Arc<Shared>,
}

/// One request of an agent, as the model saw it.
#[derive(Clone, Debug)]
pub struct Asked {
    /// The path of the URL.
    pub path: String,
    /// The JSON of the body, or null.
    pub body: Value,
    /// The results of tools in this conversation, as text.
    pub results: Vec<String>,
}

#[derive(Default)]
struct Shared {
    state: Mutex<State>,
    changed: Condvar,
}

#[derive(Default)]
struct State {
    asked: Vec<Asked>,
    /// Gates at which a conversation waits or has waited.
    reached: BTreeSet<String>,
    /// Gates that the test has opened.
    open: BTreeSet<String>,
    /// Number of the last call: each call of a tool has its own id.
    last_call: u64,
}

impl FakeModel {
    /// Starts the server.
    #[must_use]
    pub fn start() -> Self {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
        let address = listener.local_addr().unwrap();
        let shared = Arc::new(Shared::default());
        let serving = Arc::clone(&shared);
        thread::spawn(move || {
            for stream in listener.incoming().flatten() {
                let shared = Arc::clone(&serving);
                thread::spawn(move || shared.serve(&stream));
            }
        });
        Self { address, shared }
    }

    /// Every request until now, in the order of arrival.
    #[must_use]
    pub fn asked(&self) -> Vec<Asked> {
        self.shared.lock().asked.clone()
    }

    /// Whether the result of a tool that was sent to the model contains a text.
    #[must_use]
    pub fn was_told(&self, text: &str) -> bool {
        self.times_told(text) > 0
    }

    /// Whether any text that was sent to the model contains a text: also what an agent adds to the results of tools.
    #[must_use]
    pub fn has_read(&self, text: &str) -> bool {
        self.shared.lock().asked.iter().any(|asked| conversation::strings(&asked.body).contains(text))
    }

    /// The largest number of tool results with this text in one conversation.
    #[must_use]
    pub fn times_told(&self, text: &str) -> usize {
        let count = |results: &Vec<String>| results.iter().filter(|result| result.contains(text)).count();
        self.results().iter().map(count).max().unwrap_or(0)
    }

    /// The results of tools that were sent to the model, by conversation so far: each request repeats the earlier ones.
    #[must_use]
    pub fn results(&self) -> Vec<Vec<String>> {
        self.shared.lock().asked.iter().map(|asked| asked.results.clone()).collect()
    }

    /// Waits until a conversation has come to a gate of its script.
    #[track_caller]
    pub fn until_at(&self, gate: &str) {
        let is_reached = self.shared.wait(|state| state.reached.contains(gate));
        assert!(is_reached, "no conversation came to {gate:?}; the model was told {:#?}", self.results());
    }

    /// Opens a gate: conversations that wait there go on, and later ones do not wait.
    pub fn open(&self, gate: &str) {
        self.shared.lock().open.insert(gate.to_owned());
        self.shared.changed.notify_all();
    }
}

impl Http for FakeModel {
    fn address(&self) -> SocketAddr {
        self.address
    }
}

impl Shared {
    /// Answers the requests of one connection. A connection that breaks concerns only the agent that broke it.
    fn serve(&self, stream: &TcpStream) {
        let _ = connection::serve(stream, |path, body| self.answer(path, body));
    }

    fn answer(&self, path: &str, body: Value) -> Answer {
        let bare = path.split('?').next().unwrap_or(path);
        let read: fn(&Value) -> Vec<Item> = match () {
            () if bare.ends_with("/messages") => anthropic::read,
            () if bare.ends_with("/responses") => responses::read,
            () if bare.ends_with("/chat/completions") => chat::read,
            () if bare.ends_with(":generateContent") || bare.ends_with(":streamGenerateContent") => {
                gemini::read
            }
            () => {
                self.lock().asked.push(Asked { path: path.to_owned(), body, results: Vec::new() });
                return Answer::NotFound;
            }
        };
        let items = read(&body);
        let reply = self.reply(path, &body, &items);
        let first_id = self.next_ids(reply.calls().len());
        match () {
            () if bare.ends_with("/messages") => anthropic::write(&body, &reply, first_id),
            () if bare.ends_with("/responses") => responses::write(&body, &reply, first_id),
            () if bare.ends_with("/chat/completions") => chat::write(&body, &reply, first_id),
            () => gemini::write(path, &reply),
        }
    }

    /// Records a request, waits at the gates of its script, and returns what the model does next.
    fn reply(&self, path: &str, body: &Value, items: &[Item]) -> Reply {
        let results = conversation::results(items);
        self.lock().asked.push(Asked { path: path.to_owned(), body: body.clone(), results });
        self.changed.notify_all();
        // Agents also ask for titles and summaries. Such requests offer no tools, or not those of the script.
        if !conversation::offers_tools(body) {
            return Reply::Say("ok".to_owned());
        }
        let Some((script, calls)) = conversation::script(items) else { return Reply::Say("ok".to_owned()) };
        let (gates, reply) = script.next(calls);
        for gate in gates {
            self.lock().reached.insert(gate.clone());
            self.changed.notify_all();
            self.wait(|state| state.open.contains(&gate));
        }
        reply
    }

    fn next_ids(&self, count: usize) -> u64 {
        let mut state = self.lock();
        let first = state.last_call + 1;
        state.last_call += count as u64;
        first
    }

    /// Waits until a condition holds. False when three times [`LIMIT`] passed: an agent needs many seconds of a processor to start.
    fn wait(&self, condition: impl Fn(&State) -> bool) -> bool {
        let limit = Instant::now() + 3 * LIMIT;
        let mut state = self.lock();
        while !condition(&state) {
            let Some(left) = limit.checked_duration_since(Instant::now()) else { return false };
            state = self.changed.wait_timeout(state, left).unwrap_or_else(PoisonError::into_inner).0;
        }
        true
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests;
