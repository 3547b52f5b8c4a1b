//! The `lockkeeper` command.
fn main() {}
