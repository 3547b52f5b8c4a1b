//! The rules of Lockkeeper, with no clock, file, process, environment or output of their own.
//!
//! Everything that matters is a compare-and-set on a record. This crate says what the next records are;
//! a store runs one decision atomically over the records that it touches, and knows no rules. So shared
//! mode, all-or-nothing, fair waiting, fencing, deadlock refusal, expiry and takeover are written once
//! and hold on every store alike.
//!
//! This crate is unstable: it has no semver promise. Programs use the crate `lockkeeper`.
//!
//! # Vocabulary
//!
//! | word | meaning |
//! |---|---|
//! | resource | what a lease protects: a **name** (`git/index`) or a **pattern** over paths (`src/api/**`) |
//! | lease | the right of one owner to a set of resources, all or none of them, with a token |
//! | token | fencing number: per store, strictly increasing, never reused |
//! | owner | who holds or waits: `kind:id` |
//! | proof of life | how a store knows that an owner still lives |
//! | ticket | a place in the waiting line for resources |
//! | request | a command to execute, with its conditions |
//! | run | one execution of a request, with the states of [`run::Status`]. A retry within a run is an attempt |
//! | event | a fact that happened, appended in the same commit as the change that it describes |
//!
//! # Invariants
//!
//! Tests cite them as `Invariant 4.`
//!
//! 1. No two live leases conflict. Leases of two owners conflict when a name is equal or patterns overlap,
//!    unless both are shared, or the name's slots suffice for all of them, or both are claims of agents and the one
//!    that came later is of a sub-agent of the other's owner or in another work tree.
//! 2. A token is larger than every token that the store ever gave out. Renew, release and fenced checks
//!    name the token.
//! 3. A holder that provably lives is never displaced except by an explicit, confirmed force.
//! 4. When a holder provably died, the next in line gets its lease at once, without waiting for any TTL.
//! 5. What is not known (other machine, other pid namespace, unreadable record) counts as held until its
//!    TTL, and as held for good where there is none, with a message that says how to resolve it.
//! 6. Acquiring is all-or-nothing, and leaves nothing behind when it fails.
//! 7. Waiters are served by priority, then first come first served; a waiting writer is not starved by
//!    readers, nor a low priority for ever by higher ones.
//! 8. A wait that would close a cycle is refused at once, and the refusal names the whole cycle.
//! 9. A run moves only along its table of states, each move is one compare-and-set with one event.
//! 10. When a lease is lost, the work done under it is stopped before or as soon as anyone knows. The
//!     wrapper's death never lets a second command start while the first one still runs.
//! 11. A file in a foreign format holds nothing that the format does not have.
//! 12. State that cannot be read is never replaced by empty state.

pub mod alert;
pub mod conflict;
pub mod deadlock;
pub mod git_command;
pub mod id;
pub mod in_memory;
pub mod lease;
pub mod liveness;
pub mod overlap;
pub mod overlay;
pub mod pattern;
pub mod plan;
pub mod predict;
pub mod printable;
pub mod queue;
pub mod record;
pub mod records;
pub mod request;
pub mod resource;
pub mod retry;
pub mod run;
pub mod secret;
pub mod size;
pub mod time;
pub mod tune;
pub mod waiting;
mod watching;
