//! Settings of a server: access, defaults and limits.

use std::path::PathBuf;
use std::time::Duration;

use lockkeeper_core::time::Ttl;
use lockkeeper_engine::messages::Language;
use lockkeeper_engine::runs::new_request::Defaults;
use lockkeeper_engine::work;
use lockkeeper_formats::group::Folders;
use lockkeeper_formats::swarm::Swarm;

use crate::otlp::Endpoint;
use crate::token::AccessToken;

/// Settings of a server.
#[derive(Clone, Debug)]
pub struct Settings {
    /// The token that every client has to send. Without one, every user of this machine is answered on loopback addresses.
    pub token: Option<AccessToken>,
    /// Host names that are accepted besides those of the loopback addresses.
    pub allowed_hosts: Vec<String>,
    /// The language for clients that ask for none.
    pub language: Language,
    /// The TTL of a lease that is not tied to a process.
    pub ttl: Ttl,
    /// How long a ticket stays in line without being renewed.
    pub stays: Ttl,
    /// How long a holder may take to stop when its lease is broken.
    pub grace: Duration,
    /// How runs are executed that are started over HTTP.
    pub execution: work::Settings,
    /// The folder of the status log; none for no log.
    pub status_dir: Option<PathBuf>,
    /// Defaults for fields that a request leaves out.
    pub defaults: Defaults,
    /// How many runs may be queued.
    pub queue_limit: Option<u64>,
    /// Settings of the doctor.
    pub doctor: DoctorSettings,
    /// The collector that receives spans; none to send no spans.
    pub otlp: Option<Endpoint>,
    /// As the store of which project other machines use the state folder, and their sessions; none if they may not.
    pub served: Option<(String, Ttl)>,
    /// Limits of the server.
    pub limits: Limits,
}

/// Settings of the doctor: what it examines besides the store.
#[derive(Clone, Debug)]
pub struct DoctorSettings {
    /// The folders of group locks.
    pub groups: Folders,
    /// The age from which on a group lock is reported with a warning.
    pub max_group_age: Duration,
    /// The folder of task locks.
    pub swarm: Swarm,
}

/// Limits that protect the server from overload.
#[derive(Clone, Copy, Debug)]
pub struct Limits {
    /// Connections at the same time; more are rejected.
    pub connections: usize,
    /// Event streams at the same time; more are refused.
    pub streams: usize,
    /// The largest request body, in bytes.
    pub body_bytes: usize,
    /// How long a client may take to send the head of a request, and how long a connection may be idle.
    pub head_time: Duration,
    /// How long a request may take, including its body.
    pub request_time: Duration,
    /// How often an idle event stream sends a keep-alive comment.
    pub keep_alive: Duration,
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            connections: 640,
            streams: 512,
            body_bytes: 256 * 1024,
            head_time: Duration::from_secs(10),
            request_time: Duration::from_secs(30),
            keep_alive: Duration::from_secs(15),
        }
    }
}
