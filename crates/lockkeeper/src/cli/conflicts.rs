//! `conflicts`: finds patterns that can match the same path.

mod matching;
mod report;
mod rules;

use std::collections::HashMap;
use std::fs::File;
use std::io::{self, BufRead, BufReader, Write};

use clap::Subcommand;
use lockkeeper_core::overlap::{Comparison, Relation, overlapping_pairs, relate};
use lockkeeper_core::pattern::{Pattern, PatternError};
use lockkeeper_engine::report::{Exit, Report};
use lockkeeper_engine::views::PatternConflictView;
use serde_json::{Value, json};

use super::context::{Context, Globals};
use super::{Verb, predict, print, table};

/// Compare patterns: can two of them match the same path?
#[derive(clap::Args)]
#[command(after_help = "Example:\n  lockkeeper conflicts check 'src/**/mod.rs' 'src/api/**'")]
pub(super) struct Args {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    /// Compare patterns with each other; exit 75 when any two conflict
    Check(CheckArgs),
    /// List the paths that patterns match
    Match(matching::Args),
    /// Show the parsed rules of a STAGES.yml, the strictest first
    Rules(rules::Args),
    /// Sum up the log of conflicts: by pair of groups, type and rule
    Report(report::Args),
    /// Predict from the git history which other paths the work will likely touch; advice, exit 0
    Predict(predict::Args),
}

#[derive(clap::Args)]
#[command(
    after_help = "EXACT, PARENT_CHILD and OVERLAP conflict and come with a path that both match; SAME_DIR is \
    advice only, and listed for \
    each pattern once.\nExample: lockkeeper conflicts check 'src/**/*.rs' 'src/api/**'"
)]
struct CheckArgs {
    /// Patterns, each compared with every other
    #[arg(value_name = "PATTERN", required_unless_present = "pairs")]
    patterns: Vec<String>,
    /// A file of pairs instead, two patterns per line separated by a tab; prints one JSON line each
    #[arg(long, value_name = "FILE", conflicts_with = "patterns")]
    pairs: Option<String>,
}

impl Verb for Args {
    const NAME: &'static str = "conflicts";

    fn run(self, globals: &Globals) -> Result<Exit, Report> {
        run(&Context::without_store(globals)?, &self)
    }
}

fn run(context: &Context, args: &Args) -> Result<Exit, Report> {
    match &args.command {
        Command::Check(args) => match &args.pairs {
            Some(file) => check_pairs(file),
            None => check(context, &args.patterns),
        },
        Command::Match(args) => matching::run(context, args),
        Command::Rules(args) => rules::run(context, args),
        Command::Report(args) => report::run(context, args),
        Command::Predict(args) => predict::run(context, args),
    }
}

fn check(context: &Context, texts: &[String]) -> Result<Exit, Report> {
    if texts.len() < 2 {
        return Err(
            Report::usage("one pattern has nothing to be compared with").with_hint("give at least two")
        );
    }
    let patterns: Vec<Pattern> = texts.iter().map(|text| parse(text)).collect::<Result<_, _>>()?;
    let found = compare(&patterns);
    let conflict = found.iter().any(|(_, _, meeting)| meeting.relation.is_conflict());
    if context.json {
        let view = |(a, b, meeting): &(&Pattern, &Pattern, Comparison)| {
            PatternConflictView::new(a.as_str(), b.as_str(), meeting.clone())
        };
        let conflicts: Vec<PatternConflictView> = found.iter().map(view).collect();
        print::json(&json!({ "conflicts": conflicts }));
    } else {
        for (a, b, meeting) in &found {
            let witness =
                meeting.witness.as_ref().map_or_else(String::new, |path| format!("  both match {path}"));
            print::data(&table::plain(&format!("{}  {a}  {b}{witness}", meeting.relation)));
        }
        if !conflict {
            print::talk("no conflict: no path is matched by two of them");
        }
    }
    Ok(if conflict { Exit::Refused } else { Exit::Done })
}

/// Finds all conflicts. A pattern that only shares a folder with others is listed with the first of them.
fn compare(patterns: &[Pattern]) -> Vec<(&Pattern, &Pattern, Comparison)> {
    let all: Vec<&Pattern> = patterns.iter().collect();
    let mut found = Vec::new();
    overlapping_pairs(&all, |_, _| true, |a, b, meeting| found.push((a, b, meeting)));
    let mut folders: HashMap<&str, Vec<usize>> = HashMap::new();
    for (place, pattern) in patterns.iter().enumerate() {
        let earlier = folders.entry(pattern.parent()).or_default();
        // Conflicting patterns were found above.
        let beside = |other: &&usize| relate(&patterns[**other], pattern).relation == Relation::SameDir;
        if let Some(other) = earlier.iter().find(beside) {
            found.push((*other, place, Comparison { relation: Relation::SameDir, witness: None }));
        }
        earlier.push(place);
    }
    found.sort_unstable_by_key(|(a, b, _)| (*a, *b));
    found.into_iter().map(|(a, b, meeting)| (&patterns[a], &patterns[b], meeting)).collect()
}

/// Parses a pattern; an error names it.
fn parse(text: &str) -> Result<Pattern, Report> {
    text.parse().map_err(|error: PatternError| match error.column() {
        Some(column) => {
            let message = format!("pattern `{}`: {error}", text.escape_debug());
            let report = Report::new(Exit::Usage, "BAD_PATTERN", message).with_hint(error.hint());
            report.with_context("pattern", text).with_context("column", column)
        }
        None => Report::from(error).with_context("pattern", text),
    })
}

/// Reports a file that cannot be read.
fn unreadable(file: &str, error: &io::Error) -> Report {
    let message = format!("cannot read {file}: {error}");
    let report = Report::new(Exit::Failed, "UNREADABLE", message).explained_as("FILE_UNREADABLE");
    report.with_hint(format!("is `{file}` a readable file?"))
}

/// Reads and answers line by line, so that a long list needs little memory.
fn check_pairs(file: &str) -> Result<Exit, Report> {
    let unreadable = |error: io::Error| unreadable(file, &error);
    let input: Box<dyn BufRead> = match file {
        "-" => Box::new(io::stdin().lock()),
        path => Box::new(BufReader::new(File::open(path).map_err(unreadable)?)),
    };
    let mut out = io::BufWriter::new(io::stdout().lock());
    let mut conflict = false;
    let mut bad = 0_usize;
    for line in input.lines() {
        let line = line.map_err(unreadable)?;
        let answer = pair(&line);
        conflict |= answer.get("witness").is_some_and(Value::is_string);
        bad += usize::from(answer.get("error").is_some());
        if !print::went_on(writeln!(out, "{answer}")) {
            return Ok(Exit::Done);
        }
    }
    print::went_on(out.flush());
    if bad > 0 {
        print::talk(&format!("{bad} of the lines are not two patterns: see their \"error\""));
        return Ok(Exit::Usage);
    }
    Ok(if conflict { Exit::Refused } else { Exit::Done })
}

fn pair(line: &str) -> Value {
    let Some((a, b)) = line.split_once('\t') else {
        return Report::usage("a line needs two patterns with a tab between").to_json();
    };
    let b = b.split('\t').next().unwrap_or(b);
    let parsed = a.parse::<Pattern>().and_then(|first| Ok((first, b.parse::<Pattern>()?)));
    match parsed {
        Ok((first, second)) => {
            json!(PatternConflictView::new(a, b, relate(&first, &second)))
        }
        Err(error) => {
            let mut value = Report::from(error).to_json();
            value["a"] = a.into();
            value["b"] = b.into();
            value
        }
    }
}
