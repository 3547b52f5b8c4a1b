//! Coding agents: reads the inputs of their hooks, works out what a tool call would write, and answers.
//!
//! A hook call goes through these steps. The first three are pure:
//!
//! 1. [`HookInput::read`] turns the bytes on standard input into one shape for all harnesses: who, where, which tool.
//! 2. [`writes`] works out what the [`ToolCall`] would write at a [`Place`], from paths, patches and command lines.
//! 3. [`Answer::render`] prints the answer in the form of the harness.
//! 4. [`answer`] puts them together: it finds the repositories of the files, claims the files in the engine, and keeps the
//!    records of [`Sessions`].
//!
//! Two rules hold throughout. What is not understood is never a reason to deny: it becomes [`Unread`] or a reason in
//! [`Writes::unknown`]. And no input makes the code panic or run without a limit.

mod announced;
mod answer;
mod board;
mod caller;
pub mod checkup;
mod claims;
mod command_names;
mod commit;
mod deny_text;
mod foreign;
mod git;
pub mod git_guard;
mod git_hook;
mod harness;
mod hook;
mod hook_log;
mod input;
mod mcp;
mod open_calls;
mod patch;
mod place;
mod quote;
mod repository;
mod session;
pub mod setup;
mod shell;
mod tool;
mod uncommitted;
mod worktree_status;
mod writes;

pub use answer::{Answer, Printed};
pub use board::Board;
pub use caller::Caller;
pub use claims::{Settings, WorkTrees, claim_of};
pub use command_names::CommandName;
pub use commit::{
    CommitError, CommitRequest, Committed, OutsideError, OwnIndex, Selection, Staging, commit, index_request,
};
pub use deny_text::deny_text;
pub use foreign::{Foreign, shown as shown_foreign};
pub use git::{Git, GitError};
pub use git_hook::{GitAnswer, GitCall, GitEvent, answer_git};
pub use harness::{Harness, Marks};
pub use hook::{HookCall, answer};
pub use hook_log::HookLog;
pub use input::{BackgroundTask, Event, HookInput, MAX_BYTES, Unread};
pub use mcp::{McpOptions, serve_mcp};
pub use open_calls::{OpenCall, OpenName, Wrote};
pub use patch::{PatchError, paths as patch_paths};
pub use place::{Entry, Place, join, lexical};
pub use quote::{MAX_QUOTE, quoted};
pub use repository::{Wanted, locate, takes_part, wanted_file, wanted_name};
pub use session::{Activity, Session, Sessions};
pub use shell::writes as shell_writes;
pub use tool::{Action, ToolCall};
pub use writes::{Command, Formats, GitPart, GitUse, Staged, Target, Writes, writes};
