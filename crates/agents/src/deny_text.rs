//! Text of a deny: what the model of a denied agent reads. Facts and one complete command, no orders, at most 600 characters.

use std::path::Path;
use std::time::Duration;

use lockkeeper_core::deadlock::Link;
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
/// The longest path in a text that is too long otherwise, in characters.
const SHORT_PATH: usize = 40;
/// This many links of a cycle are named.
const MAX_LINKS: usize = 3;
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
    let (fact, note) = holder(&first, owner, now, sessions, MAX_PATH);
    let count = match more.len() {
        0 => String::new(),
        1 => " 1 more file is held as well.".to_owned(),
        count => format!(" {count} more files are held as well."),
    };
    let more = match more.as_slice() {
        [] => String::new(),
        [one] => format!(" {} is held as well.", cut(&one_line(one), MAX_PATH)),
        [one, rest @ ..] => {
            format!(" {} and {} more are held as well.", cut(&one_line(one), MAX_PATH), rest.len())
        }
    };
    let line = line_of(&first, owner);
    let command = command(&first, owner, program);
    let pathless = command_without_path(&first, owner, program);
    // The path is in the command.
    let (shorter, _) = holder(&first, owner, now, sessions, SHORT_PATH);
    let shortest =
        shorter.split_once(", last seen ").map_or_else(|| shorter.clone(), |(fact, _)| format!("{fact}."));
    let place = place_of(&first);
    let others = if is_name(denial) {
        ""
    } else {
        " Other ways to write it are refused as well where they can be known before."
    };
    // The command is complete, or says where the path has to stand; less important sentences go first.
    let candidates = [
        format!("{fact}{note}{more}{line}{command}{others}"),
        format!("{fact}{more}{line}{command}{others}"),
        format!("{fact}{more}{line}{command}"),
        format!("{shorter}{count}{line}{command}"),
        format!("{shortest}{count}{line}{command}"),
        format!("{shortest}{count}{place}{command}"),
        format!("{shortest}{count}{place}{pathless}"),
        format!("{shortest}{count}{place}"),
    ];
    candidates.into_iter().find(|text| text.chars().count() <= MAX).unwrap_or_else(|| cut(&shortest, MAX))
}

/// Whether a name was denied and not a file.
fn is_name(denial: &Denial) -> bool {
    denial.claim.targets().all(|target| matches!(target, Target::Name(_)))
}

/// The sentence about the holder: its name, since when and until when it holds; and its note.
fn holder(
    denied: &Denied<'_>,
    owner: &Owner,
    now: Moment,
    sessions: &Sessions,
    longest: usize,
) -> (String, String) {
    let file = cut_in_the_middle(&one_line(denied.shown), longest);
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
fn line_of(denied: &Denied<'_>, owner: &Owner) -> String {
    let Denied { denial, .. } = denied;
    if !denial.cycle.is_empty() {
        let waits = |link: &Link| {
            let of = if link.holder == *owner {
                "which you hold".to_owned()
            } else {
                format!("of {}", link.holder)
            };
            format!(
                "{} waits for {}, {of}",
                link.waiter,
                cut_in_the_middle(&one_line(&link.wanted), SHORT_PATH)
            )
        };
        let others = denial.cycle.iter().filter(|link| link.waiter != *owner).map(waits);
        let others: Vec<String> = others.take(MAX_LINKS).collect();
        return format!(" No place in line was taken, since waiting would never end: {}.", others.join("; "));
    }
    if denial.ticket.is_none() {
        return String::new();
    }
    let what = if is_name(denial) { "it is reserved" } else { "the file is held" };
    format!(
        " You are number {} in line: once it is your turn, {what} for you, and your next tool call says so.",
        number_of(denial)
    )
}

/// The place in line alone.
fn place_of(denied: &Denied<'_>) -> String {
    match denied.denial.ticket {
        Some(_) => format!(" You are number {} in line.", number_of(denied.denial)),
        None => String::new(),
    }
}

fn number_of(denial: &Denial) -> usize {
    denial.blockers.iter().map(|blocker: &Blocker| blocker.tickets.len()).max().unwrap_or(0) + 1
}

/// The sentence with the command that waits. Empty if the agent has no ticket, or if the command could not name the file.
fn command(denied: &Denied<'_>, owner: &Owner, program: &str) -> String {
    if let Some(file) = own_file(denied, owner) {
        let (program, owner) = (quote_for_shell(program), quote_for_shell(owner.as_str()));
        let file = quote_for_shell(&file);
        return format!(
            " This command commits that and lets go of it: `{program} commit --owner {owner} -m MSG {file}`."
        );
    }
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

/// The command for a path that is too long to be written out.
fn command_without_path(denied: &Denied<'_>, owner: &Owner, program: &str) -> String {
    if denied.denial.ticket.is_none() || is_name(denied.denial) {
        return String::new();
    }
    let (program, owner) = (quote_for_shell(program), quote_for_shell(owner.as_str()));
    format!(
        " This command waits for it, for up to 100 s, and keeps the place: `{program} wait --owner {owner} FILE`, with the path of \
         the file."
    )
}

/// The file of the denied agent for which the others of the cycle wait.
fn own_file(denied: &Denied<'_>, owner: &Owner) -> Option<String> {
    let link = denied.denial.cycle.iter().find(|link| link.holder == *owner && link.waiter != *owner)?;
    let root = denied.path.ancestors().nth(Path::new(denied.shown).components().count())?;
    let file = root.join(&link.wanted);
    let is_file = !is_name(denied.denial) && file.symlink_metadata().is_ok();
    file.to_str().filter(|file| is_file && !file.chars().any(char::is_control)).map(str::to_owned)
}

/// Cuts a path, with `…` in its middle: its end says most.
fn cut_in_the_middle(text: &str, length: usize) -> String {
    let count = text.chars().count();
    if count <= length {
        return text.to_owned();
    }
    let start = length / 4;
    let begin: String = text.chars().take(start).collect();
    let end: String = text.chars().skip(count - (length - start - 1)).collect();
    format!("{begin}…{end}")
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
    fn long_paths_keep_their_ends() {
        assert_eq!(cut_in_the_middle("src/a.rs", 8), "src/a.rs");
        assert_eq!(cut_in_the_middle("src/main/java/Éa.java", 12), "src…/Éa.java");
    }

    #[test]
    fn words_with_special_characters_are_quoted() {
        assert_eq!(quote_for_shell("/a/b-c.rs"), "/a/b-c.rs");
        assert_eq!(quote_for_shell("/a b/it's"), r"'/a b/it'\''s'");
        assert_eq!(quote_for_shell(""), "''");
    }
}
