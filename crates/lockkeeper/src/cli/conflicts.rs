//! `conflicts`: can two patterns match one same path?

use std::fs::File;
use std::io::{self, BufRead, BufReader, Write};

use clap::Subcommand;
use lockkeeper::core::overlap::{Relation, relate};
use lockkeeper::core::pattern::Pattern;
use lockkeeper::report::{Exit, Report};
use serde_json::{Value, json};

use super::context::{Context, Globals};
use super::{Verb, predict, print};

/// Compare patterns: can two of them match one same path?
#[derive(clap::Args)]
pub(super) struct Args {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    /// Compare patterns with each other; exit 75 when any two conflict
    Check(CheckArgs),
    /// Tell from the git history which other paths the work will likely touch; advice, exit 0
    Predict(predict::Args),
}

#[derive(clap::Args)]
#[command(
    after_help = "EXACT, PARENT_CHILD and OVERLAP conflict and come with a path that both match; SAME_DIR is \
    advice only.\nExample: lockkeeper conflicts check 'src/**/*.rs' 'src/api/**'"
)]
struct CheckArgs {
    /// Patterns, each compared with every other
    #[arg(value_name = "PATTERN", required_unless_present = "pairs")]
    patterns: Vec<String>,
    /// Pairs instead, two patterns a line with a tab between; one JSON line each
    #[arg(long, value_name = "FILE", conflicts_with = "patterns")]
    pairs: Option<String>,
}

impl Verb for Args {
    const NAME: &'static str = "conflicts";

    fn run(self, globals: &Globals) -> Result<Exit, Report> {
        run(&Context::new(globals)?, &self)
    }
}

fn run(context: &Context, args: &Args) -> Result<Exit, Report> {
    match &args.command {
        Command::Check(args) => match &args.pairs {
            Some(file) => check_pairs(file),
            None => check(context, &args.patterns),
        },
        Command::Predict(args) => predict::run(context, args),
    }
}

fn check(context: &Context, texts: &[String]) -> Result<Exit, Report> {
    if texts.len() < 2 {
        return Err(
            Report::usage("one pattern has nothing to be compared with").with_hint("give at least two")
        );
    }
    let patterns: Vec<Pattern> = texts.iter().map(|text| text.parse()).collect::<Result<_, _>>()?;
    let mut found = Vec::new();
    for (index, a) in patterns.iter().enumerate() {
        for b in &patterns[index + 1..] {
            let meeting = relate(a, b);
            if meeting.relation != Relation::None {
                found.push((a, b, meeting));
            }
        }
    }
    let conflict = found.iter().any(|(_, _, meeting)| meeting.relation.is_conflict());
    if context.json {
        let conflicts: Vec<Value> = found
            .iter()
            .map(|(a, b, meeting)| {
                let kind = meeting.relation.as_str();
                json!({ "a": a.as_str(), "b": b.as_str(), "type": kind, "witness": meeting.witness })
            })
            .collect();
        print::json(&json!({ "conflicts": conflicts }));
    } else {
        for (a, b, meeting) in &found {
            let witness =
                meeting.witness.as_ref().map_or_else(String::new, |path| format!("  both match {path}"));
            print::data(&format!("{}  {a}  {b}{witness}", meeting.relation));
        }
        if !conflict {
            print::talk("no conflict: no path is matched by two of them");
        }
    }
    Ok(if conflict { Exit::Refused } else { Exit::Done })
}

/// Answers line by line, so that a long list needs no memory.
fn check_pairs(file: &str) -> Result<Exit, Report> {
    let unreadable = |error: io::Error| {
        Report::of(Exit::Failed, "UNREADABLE", &error).with_hint(format!("is `{file}` a readable file?"))
    };
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
        if writeln!(out, "{answer}").is_err() {
            // The reader has seen enough.
            return Ok(Exit::Done);
        }
    }
    let _ = out.flush();
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
            let meeting = relate(&first, &second);
            json!({ "a": a, "b": b, "type": meeting.relation.as_str(), "witness": meeting.witness })
        }
        Err(error) => {
            let mut value = Report::from(error).to_json();
            value["a"] = a.into();
            value["b"] = b.into();
            value
        }
    }
}
