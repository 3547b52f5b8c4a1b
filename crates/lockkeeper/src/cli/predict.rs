//! `conflicts predict`: predicts from the git history which other paths a change will touch.

mod declared;
mod measure;
mod show;

use std::time::Duration;

use lockkeeper_core::predict::Threshold;
use lockkeeper_core::time::parse_span;
use lockkeeper_engine::history::Limits;
use lockkeeper_engine::predict::{Learned, Terms, measure, predict};
use lockkeeper_engine::report::{Exit, Report};
use lockkeeper_platform::wall_clock::WallTime;

use super::context::Context;
use super::print;

#[derive(clap::Args)]
#[command(
    group = clap::ArgGroup::new("what").required(true).multiple(true),
    after_help = "Files that changed together in past commits will likely change together again. Each prediction has \
    its evidence: n of the m commits that touched a declared pattern also touched the path. The likelihood is a lower \
    bound for n of m (2 of 2 is 42 %), and recent commits count more.\n\
    With several groups it also predicts which paths two of them will both touch although their declared paths do not \
    overlap.\nIt is advice and always exits 0; `conflicts check` is exact and refuses with 75.\n\n\
    Examples:\n  lockkeeper conflicts predict --paths 'src/api/**' docs/api.md\n  \
    lockkeeper conflicts predict --group 'backend=src/api/**,src/db/**' --group 'web=web/**'\n  \
    lockkeeper conflicts predict --held\n  lockkeeper conflicts predict --evaluate"
)]
pub(super) struct Args {
    /// Paths that the work declares
    #[arg(long, value_name = "GLOB", num_args = 1.., group = "what")]
    paths: Vec<String>,
    /// A group and the paths that it declares; may be given several times
    #[arg(long = "group", value_name = "NAME=GLOB[,GLOB…]", group = "what")]
    groups: Vec<String>,
    /// Use every owner that holds paths now as a group
    #[arg(long, group = "what")]
    held: bool,
    /// Measure instead: hide paths of the newest fifth of the commits, and predict them from the rest
    #[arg(long, group = "what", conflicts_with_all = ["paths", "groups", "held"])]
    evaluate: bool,
    /// Learn only from commits since then: a date, or a span such as 90d
    #[arg(long, value_name = "WHEN")]
    since: Option<String>,
    /// Learn from at most N commits, the newest first
    #[arg(long, value_name = "N", default_value_t = 100_000, value_parser = clap::value_parser!(u32).range(1..=1_000_000))]
    max_commits: u32,
    /// Leave out commits that touched more than N files
    #[arg(long, value_name = "N", default_value_t = 50, value_parser = clap::value_parser!(u32).range(2..=10_000))]
    max_files: u32,
    /// The age at which a commit counts half
    #[arg(long, value_name = "DUR", default_value = "365d")]
    half_life: String,
    /// The least likelihood that is shown, such as 0.3 or 30%
    #[arg(long, value_name = "P", default_value = "0.5")]
    min_confidence: String,
    /// The least number of commits in which both changed
    #[arg(long, value_name = "N", default_value_t = 3, value_parser = clap::value_parser!(u32).range(1..))]
    min_support: u32,
    /// Show at most N paths for a group
    #[arg(long, value_name = "N", default_value_t = 20, value_parser = clap::value_parser!(u32).range(1..))]
    limit: u32,
}

/// Prints predictions, or their measured quality.
pub(super) fn run(context: &Context, args: &Args) -> Result<Exit, Report> {
    let terms = args.terms(WallTime::now())?;
    if args.evaluate {
        let (learned, result) = measure(&context.cwd, &terms)?;
        warn(&learned);
        if context.json {
            print::json(&measure::json(&learned, &result));
        } else {
            measure::text(&result);
        }
        return Ok(Exit::Done);
    }
    let groups = declared::groups(context, &args.paths, &args.groups, args.held)?;
    let outlook = predict(&context.cwd, &groups, &terms)?;
    warn(&outlook.learned);
    if context.json {
        print::json(&show::json(&groups, &outlook));
    } else {
        show::text(&groups, &outlook);
    }
    Ok(Exit::Done)
}

impl Args {
    fn terms(&self, now: WallTime) -> Result<Terms, Report> {
        let since = self.since.as_deref().map(|text| since(text, now)).transpose()?;
        let limits = Limits { since, commits: self.max_commits, files: self.max_files as usize };
        let bar = Threshold { likelihood: share(&self.min_confidence)?, together: self.min_support };
        let half_life = parse_span(&self.half_life)?.max(Duration::from_secs(1));
        Ok(Terms { limits, bar, half_life, most: self.limit as usize })
    }
}

/// Warns if there is little history to learn from.
fn warn(learned: &Learned) {
    if learned.commits == 0 {
        print::talk("there are no commits to learn from");
    }
    if learned.shallow {
        print::talk(&format!(
            "the clone is shallow and has only {} of the commits: `git fetch --unshallow` gets the others",
            learned.commits
        ));
    }
}

/// Seconds since 1970 of a date, or of a span before now.
fn since(text: &str, now: WallTime) -> Result<i64, Report> {
    let micros = match (parse_span(text), text.parse::<WallTime>()) {
        (Ok(span), _) => now.as_micros().saturating_sub(i64::try_from(span.as_micros()).unwrap_or(i64::MAX)),
        (Err(_), Ok(time)) => time.as_micros(),
        (Err(_), Err(_)) => {
            return Err(Report::usage(format!("`{text}` is neither a date nor a span"))
                .with_hint("write 90d, 24h or 2026-01-31"));
        }
    };
    Ok(micros.div_euclid(1_000_000).max(0))
}

/// A share from 0 to 1, also as a percentage.
fn share(text: &str) -> Result<f64, Report> {
    let number = match text.strip_suffix('%') {
        Some(percent) => percent.trim_end().parse::<f64>().map(|percent| percent / 100.0),
        None => text.parse::<f64>(),
    };
    number.ok().filter(|share| (0.0..=1.0).contains(share)).ok_or_else(|| {
        Report::usage(format!("`{text}` is not a likelihood"))
            .with_hint("write 0.3 or 30%, at most 1 or 100%")
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn likelihoods_are_shares_or_percentages() {
        let read = |text| share(text).ok();
        assert_eq!([read("0"), read("0.25"), read("25%"), read("100 %")], [0.0, 0.25, 0.25, 1.0].map(Some));
        assert!(
            ["", "%", "1.1", "-0.1", "101%", "NaN", "inf", "much"]
                .into_iter()
                .all(|text| read(text).is_none())
        );
    }

    #[test]
    fn since_is_a_date_or_a_span() {
        let now = WallTime::from_micros(1_769_860_800_000_000);
        let read = |text| since(text, now).ok();
        assert_eq!(read("1d"), Some(1_769_860_800 - 86_400));
        assert_eq!(read("2026-01-31"), Some(1_769_817_600));
        assert_eq!(read("2026-01-31T12:00:00Z"), Some(1_769_860_800));
        assert_eq!(read("99999d"), Some(0));
        assert_eq!([read("yesterday"), read(""), read("2026-02-30")], [None; 3]);
    }
}
