//! Near misses: what users of other programs, or of another command of this one, would write. The hint has the right command
//! with their own words.

use lockkeeper_engine::views::shown_command_line;

/// What stands behind a word that was meant as a command.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Rest {
    /// The words of the user, or this placeholder.
    Same(&'static str),
    /// A command to execute.
    Command,
    /// Nothing.
    Dropped,
}

/// The right command for some words behind a command.
struct Near {
    words: &'static [&'static str],
    meant: &'static str,
    rest: Rest,
    does: &'static str,
}

const fn near(words: &'static [&'static str], meant: &'static str, rest: Rest, does: &'static str) -> Near {
    Near { words, meant, rest, does }
}

const LEASE: Rest = Rest::Same("LEASE");
const NAME: Rest = Rest::Same("NAME");
const RUN: Rest = Rest::Same("RUN");

const TOP: &[Near] = &[
    near(&["unlock", "free"], "release", LEASE, "gives a lease back; `lockkeeper locks` lists them"),
    near(&["log", "logs", "tail"], "run logs", RUN, "prints the output of a run"),
    near(&["retry"], "run retry", RUN, "runs a request again"),
    near(&["add", "enqueue"], "submit", Rest::Command, "puts a command into the queue"),
];

const LOCKS: &[Near] = &[
    near(&["release", "free", "unlock", "rm", "remove", "delete"], "release", LEASE, "gives a lease back"),
    near(&["acquire", "lock", "take", "add", "hold"], "acquire", NAME, "takes a lock"),
    near(&["show", "why", "who", "info"], "why", NAME, "tells who holds it"),
    near(&["list", "ls", "status"], "locks", Rest::Dropped, "lists everything"),
];

/// What belongs to one run, behind a command for many.
const OF_ONE_RUN: &[Near] = &[
    near(&["show", "status", "info"], "run show", RUN, "shows a run"),
    near(&["logs", "log", "tail"], "run logs", RUN, "prints the output of a run"),
    near(&["wait"], "run wait", RUN, "waits for its end"),
    near(&["events"], "run events", RUN, "prints its events"),
    near(&["cancel", "stop", "kill"], "run cancel", RUN, "ends a run"),
    near(&["retry", "again", "rerun", "restart"], "run retry", RUN, "runs a request again"),
    near(&["answer"], "run answer", Rest::Same("RUN TEXT"), "answers a request that needs input"),
];

const SUBMIT: Near = near(
    &["add", "submit", "push", "enqueue", "new"],
    "submit",
    Rest::Command,
    "puts a command into the queue",
);
const RUNS: Near = near(&["list", "ls"], "runs", Rest::Dropped, "lists runs");
const REQUESTS: Near = near(&["list", "ls"], "requests", Rest::Dropped, "lists requests");

const QUEUE: &[Near] = &[
    near(
        &["status", "show", "ls", "info"],
        "queue list",
        Rest::Dropped,
        "shows what is next, and why not the others",
    ),
    near(&["start", "work", "run"], "work", Rest::Dropped, "executes what is queued"),
    near(&["next"], "queue run-next", Rest::Dropped, "executes the next request"),
    near(&["cancel", "rm", "remove"], "run cancel", RUN, "takes a request out of the queue"),
];

/// The right command for an unknown word behind `command`. `rest` has the words after it.
pub(super) fn command(command: &str, word: &str, rest: &[String]) -> Option<String> {
    let tables: [&[Near]; 2] = match command {
        "lockkeeper" if rest.is_empty() => return None,
        "lockkeeper" => [TOP, &[]],
        "lockkeeper locks" => [LOCKS, &[]],
        "lockkeeper runs" | "lockkeeper run" => [OF_ONE_RUN, &[RUNS, SUBMIT]],
        "lockkeeper requests" => [OF_ONE_RUN, &[REQUESTS, SUBMIT]],
        "lockkeeper queue" => [QUEUE, &[SUBMIT]],
        _ => return None,
    };
    let found = tables.into_iter().flatten().find(|near| near.words.contains(&word))?;
    let own = shown_command_line(rest);
    let behind = match found.rest {
        Rest::Dropped => String::new(),
        Rest::Same(placeholder) if rest.is_empty() => format!(" {placeholder}"),
        Rest::Same(_) => format!(" {own}"),
        Rest::Command if rest.is_empty() => " -- CMD".to_owned(),
        Rest::Command if rest.iter().any(|word| word == "--") => format!(" {own}"),
        Rest::Command => format!(" -- {own}"),
    };
    Some(format!("`lockkeeper {}{behind}` {}", found.meant, found.does))
}

/// The right command line for an unknown flag of `command`: that of the user with another flag, or without it.
pub(super) fn flag(command: &str, flag: &str, words: &[String]) -> Option<String> {
    let (instead, why) = match (command, flag) {
        ("lockkeeper submit", "--name") => ("--id", "--id is the name of a request"),
        ("lockkeeper submit", "--depends-on" | "--depends") => {
            ("--after", "--after names a request before it")
        }
        ("lockkeeper exec" | "lockkeeper acquire", "-s") => {
            ("--shared", "--shared lets other shared holders in")
        }
        ("lockkeeper exec" | "lockkeeper acquire", "-x" | "-e" | "--exclusive") => {
            ("", "a lock is exclusive without --shared")
        }
        ("lockkeeper exec", "--nonblock" | "--nb") => ("-n", "-n does not wait"),
        ("lockkeeper exec", "--timeout") => ("-w", "-w has the seconds to wait"),
        ("lockkeeper acquire", "-n" | "--nonblock" | "--nb" | "--no-wait") => {
            ("", "it does not wait without --wait")
        }
        ("lockkeeper acquire", "-w" | "--timeout") => ("--wait", "--wait has the time to wait"),
        _ => return None,
    };
    let place = words.iter().take_while(|word| *word != "--").position(|word| {
        word.strip_prefix(flag).is_some_and(|value| value.is_empty() || value.starts_with('='))
    });
    let Some(place) = place else { return Some(why.to_owned()) };
    let mut line = words.to_vec();
    if instead.is_empty() {
        line.remove(place);
    } else {
        line[place] = line[place].replacen(flag, instead, 1);
    }
    Some(format!("`lockkeeper {}`: {why}", shown_command_line(&line)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_flag_of_another_program_is_replaced_within_the_words_of_the_user() {
        let hint = |line: &str, unknown: &str| {
            let words: Vec<String> = line.split(' ').map(str::to_owned).collect();
            flag(&format!("lockkeeper {}", words[0]), unknown, &words).unwrap()
        };
        for (line, unknown, meant) in [
            ("submit --name=x -- sh -s", "--name", "`lockkeeper submit --id=x -- sh -s`"),
            ("exec -s db -- sh -s", "-s", "`lockkeeper exec --shared db -- sh -s`"),
            ("exec db -x -- true", "-x", "`lockkeeper exec db -- true`"),
            ("acquire db -w 5", "-w", "`lockkeeper acquire db --wait 5`"),
        ] {
            assert!(hint(line, unknown).starts_with(meant), "{line}: {}", hint(line, unknown));
        }
        assert_eq!(hint("exec -ns db -- true", "-s"), "--shared lets other shared holders in");
    }
}
