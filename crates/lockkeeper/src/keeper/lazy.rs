//! Lazy value: created when it is first needed, by one thread only. A failed creation is tried again by the next caller.

use std::sync::{Mutex, OnceLock};

use super::{Error, locked};

/// A value that is created when it is first needed.
pub(super) struct Lazy<T> {
    value: OnceLock<T>,
    creation: Mutex<()>,
}

impl<T> Lazy<T> {
    /// The value. Creates it if no thread has done so.
    pub(super) fn get_or_create(&self, create: impl FnOnce() -> Result<T, Error>) -> Result<&T, Error> {
        if let Some(value) = self.value.get() {
            return Ok(value);
        }
        let _one_at_a_time = locked(&self.creation);
        if let Some(value) = self.value.get() {
            return Ok(value);
        }
        let created = create()?;
        Ok(self.value.get_or_init(|| created))
    }
}

impl<T> Default for Lazy<T> {
    fn default() -> Self {
        Self { value: OnceLock::new(), creation: Mutex::new(()) }
    }
}
