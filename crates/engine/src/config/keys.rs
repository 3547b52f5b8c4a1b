//! Table of all settings: key, environment variable, default, meaning, and the check of a value.

use std::time::Duration;

use lockkeeper_core::id::Owner;
use lockkeeper_core::time::{SpanError, Ttl, parse_span};

use super::{Setting, Source};

/// A setting that exists.
pub(super) struct Known {
    pub(super) key: &'static str,
    pub(super) variable: &'static str,
    pub(super) default: Option<&'static str>,
    pub(super) meaning: &'static str,
    pub(super) check: fn(&str) -> Result<(), String>,
}

/// Every setting, in the order of `lockkeeper config`.
pub(super) const KNOWN: [Known; 22] = [
    Known {
        key: "dir",
        variable: "LOCKKEEPER_DIR",
        default: None,
        meaning: "the state folder",
        check: not_empty,
    },
    Known {
        key: "store",
        variable: "LOCKKEEPER_STORE",
        default: None,
        meaning: "the store of leases and runs: sqlite:PATH, or for several machines postgres://HOST/DATABASE, etcds://HOST,HOST or rediss://HOST, unix:SOCKET of Redis (leases only), or https://HOST of `lockkeeper serve`",
        check: not_empty,
    },
    Known {
        key: "runs",
        variable: "LOCKKEEPER_RUNS",
        default: None,
        meaning: "the store of requests and runs, beside a `store` of several machines: postgres://HOST/DATABASE, or sqlite:PATH for a folder of each machine; if not set, PostgreSQL or `lockkeeper serve` as `store` keeps them, else the state folder of each machine",
        check: not_empty,
    },
    Known {
        key: "project",
        variable: "LOCKKEEPER_PROJECT",
        default: None,
        meaning: "whose leases they are on a store of several machines: the same name in all clones",
        check: not_empty,
    },
    Known {
        key: "session",
        variable: "LOCKKEEPER_SESSION",
        default: Some("30s"),
        meaning: "how long a lease lasts after the last sign of life of a holder on another machine",
        check: session,
    },
    Known {
        key: "connect_timeout",
        variable: "LOCKKEEPER_CONNECT_TIMEOUT",
        default: Some("5s"),
        meaning: "how long the server of the store may take to answer",
        check: span,
    },
    Known {
        key: "password_file",
        variable: "LOCKKEEPER_PASSWORD_FILE",
        default: None,
        meaning: "a file with the password of `store`, or the token of its server, which only its owner may read",
        check: not_empty,
    },
    Known {
        key: "owner",
        variable: "LOCKKEEPER_OWNER",
        default: None,
        meaning: "the owner of leases; unique to each command if not set",
        check: |text| text.parse::<Owner>().map(|_| ()).map_err(|error| error.to_string()),
    },
    Known {
        key: "lang",
        variable: "LOCKKEEPER_LANG",
        default: None,
        meaning: "language of messages; that of LC_ALL, LC_MESSAGES or LANG if not set",
        check: language,
    },
    Known {
        key: "color",
        variable: "LOCKKEEPER_COLOR",
        default: Some("auto"),
        meaning: "when to use colour",
        check: color,
    },
    Known {
        key: "ttl",
        variable: "LOCKKEEPER_TTL",
        default: Some("5m"),
        meaning: "TTL of a lease that is not tied to a process",
        check: ttl,
    },
    Known {
        key: "wait",
        variable: "LOCKKEEPER_WAIT",
        default: None,
        meaning: "how long `exec` waits; no limit if not set",
        check: span,
    },
    Known {
        key: "lock_dir",
        variable: "LOCK_DIR",
        default: None,
        meaning: "the folder of group locks; /tmp/ce_locks if not set, and then `stages run` does not use it",
        check: not_empty,
    },
    Known {
        key: "ticket_ttl",
        variable: "LOCKKEEPER_TICKET_TTL",
        default: Some("2m"),
        meaning: "how long a ticket stays in line while no command waits with it",
        check: ttl,
    },
    Known {
        key: "grace",
        variable: "LOCKKEEPER_GRACE",
        default: Some("10s"),
        meaning: "how long a command may take to stop before it is killed",
        check: span,
    },
    Known {
        key: "queue_timeout",
        variable: "LOCKKEEPER_QUEUE_TIMEOUT",
        default: None,
        meaning: "how long a run may wait in the queue; no limit if not set",
        check: span,
    },
    Known {
        key: "timeout",
        variable: "LOCKKEEPER_TIMEOUT",
        default: None,
        meaning: "how long an attempt of a run may take; no limit if not set",
        check: span,
    },
    Known {
        key: "queue_limit",
        variable: "LOCKKEEPER_QUEUE_LIMIT",
        default: None,
        meaning: "how many runs may wait in the queue; no limit if not set",
        check: count,
    },
    Known {
        key: "swarm_dir",
        variable: "AI_SWARM_DIR",
        default: None,
        meaning: "folder of a swarm, where workers write status.log; the state folder if not set",
        check: not_empty,
    },
    Known {
        key: "agents.working",
        variable: "LOCKKEEPER_AGENTS_WORKING",
        default: Some("30m"),
        meaning: "how long a claim lasts after the last tool call of a working agent",
        check: ttl,
    },
    Known {
        key: "agents.resting",
        variable: "LOCKKEEPER_AGENTS_RESTING",
        default: Some("10m"),
        meaning: "how long a claim on uncommitted work lasts after an agent's turn",
        check: ttl,
    },
    Known {
        key: "agents.worktrees",
        variable: "LOCKKEEPER_AGENTS_WORKTREES",
        default: Some("tell"),
        meaning: "what happens if agents change one file in two work trees: tell, deny or ignore",
        check: work_trees,
    },
];

