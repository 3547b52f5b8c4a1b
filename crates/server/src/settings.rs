//! What a server is told when it starts: who may come, and how much of anything.

use std::path::PathBuf;
use std::time::Duration;

use lockkeeper_core::time::Ttl;

use super::otlp::Endpoint;
use super::token::AccessToken;
use lockkeeper_engine::messages::Language;
use lockkeeper_engine::runs::new_request::Defaults;
use lockkeeper_engine::work;
use lockkeeper_formats::group::Folders;
use lockkeeper_formats::swarm::Swarm;

/// How a server behaves.
#[derive(Clone, Debug)]
pub struct Settings {
    /// What everybody must know who is to be answered; nothing on a loopback address that all users share.
    pub token: Option<AccessToken>,
    /// Names besides those of the loopback that the server is called by.
    pub allowed_hosts: Vec<String>,
    /// The language for those who do not say theirs.
    pub language: Language,
    /// The TTL of a lease that no process stands for.
    pub ttl: Ttl,
    /// How long a ticket stays in line while its owner is away.
    pub stays: Ttl,
    /// How long a holder gets to stop by itself when its lease is broken.
    pub grace: Duration,
    /// How runs are executed that are asked for over HTTP.
    pub execution: work::Settings,
    /// The folder of the status log, if one is written.
    pub status_dir: Option<PathBuf>,
    /// What counts where a request says nothing.
    pub defaults: Defaults,
    /// How many runs may wait.
    pub queue_limit: Option<u64>,
    /// What the doctor looks at besides the store.
    pub doctor: DoctorSettings,
    /// Where spans are sent to, if anywhere.
    pub otlp: Option<Endpoint>,
    /// How much of anything.
    pub limits: Limits,
}

/// What the doctor looks at besides the store.
#[derive(Clone, Debug)]
pub struct DoctorSettings {
    /// The folders of group locks.
    pub groups: Folders,
    /// How old a group lock may become before it is worth a warning.
    pub max_group_age: Duration,
    /// The folder of task locks.
    pub swarm: Swarm,
}

/// How much of anything one server puts up with.
#[derive(Clone, Copy, Debug)]
pub struct Limits {
    /// Connections at a time; more are turned away.
    pub connections: usize,
    /// Event streams at a time; more are refused.
    pub streams: usize,
    /// Bytes of a request's body.
    pub body_bytes: usize,
    /// How long a connection may take to send the head of a request, and how long it may be idle.
    pub head_time: Duration,
    /// How long a request may take, its body included.
    pub request_time: Duration,
    /// How often a silent event stream says that it lives.
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
