//! `store`: sets up, checks and measures the store that several machines share.

use std::cell::Cell;
use std::time::{Duration, Instant};

use clap::Subcommand;
use lockkeeper_engine::StoreError;
use lockkeeper_engine::migrate::{Imported, Migrated, migrate};
use lockkeeper_engine::open::check_shared;
use lockkeeper_engine::report::{Exit, Report};
use lockkeeper_engine::shared_store::{LEAST_PRIVILEGES, ServerCheck, SharedStore};
use serde_json::json;

use super::context::{Context, Globals};
use super::{Verb, print};

/// How often the progress of a move is shown.
const PROGRESS_EVERY: Duration = Duration::from_secs(2);

/// Set up, check or measure the server that several machines share, or move records there
#[derive(clap::Args)]
#[command(
    after_help = "Examples:\n  lockkeeper store init\n  lockkeeper store check\n  lockkeeper store bench --pairs 1000\n  \
    lockkeeper store migrate sqlite:.git/lockkeeper postgres://locks.example/lockkeeper\n\n\
    Exit 0: all is well. Exit 1: a check failed. Exit 69: the server cannot be reached. Exit 75: a store is in use or not empty."
)]
pub(super) struct Args {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    /// Make the tables and the project in PostgreSQL, and print the SQL that gives a role only what it needs
    Init {
        /// The role for which the SQL is printed
        #[arg(long, value_name = "ROLE", default_value = "lockkeeper_user")]
        role: String,
    },
    /// Check version, privileges, notifications and durability of a PostgreSQL server
    Check,
    /// Measure how long a lease takes from this machine
    Bench {
        /// How many leases are acquired and released
        #[arg(long, value_name = "N", default_value_t = 500, value_parser = clap::value_parser!(u32).range(1..))]
        pairs: u32,
    },
    /// Move requests, runs and events to an empty store; FROM refuses everything from then on
    Migrate {
        /// The store that has the records: sqlite:FOLDER or postgres://HOST/DATABASE
        #[arg(value_name = "FROM")]
        from: String,
        /// The store that gets them
        #[arg(value_name = "TO")]
        to: String,
    },
}

impl Verb for Args {
    const NAME: &'static str = "store";

    fn run(self, globals: &Globals) -> Result<Exit, Report> {
        let context = Context::new(globals)?;
        if let Command::Migrate { from, to } = &self.command {
            return move_records(&context, from, to);
        }
        let Some(store) = &context.location.shared else {
            return Err(Report::usage("the store is a folder of this machine").with_hint(
                "name a server: `store = \"postgres://USER@HOST/DATABASE\"` and `project = \"NAME\"` in lockkeeper.toml",
            ));
        };
        match self.command {
            Command::Init { role } => init(&context, store, &role),
            Command::Check => check(&context, store),
            Command::Bench { pairs } => bench(&context, pairs),
            Command::Migrate { from, to } => move_records(&context, &from, &to),
        }
    }
}

fn init(context: &Context, store: &SharedStore, role: &str) -> Result<Exit, Report> {
    let (address, found) = looked_at(store)?;
    let role = quoted(role);
    let sql: Vec<String> = LEAST_PRIVILEGES.iter().map(|grant| format!("{grant} {role};")).collect();
    if context.json {
        print::json(
            &json!({ "store": address, "project": store.project(), "schema": found.schema, "sql": sql }),
        );
        return Ok(Exit::Done);
    }
    print::talk(&format!(
        "{address} has the tables of version {} and the project {}",
        found.schema,
        store.project()
    ));
    print::talk("a role that may use them, but not change them, needs:");
    print::out(&format!("{}\n", sql.join("\n")));
    Ok(Exit::Done)
}

/// Checks the PostgreSQL server. Returns its address as well. A server that answers, and refuses, is reachable.
fn looked_at(store: &SharedStore) -> Result<(String, ServerCheck), Report> {
    let found = check_shared(store).map_err(|error| match error {
        StoreError::Database { .. } => Report::of(Exit::Failed, "STORE_FAILED", &error).with_hint(
            "a user who may make a schema runs `lockkeeper store init --role ROLE`, which prints what a role needs",
        ),
        other => other.into(),
    })?;
    found.ok_or_else(|| {
        Report::usage("only a PostgreSQL server is set up and checked by this command").with_hint(
            "etcd and Redis need no tables; `lockkeeper doctor` looks at the server, `lockkeeper store bench` measures it",
        )
    })
}

/// A name as SQL writes it.
fn quoted(name: &str) -> String {
    format!("\"{}\"", name.replace('"', "\"\""))
}

