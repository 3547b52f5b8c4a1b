//! `lockkeeper mcp`, with raw JSON-RPC and with the official Python SDK as clients.
#![expect(clippy::unwrap_used, reason = "a test may fail by panicking, in its helpers too")]

mod claims;
mod commit;
mod ends;
mod identity;
mod peer;
mod protocol;
mod python;
mod refusals;
