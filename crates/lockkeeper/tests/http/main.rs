//! End-to-end tests of the HTTP API: programs, browsers and attackers.
#![expect(clippy::unwrap_used, reason = "a test may fail by panicking, in its helpers too")]

mod access;
mod agents;
mod aiflow;
mod answers;
mod bulk;
mod clients;
mod description;
mod events;
mod hooks;
mod hostile;
mod languages;
mod limits;
mod locks;
mod metrics;
mod otlp;
mod page_reasons;
mod pages;
mod queue;
mod repeated;
mod runs;
mod security;
mod serve;
mod server;
mod stages;
mod stages_pages;
