//! Lockkeeper as a library.