impl Known {
    /// The setting with its default.
    pub(super) fn unset(&self) -> Setting {
        let value = self.default.map(str::to_owned);
        Setting { key: self.key, meaning: self.meaning, value, source: Source::Default }
    }
}

fn not_empty(text: &str) -> Result<(), String> {
    if text.is_empty() { Err("it is empty".to_owned()) } else { Ok(()) }
}

fn language(text: &str) -> Result<(), String> {
    if matches!(text, "en" | "ja" | "zh") {
        Ok(())
    } else {
        Err(format!("`{text}` is not one of en, ja, zh"))
    }
}

fn color(text: &str) -> Result<(), String> {
    let known = matches!(text, "auto" | "always" | "never");
    if known { Ok(()) } else { Err(format!("`{text}` is not one of auto, always, never")) }
}

fn work_trees(text: &str) -> Result<(), String> {
    let known = matches!(text, "tell" | "deny" | "ignore");
    if known { Ok(()) } else { Err(format!("`{text}` is not one of tell, deny, ignore")) }
}

fn span(text: &str) -> Result<(), String> {
    parse_span(text).map(|_| ()).map_err(|error| format!("{error}; {}", error.hint()))
}

fn count(text: &str) -> Result<(), String> {
    let number = text.parse::<u64>().ok().filter(|number| *number > 0);
    number.map(|_| ()).ok_or_else(|| format!("`{text}` is not a number of at least 1"))
}

/// Checks the length of a session. It is renewed three times within it, and a command has to be stopped before its end.
fn session(text: &str) -> Result<(), String> {
    match parse_span(text).map_err(|error| error.to_string())? {
        span if span < Duration::from_secs(3) => Err("it has to be 3s or more".to_owned()),
        _ => Ok(()),
    }
}

fn ttl(text: &str) -> Result<(), String> {
    let checked = parse_span(text).and_then(Ttl::new);
    checked.map(|_| ()).map_err(|error: SpanError| format!("{error}; {}", error.hint()))
}
