//! `conflicts match`: lists the paths that patterns match.

use std::fs::File;
use std::io::{self, BufRead, BufReader, IsTerminal, Write};

use lockkeeper_core::pattern::Pattern;
use lockkeeper_engine::conflicts::Listing;
use lockkeeper_engine::report::{Exit, Report};
use serde_json::{Value, json};

use super::{parse, unreadable};
use crate::cli::context::Context;
use crate::cli::{print, table};

#[derive(clap::Args)]
#[command(
    after_help = "Without --paths, the paths are those that git tracks and new ones that it does not ignore, \
    from the root of the repository.\nA pattern that matches nothing is no failure: the exit code is 0.\n\
    Example: lockkeeper conflicts match 'src/**/*.rs'"
)]
pub(super) struct Args {
    /// Patterns; a path is listed when any of them matches it
    #[arg(value_name = "PATTERN", required = true)]
    patterns: Vec<String>,
    /// A file of paths, one per line; - for stdin
    #[arg(long, value_name = "FILE")]
    paths: Option<String>,
    /// Paths end with NUL instead of a newline, in the input and in the output
    #[arg(short = 'z', long)]
    null: bool,
}

pub(super) fn run(context: &Context, args: &Args) -> Result<Exit, Report> {
    let patterns: Vec<Pattern> = args.patterns.iter().map(|text| parse(text)).collect::<Result<_, _>>()?;
    let mut found = Found { writer: writer(context, args), listed: 0, matched: 0 };
    match &args.paths {
        Some(file) => {
            let input: Box<dyn BufRead> = match file.as_str() {
                "-" => Box::new(io::stdin().lock()),
                path => Box::new(BufReader::new(File::open(path).map_err(|error| unreadable(path, &error))?)),
            };
            for path in input.split(if args.null { 0 } else { b'\n' }) {
                let mut path = path.map_err(|error| unreadable(file, &error))?;
                if !args.null && path.ends_with(b"\r") {
                    path.pop();
                }
                if !path.is_empty() && !found.look(&patterns, &path) {
                    return Ok(Exit::Done);
                }
            }
        }
        None => {
            for path in Listing::of(&context.location.root)? {
                if !found.look(&patterns, &path?) {
                    return Ok(Exit::Done);
                }
            }
        }
    }
    found.end(&patterns, context.json);
    Ok(Exit::Done)
}

/// Output format of paths.
enum Writer {
    /// Collected into one JSON object at the end.
    Json(Vec<Value>),
    /// The bytes of the path, and this byte as the end.
    Bytes(io::BufWriter<io::StdoutLock<'static>>, u8),
    /// Without control characters, for a terminal.
    Terminal,
}

fn writer(context: &Context, args: &Args) -> Writer {
    if context.json {
        Writer::Json(Vec::new())
    } else if io::stdout().is_terminal() {
        Writer::Terminal
    } else {
        Writer::Bytes(io::BufWriter::new(io::stdout().lock()), if args.null { 0 } else { b'\n' })
    }
}

struct Found {
    writer: Writer,
    listed: usize,
    matched: usize,
}

impl Found {
    /// Writes a path if a pattern matches it; false when it cannot be written.
    ///
    /// A byte that is not UTF-8 counts as a replacement character, which only wildcards match.
    fn look(&mut self, patterns: &[Pattern], path: &[u8]) -> bool {
        self.listed += 1;
        let text = String::from_utf8_lossy(path);
        let mut matching =
            patterns.iter().filter(|pattern| pattern.matches(&text)).map(Pattern::as_str).peekable();
        if matching.peek().is_none() {
            return true;
        }
        self.matched += 1;
        match &mut self.writer {
            Writer::Json(values) => {
                values.push(json!({ "path": text, "patterns": matching.collect::<Vec<_>>() }));
                true
            }
            Writer::Terminal => {
                print::data(&table::plain(&text));
                true
            }
            Writer::Bytes(out, end) => {
                print::went_on(out.write_all(path).and_then(|()| out.write_all(&[*end])))
            }
        }
    }

    fn end(self, patterns: &[Pattern], as_json: bool) {
        let (listed, matched) = (self.listed, self.matched);
        match self.writer {
            Writer::Json(paths) => {
                let patterns: Vec<&str> = patterns.iter().map(Pattern::as_str).collect();
                print::json(
                    &json!({ "patterns": patterns, "paths": paths, "matched": matched, "listed": listed }),
                );
            }
            Writer::Terminal => {}
            Writer::Bytes(mut out, _) => drop(print::went_on(out.flush())),
        }
        if matched == 0 && !as_json {
            print::talk(&format!("none of {listed} paths is matched"));
        }
    }
}
