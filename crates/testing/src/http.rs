//! A plain HTTP client: it sends exactly what the test says, and reads answers and event streams.

mod client;
mod events;

use std::net::SocketAddr;

use serde_json::Value;

pub use client::{Request, Response, connect};
pub use events::{Event, Events};

/// Something with an HTTP address, such as a server in this process or in another one.
pub trait Http {
    /// Where it listens.
    fn address(&self) -> SocketAddr;

    /// The token that its requests and streams send.
    fn token(&self) -> Option<&str> {
        None
    }

    /// The URL of a path.
    fn url(&self, path: &str) -> String {
        format!("http://{}{path}", self.address())
    }

    /// A request to be completed and sent.
    fn request(&self, method: &str, path: &str) -> Request {
        let request = Request::new(self.address(), method, path);
        match self.token() {
            Some(token) => request.header("authorization", format!("Bearer {token}")),
            None => request,
        }
    }

    /// Sends a GET.
    fn get(&self, path: &str) -> Response {
        self.request("GET", path).send()
    }

    /// Sends a POST with JSON.
    fn post(&self, path: &str, body: &Value) -> Response {
        self.request("POST", path).json(body).send()
    }

    /// Sends a PUT with a JSON body.
    fn put(&self, path: &str, body: &Value) -> Response {
        self.request("PUT", path).json(body).send()
    }

    /// Sends a DELETE.
    fn delete(&self, path: &str) -> Response {
        self.request("DELETE", path).send()
    }

    /// Opens the stream of all events from now on.
    fn listen(&self) -> Events {
        let bearer = self.token().map(|token| format!("Bearer {token}"));
        let headers: Vec<_> = bearer.iter().map(|bearer| ("authorization", bearer.as_str())).collect();
        Events::open_as(self.address(), "/api/events", None, &headers)
    }
}

impl Http for SocketAddr {
    fn address(&self) -> SocketAddr {
        *self
    }
}
