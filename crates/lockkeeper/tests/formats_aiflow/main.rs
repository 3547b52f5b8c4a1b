//! Request and queue locks of aiflow: the files, who may take them over, and the passes that recover stale ones.
#![expect(clippy::unwrap_used, reason = "a test may fail by panicking, in its helpers too")]

mod project;
mod records;
mod recovery;
