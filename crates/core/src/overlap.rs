//! Whether two patterns can match one same path.
