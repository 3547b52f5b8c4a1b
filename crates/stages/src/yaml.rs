//! YAML as a tree that knows its places, so that every complaint can point at the text.
//!
//! Input is bounded: [`MAX_BYTES`] of text, [`MAX_DEPTH`] levels, [`MAX_NODES`] nodes once aliases are written out.
//! So neither a large file, nor a deep one, nor aliases of aliases cost more than a known amount.

mod compose;
mod node;
mod syntax;

pub(super) use compose::compose;
pub(super) use node::{Node, Value};

/// The most bytes of a file.
pub const MAX_BYTES: usize = 4 << 20;

/// The most levels of lists and mappings within each other.
pub const MAX_DEPTH: usize = 48;

/// The most nodes of a file, those behind aliases counted each time that they are used.
pub const MAX_NODES: usize = 400_000;
