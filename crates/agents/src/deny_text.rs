//! Text of a deny: what the model of a denied agent reads. Facts and one complete command, no orders, at most 600 characters.

use std::path::Path;
use std::time::Duration;

use lockkeeper_core::id::Owner;
use lockkeeper_core::lease::Denial;
use lockkeeper_core::record::{Lease, Ticket};
use lockkeeper_core::resource::Target;
use lockkeeper_core::time::{Moment, format_span};
use lockkeeper_core::waiting::Blocker;
use lockkeeper_platform::wall_clock;

use crate::quote::{cut, one_line, quoted};
use crate::session::{Session, Sessions};

/// The longest text, in characters.
const MAX: usize = 600;
/// The longest path that is written out twice, in characters.
const MAX_PATH: usize = 160;
/// The longest note, in characters.
const MAX_NOTE: usize = 60;

/// One denied file or name: its text for people, the path for the command, and the verdict of the rules.
pub(crate) struct Denied<'a> {
    pub(crate) shown: &'a str,
    pub(crate) path: &'a Path,
    pub(crate) denial: &'a Denial,
}

/// Says who has a file, since when and until when, and how to wait for it.
///
/// `program` is how the agent's shell finds this program.
pub fn deny_text(
    denied: &[(&str, &Path, &Denial)],
    owner: &Owner,
    now: Moment,
    sessions: &Sessions,
    program: &str,
) -> String {
    let Some((shown, path, denial)) = denied.first() else { return String::new() };
    let first = Denied { shown, path, denial };
    let more: Vec<&str> = denied[1..].iter().map(|(shown, ..)| *shown).collect();
    let (fact, note) = holder(&first, owner, now, sessions);
    let more = match more.as_slice() {
        [] => String::new(),
        [one] => format!(" {} is held as well.", cut(&one_line(one), MAX_PATH)),
        [one, rest @ ..] => {
            format!(" {} and {} more are held as well.", cut(&one_line(one), MAX_PATH), rest.len())
        }
    };
    let line = line_of(&first);
    let command = command(&first, owner, program);
    let others = if is_name(denial) {
        ""
    } else {
        " Other ways to write it are refused as well where they can be known before."
    };
    // The command is complete or left out; less important sentences go first.
    let candidates = [
        format!("{fact}{note}{more}{line}{command}{others}"),
        format!("{fact}{more}{line}{command}{others}"),
        format!("{fact}{line}{command}"),
        format!("{fact}{command}"),
        fact.clone(),
    ];
    candidates.into_iter().find(|text| text.chars().count() <= MAX).unwrap_or_else(|| cut(&fact, MAX))
}

/// Whether a name was denied and not a file.
fn is_name(denial: &Denial) -> bool {
    denial.claim.targets().all(|target| matches!(target, Target::Name(_)))
}

/// The sentence about the holder: its name, since when and until when it holds; and its note.
fn holder(denied: &Denied<'_>, owner: &Owner, now: Moment, sessions: &Sessions) -> (String, String) {
    let file = cut(&one_line(denied.shown), MAX_PATH);
    let blockers = &denied.denial.blockers;
    if let Some(lease) = blockers.iter().flat_map(|blocker| &blocker.leases).map(|found| &found.record).next()
    {
        let session = sessions.get(&lease.claim.owner);
        let held = &lease.claim.owner;
        let who = if owner.is_above(held) { format!("your own sub-agent {held}") } else { held.to_string() };
        let since = in_seconds(now.since(lease.acquired_at));
        let seen = in_seconds(last_seen(lease, session.as_ref(), now));
        let ends = match lease.expires_at() {
            Some(end) if lease.claim.agent.is_some() && is_name(denied.denial) => {
                format!(
                    "that ends with its command, its turn or its process, at the latest in {}",
                    span_to(end, now)
                )
            }
            Some(end) if lease.claim.agent.is_some() => {
                format!(
                    "its claim ends with its turn, its commit or its process, at the latest in {}",
                    span_to(end, now)
                )
            }
            Some(end) => format!("its lease ends in {}", span_to(end, now)),
            None => "its lease ends when it is released".to_owned(),
        };
        let note = session.and_then(|session| session.note).or_else(|| lease.claim.reason.clone());
        let note = note.filter(|note| note != "edit" && !note.is_empty());
        let note =
            note.map_or(String::new(), |note| format!(" Its note: {}.", quoted(&cut(&note, MAX_NOTE))));
        let what = if denied.denial.ticket.is_none() && denied.denial.cycle.is_empty() {
            let witness = blockers.iter().flat_map(|blocker| &blocker.leases).next();
            let witness = witness.map(|found| cut(&quoted(&found.witness), MAX_PATH)).unwrap_or_default();
            format!(
                "Nothing was run or changed: {file} includes {witness}, on which {who} has worked for {since}"
            )
        } else if is_name(denied.denial) {
            format!("The command was not run: it needs {file}, which {who} has held for {since}")
        } else {
            format!("{file} was not changed: {who} has worked on it for {since}")
        };
        return (format!("{what}, last seen {seen} ago; {ends}."), note);
    }
    let ticket = blockers.iter().flat_map(|blocker| &blocker.tickets).map(|found| &found.record).next();
    let who =
        ticket.map_or_else(|| "another owner".to_owned(), |ticket: &Ticket| ticket.claim.owner.to_string());
    let what = if is_name(denied.denial) {
        format!("The command was not run: it needs {file}, and")
    } else {
        format!("{file} was not changed:")
    };
    (format!("{what} {who} waited for it first and gets it next."), String::new())
}

