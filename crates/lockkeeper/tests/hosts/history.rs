//! The history: one file to which all commands append, and the judge who reads it.
//!
//! Appending is atomic, so the order of the lines is one clock for all hosts. Each command also holds a kernel lock of its own that
//! its children inherit: the next command finds out which earlier ones still live.

use std::collections::BTreeSet;
use std::sync::{Mutex, PoisonError};

use tempfile::TempDir;

use super::server::HOSTS;

/// What each command does: says how it begins, works for a while, and says that it ends. Both times it writes its token to a
/// resource, which refuses a smaller token than the largest one that it has seen.
pub(crate) const COMMAND: &str = r#"
    own=$HISTORY/inside/$LOCKKEEPER_TOKEN
    exec 9>> "$own"
    flock 9
    say() {
        flock 8
        answer=refused
        if [ "$LOCKKEEPER_TOKEN" -ge "$(cat "$HISTORY/resource")" ]; then
            answer=accepted
            echo "$LOCKKEEPER_TOKEN" > "$HISTORY/resource"
        fi
        echo "$1 $LOCKKEEPER_TOKEN $HOST $2 $answer" >> "$HISTORY/history"
    }
    living=
    for other in "$HISTORY"/inside/*; do
        [ "$other" = "$own" ] || flock --shared --nonblock "$other" true || living=$living,${other##*/}
    done
    say begin "${living:-,}" 8>> "$HISTORY/lock"
    sleep "$1"
    say end , 8>> "$HISTORY/lock"
    rm "$own"
"#;

pub(crate) struct History {
    folder: TempDir,
    /// Tokens of commands beside which others may begin: they were frozen, lost wrapper and guardian, or their store says that it
    /// cannot hold the case.
    excused: Mutex<BTreeSet<u64>>,
}

#[derive(Clone, Debug)]
struct Line {
    is_begin: bool,
    token: u64,
    host: usize,
    /// The tokens of the commands that lived when it began.
    beside: Vec<u64>,
    /// Whether the resource refused its token.
    is_refused: bool,
}

impl History {
    pub(crate) fn new() -> Self {
        let folder = tempfile::tempdir().unwrap();
        std::fs::write(folder.path().join("history"), "").unwrap();
        std::fs::write(folder.path().join("resource"), "0").unwrap();
        std::fs::create_dir(folder.path().join("inside")).unwrap();
        Self { folder, excused: Mutex::default() }
    }

    pub(crate) fn folder(&self) -> String {
        self.folder.path().display().to_string()
    }

    fn lines(&self) -> Vec<Line> {
        let text = std::fs::read_to_string(self.folder.path().join("history")).unwrap();
        let parsed = text.lines().map(|line| {
            let words: Vec<&str> = line.split(' ').collect();
            let [kind, token, host, beside, answer] = words[..] else { panic!("a torn line: {line:?}") };
            let (token, host) = (token.parse().unwrap(), host.parse().unwrap());
            let beside = beside.split(',').filter_map(|token| token.parse().ok()).collect();
            Line { is_begin: kind == "begin", token, host, beside, is_refused: answer == "refused" }
        });
        parsed.collect()
    }

    pub(crate) fn len(&self) -> usize {
        self.lines().len()
    }

    pub(crate) fn begins(&self) -> usize {
        self.lines().iter().filter(|line| line.is_begin).count()
    }

    pub(crate) fn begins_of(&self, host: usize) -> usize {
        self.lines().iter().filter(|line| line.is_begin && line.host == host).count()
    }

    pub(crate) fn besides(&self) -> usize {
        self.lines().iter().filter(|line| line.is_begin && !line.beside.is_empty()).count()
    }

    /// How often the resource refused a token.
    pub(crate) fn refused(&self) -> usize {
        self.lines().iter().filter(|line| line.is_refused).count()
    }

    pub(crate) fn begins_after(&self, seen: usize) -> bool {
        self.lines()[seen..].iter().any(|line| line.is_begin)
    }

    /// Token and host of the command that began last, if it has not ended.
    pub(crate) fn inside(&self) -> Option<(u64, usize)> {
        let last = self.lines().pop()?;
        last.is_begin.then_some((last.token, last.host))
    }

    /// The token of the command of a host that had not ended at this line, and those that began later.
    pub(crate) fn tokens_since(&self, host: usize, seen: usize) -> Vec<u64> {
        let lines = self.lines();
        let last = lines[..seen].iter().rfind(|line| line.host == host).filter(|line| line.is_begin);
        let later = lines[seen..].iter().filter(|line| line.is_begin && line.host == host);
        last.into_iter().chain(later).map(|line| line.token).collect()
    }

    /// The same for all hosts.
    pub(crate) fn all_tokens_since(&self, seen: usize) -> Vec<u64> {
        (0..HOSTS).flat_map(|host| self.tokens_since(host, seen)).collect()
    }

    /// Whether somebody with a larger token began.
    pub(crate) fn is_succeeded(&self, token: u64) -> bool {
        self.lines().iter().any(|line| line.is_begin && line.token > token)
    }

    pub(crate) fn excuse(&self, tokens: &[u64]) {
        self.excused.lock().unwrap_or_else(PoisonError::into_inner).extend(tokens);
    }

    /// No two inside, unless the earlier one is excused. Tokens grow, and the resource refuses smaller ones.
    #[track_caller]
    pub(crate) fn judge(&self) {
        let excused = self.excused.lock().unwrap_or_else(PoisonError::into_inner);
        let lines = self.lines();
        let mut largest = 0;
        for (place, line) in lines.iter().enumerate() {
            let shown = || {
                format!(
                    "{line:?}, excused {excused:?}, history {:#?}",
                    &lines[place.saturating_sub(12)..=place]
                )
            };
            assert_eq!(line.is_refused, line.token < largest, "the resource: {}", shown());
            if !line.is_begin {
                continue;
            }
            let is_excused = |token: &u64| excused.contains(token);
            assert!(line.token > largest || is_excused(&line.token), "tokens grow: {}", shown());
            largest = largest.max(line.token);
            let is_allowed = is_excused(&line.token) || line.beside.iter().all(is_excused);
            assert!(is_allowed, "a command began beside a living one: {}", shown());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn history(lines: &[&str], excused: &[u64]) -> History {
        let history = History::new();
        std::fs::write(history.folder.path().join("history"), lines.join("\n") + "\n").unwrap();
        history.excuse(excused);
        history
    }

    #[test]
    fn one_after_the_other_is_right_and_so_is_one_beside_a_frozen_one() {
        let lines = ["begin 1 0 , accepted", "end 1 0 , accepted", "begin 2 1 , accepted"];
        let others = ["begin 3 0 ,2 accepted", "end 2 1 , refused", "end 3 0 , accepted"];
        history(&[&lines[..], &others].concat(), &[2]).judge();
    }

    #[test]
    #[should_panic(expected = "beside a living one")]
    fn two_inside_are_found() {
        history(&["begin 1 0 , accepted", "begin 2 1 ,1 accepted"], &[]).judge();
    }

    #[test]
    #[should_panic(expected = "tokens grow")]
    fn a_token_that_does_not_grow_is_found() {
        history(&["begin 2 0 , accepted", "end 2 0 , accepted", "begin 1 1 , refused"], &[]).judge();
    }

    #[test]
    #[should_panic(expected = "the resource")]
    fn a_write_of_a_frozen_command_that_is_not_refused_is_found() {
        let lines = ["begin 1 0 , accepted", "begin 2 1 ,1 accepted", "end 1 0 , accepted"];
        history(&lines, &[1]).judge();
    }
}