fn bench(context: &Context, pairs: u32) -> Result<Exit, Report> {
    let measured = context.engine()?.bench(pairs)?.map_err(|blockers| print::held(&blockers, None))?;
    let millis = |span: Duration| (span.as_secs_f64() * 1e6).round() / 1e3;
    let (median, slow) = (millis(measured.median), millis(measured.slow));
    if context.json {
        let per_second = measured.per_second.round();
        print::json(
            &json!({ "pairs": measured.pairs, "median_ms": median, "p99_ms": slow, "per_second": per_second }),
        );
    } else {
        print::out(&format!(
            "{pairs} leases acquired and released, one after the other: median {median} ms, 99 % within {slow} ms, {:.0} a second\n",
            measured.per_second
        ));
    }
    Ok(Exit::Done)
}

fn move_records(context: &Context, from: &str, to: &str) -> Result<Exit, Report> {
    let [source, target] = [from, to].map(|address| context.location_of(address));
    let begun = Instant::now();
    let shown = Cell::new(Duration::ZERO);
    let progress = |count: u64| {
        let elapsed = begun.elapsed();
        if elapsed.saturating_sub(shown.get()) >= PROGRESS_EVERY {
            shown.set(elapsed);
            print::talk(&format!("{count} records copied or compared so far"));
        }
    };
    let (records, tokens_above) = match migrate(&source?, &target?, &progress)? {
        Migrated::Now { records, tokens_above } => (Some(records), Some(tokens_above)),
        Migrated::Before => (None, None),
    };
    if context.json {
        print::json(&json!({
            "from": from,
            "to": to,
            "moved_before": records.is_none(),
            "requests": records.map(|records| records.requests),
            "runs": records.map(|records| records.runs),
            "events": records.map(|records| records.events),
            "tokens_above": tokens_above,
        }));
        return Ok(Exit::Done);
    }
    match records {
        Some(Imported { requests, runs, events }) => print::out(&format!(
            "{requests} requests, {runs} runs and {events} events were moved to {to}, and all were compared\n"
        )),
        None => print::out(&format!("{from} was moved to {to} before; nothing was left to do\n")),
    }
    print::talk(&format!(
        "{from} refuses everything from now on: name {to} as `store` in lockkeeper.toml, or as `runs` beside another store of leases; the output of runs stays in the state folder"
    ));
    Ok(Exit::Done)
}

/// One line of a check: what was found, and whether it is bad.
struct Finding {
    text: String,
    is_bad: bool,
}

fn check(context: &Context, store: &SharedStore) -> Result<Exit, Report> {
    let (address, found) = looked_at(store)?;
    let findings = findings(&found);
    let is_bad = findings.iter().any(|finding| finding.is_bad);
    if context.json {
        print::json(&json!({
            "store": address,
            "project": store.project(),
            "server": found.server,
            "schema": found.schema,
            "clock_ahead_seconds": found.clock_ahead,
            "notified": found.is_notified,
            "missing_privileges": found.missing_privileges,
            "durable": found.is_durable,
            "synchronous_standby": found.has_synchronous_standby,
            "ok": !is_bad,
        }));
    } else {
        for finding in findings {
            print::out(&format!("{} {}\n", if finding.is_bad { "fail" } else { "ok  " }, finding.text));
        }
    }
    Ok(if is_bad { Exit::Failed } else { Exit::Done })
}

fn findings(found: &ServerCheck) -> Vec<Finding> {
    let note = |text: String| Finding { text, is_bad: false };
    let mut findings = vec![
        note(format!("{}, tables of version {}", found.server, found.schema)),
        note(match found.clock_ahead {
            -1..=1 => "its clock is that of this machine".to_owned(),
            ahead => format!("its clock is {ahead} s ahead of this machine; nothing depends on it"),
        }),
        note(if found.is_notified {
            "notifications come through: a waiter is woken at once".to_owned()
        } else {
            "no notification came through, as behind a pooler that shares connections: waiters look every five seconds".to_owned()
        }),
        note(if found.has_synchronous_standby {
            "a standby has each commit before it is answered".to_owned()
        } else {
            "no synchronous standby: a standby that takes over may have forgotten leases, and then nothing is granted for one session".to_owned()
        }),
    ];
    findings.push(if found.is_durable {
        note("commits are on the disk before they are answered".to_owned())
    } else {
        Finding {
            text: "commits may be lost in a crash: set fsync = on and synchronous_commit = on".to_owned(),
            is_bad: true,
        }
    });
    findings.extend(found.missing_privileges.iter().map(|missing| Finding {
        text: format!("this user has no {missing}: `lockkeeper store init` prints what it needs"),
        is_bad: true,
    }));
    findings
}