/// How long ago the holder was last seen.
pub(crate) fn last_seen(lease: &Lease, session: Option<&Session>, now: Moment) -> Duration {
    let heartbeat = now.since(lease.heartbeat_at);
    let seen = session.map(|session| wall_clock::epoch_seconds().saturating_sub(session.seen_at).max(0));
    let seen = seen.and_then(|seconds| u64::try_from(seconds).ok()).map(Duration::from_secs);
    seen.map_or(heartbeat, |seen| seen.min(heartbeat))
}

/// A duration for people, without milliseconds.
pub(crate) fn in_seconds(span: Duration) -> String {
    if span.as_secs() == 0 { "0s".to_owned() } else { format_span(span) }
}

fn span_to(end: Moment, now: Moment) -> String {
    in_seconds(end.since(now))
}

/// The sentence about the place in line; why there is none, if waiting would never end.
fn line_of(denied: &Denied<'_>) -> String {
    let Denied { denial, .. } = denied;
    if let [first, ..] = denial.cycle.as_slice() {
        return format!(
            " No place in line was taken: {} waits for {} of {}, so waiting would never end.",
            first.waiter,
            cut(&first.wanted, MAX_PATH),
            first.holder
        );
    }
    if denial.ticket.is_none() {
        return String::new();
    }
    let what = if is_name(denial) { "it is reserved" } else { "the file is held" };
    let ahead = denial.blockers.iter().map(|blocker: &Blocker| blocker.tickets.len()).max().unwrap_or(0);
    format!(
        " You are number {} in line: once it is your turn, {what} for you, and your next tool call says so.",
        ahead + 1
    )
}

/// The sentence with the command that waits. Empty if the agent has no ticket, or if the command could not name the file.
fn command(denied: &Denied<'_>, owner: &Owner, program: &str) -> String {
    if denied.denial.ticket.is_none() {
        return String::new();
    }
    let path = match is_name(denied.denial) {
        true => denied.shown.into(),
        false => denied.path.to_string_lossy(),
    };
    // Control characters do not reach the model, so the command would name another file.
    if path.chars().any(char::is_control) {
        return String::new();
    }
    let path = quote_for_shell(&path);
    let path = if is_name(denied.denial) { format!("--name {path}") } else { path };
    let (program, owner) = (quote_for_shell(program), quote_for_shell(owner.as_str()));
    format!(
        " This command waits for it, for up to 100 s, and keeps the place: `{program} wait --owner {owner} {path}`."
    )
}

/// A word as a shell reads it.
pub(crate) fn quote_for_shell(word: &str) -> String {
    let plain = |c: char| {
        c.is_ascii_alphanumeric() || matches!(c, '/' | '.' | '_' | '-' | ':' | '+' | '@' | '%' | ',')
    };
    if !word.is_empty() && word.chars().all(plain) {
        word.to_owned()
    } else {
        format!("'{}'", word.replace('\'', r"'\''"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_with_special_characters_are_quoted() {
        assert_eq!(quote_for_shell("/a/b-c.rs"), "/a/b-c.rs");
        assert_eq!(quote_for_shell("/a b/it's"), r"'/a b/it'\''s'");
        assert_eq!(quote_for_shell(""), "''");
    }
}
