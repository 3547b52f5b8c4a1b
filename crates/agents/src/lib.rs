//! Coding agents: what their hooks say, what a tool call would write, and what they are answered.
//!
//! This part of the crate is pure. A hook call goes through it in three steps:
//!
//! 1. [`HookInput::read`] turns the bytes on standard input into one shape for all harnesses: who, where, which tool.
//! 2. [`writes`] works out what the [`ToolCall`] would write at a [`Place`], from paths, patches and command lines.
//! 3. [`Answer::render`] prints what the harness understands as "told" or "denied".
//!
//! Two rules hold throughout. What is not understood is never a reason to deny: it becomes [`Unread`] or a reason in
//! [`Writes::unknown`]. And no input makes the code panic or run without a limit.

mod answer;
mod harness;
mod input;
mod patch;
mod place;
mod quote;
mod shell;
mod tool;
mod writes;

pub use answer::{Answer, Printed};
pub use harness::{Harness, Marks};
pub use input::{BackgroundTask, Event, HookInput, MAX_BYTES, Unread};
pub use patch::{PatchError, paths as patch_paths};
pub use place::{Entry, Place, join, lexical};
pub use quote::{MAX_QUOTE, quoted};
pub use shell::writes as shell_writes;
pub use tool::{Action, ToolCall};
pub use writes::{GitPart, GitUse, Staged, Target, Writes, writes};
