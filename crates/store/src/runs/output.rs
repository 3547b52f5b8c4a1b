//! The output of runs on a store that several machines share: its first and its last part, in pieces.

use std::ops::Range;

use lockkeeper_core::id::RunId;

/// A part of an output.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Piece {
    /// The offset of its first byte.
    pub from: u64,
    /// Its bytes.
    pub bytes: Vec<u8>,
}

impl Piece {
    /// The offset after its last byte.
    pub fn end(&self) -> u64 {
        self.from + self.bytes.len() as u64
    }
}

/// A change of the output of an attempt that the store keeps.
#[derive(Clone, Copy, Debug)]
pub struct OutputChange<'o> {
    /// The run.
    pub run: &'o RunId,
    /// The number of the attempt.
    pub attempt: u32,
    /// The machine that has the whole output.
    pub host: &'o str,
    /// Pieces that begin here are removed, before others are added.
    pub remove: &'o Range<u64>,
    /// New pieces. An empty one says that nothing will follow.
    pub add: &'o [Piece],
}

/// The output of an attempt, as far as the store keeps it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct KeptOutput {
    /// The machine that has the whole output.
    pub host: String,
    /// The length of the output as far as it is known here, with the bytes that are missing.
    pub size: u64,
    /// Whether nothing will follow.
    pub is_complete: bool,
    /// Those pieces that were asked for, in their order. Between two of them, and before the first, bytes may be missing.
    pub pieces: Vec<Piece>,
}
