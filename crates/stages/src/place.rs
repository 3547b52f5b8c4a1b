//! Values with their position in the file.

pub use lockkeeper_formats::yaml::{Place, Source};

/// A value and its position.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Placed<T> {
    /// The value.
    pub value: T,
    /// Where it is in the file.
    pub place: Place,
}

impl<T> Placed<T> {
    pub(super) fn new(value: T, place: Place) -> Self {
        Self { value, place }
    }
}
