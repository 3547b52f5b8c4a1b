//! `doctor`: health checks of everything that locks depend on; the full pass also removes stale locks.

use std::io::{IsTerminal, Write};

use anstyle::{AnsiColor, Style};
use lockkeeper_agents::Harness;
use lockkeeper_agents::checkup::{Checkup, Health, check_up};
use lockkeeper_core::alert::DOWNGRADE_SPAN;
use lockkeeper_engine::doctor::{Check, Diagnosis, Inputs, Opened, Pass, Status, examine};
use lockkeeper_engine::report::{Exit, Report};
use lockkeeper_engine::stages::report::Report as Executions;
use lockkeeper_formats::group::Folders;
use lockkeeper_platform::terminal::Size;
use lockkeeper_platform::wall_clock::WallTime;

use super::context::{Context, Globals};
use super::{Verb, group, init, print, table, task};

/// At most this many recovered locks of one check are printed.
const MOST_LINES: usize = 20;

/// Check everything that locks depend on, and say what to do
#[derive(clap::Args)]
#[command(
    after_help = "The quick pass changes nothing. The full pass also tests the file system, and removes the \
    stale locks of every format, each reported as LOCK_STALE_RECOVERED.\n\
    Exit 0 when every check passes or only warns, 1 when one fails."
)]
pub(super) struct Args {
    /// Change nothing; this is the default
    #[arg(long, conflicts_with = "full")]
    quick: bool,
    /// Also test the file system, and remove stale locks
    #[arg(long)]
    full: bool,
}

impl Verb for Args {
    const NAME: &'static str = "doctor";

    fn run(self, globals: &Globals) -> Result<Exit, Report> {
        run(&Context::new(globals)?, &self)
    }
}

fn run(context: &Context, args: &Args) -> Result<Exit, Report> {
    let pass = if args.full { Pass::Full } else { Pass::Quick };
    let line = LiveLine::new(pass == Pass::Full && !context.json);
    let mut diagnosis = diagnose(context, pass, &mut |id, position, total| line.show(id, position, total))?;
    diagnosis.checks.extend(agents(context));
    line.clear();
    if context.json {
        print::json(&diagnosis.to_json());
    } else {
        print::out(&as_text(&diagnosis));
    }
    Ok(match diagnosis.status() {
        Status::Pass | Status::Warn => Exit::Done,
        Status::Fail => Exit::Failed,
    })
}

/// Whether no check of the quick pass fails.
pub(super) fn is_well(context: &Context) -> bool {
    diagnose(context, Pass::Quick, &mut |_, _, _| {}).is_ok_and(|found| found.status() != Status::Fail)
}

fn diagnose(
    context: &Context,
    pass: Pass,
    progress: &mut dyn FnMut(&str, usize, usize),
) -> Result<Diagnosis, Report> {
    let (groups, swarm) = (Folders::from_variables(&|name| std::env::var_os(name)), task::swarm()?);
    let max_group_age = group::max_lock_age()?;
    let engine = match pass {
        Pass::Quick => context.engine_to_read(),
        Pass::Full => context.existing_engine(),
    };
    let store = match &engine {
        Ok(None) => Opened::Absent,
        Ok(Some(engine)) => Opened::Open(engine),
        Err(report) => {
            let why = report.to_string().replace("\n  caused by", "");
            Opened::Refused { why, fix: report.hint().unwrap_or_default().to_owned() }
        }
    };
    let now = WallTime::now();
    let inputs = Inputs {
        location: &context.location,
        store,
        groups: &groups,
        max_group_age,
        swarm: &swarm,
        downgrades: Executions::all_downgrades_since(&context.location.state, now.before(DOWNGRADE_SPAN)),
        now,
    };
    Ok(examine(&inputs, pass, progress))
}

/// Proves for each coding agent that its hooks stop an edit. Not before runs, where only locks matter.
fn agents(context: &Context) -> Vec<Check> {
    // Without a home folder or a path of this program nobody is set up.
    let (Ok(folders), Ok(program)) = (init::folders(context), init::program()) else { return Vec::new() };
    let checkups = Harness::ALL.into_iter().filter_map(|harness| check_up(harness, &folders, &program));
    checkups.map(of_agent).collect()
}

fn of_agent(checkup: Checkup) -> Check {
    let title = match checkup.harness {
        Harness::Claude => "Claude Code asks before each edit",
        Harness::Codex => "Codex CLI asks before each edit",
        Harness::Gemini => "Gemini CLI asks before each edit",
        Harness::Copilot => "Copilot asks before each edit",
        Harness::OpenCode => "OpenCode asks before each edit",
        Harness::Qwen => "Qwen Code asks before each edit",
        Harness::Cursor => "Cursor asks before each edit",
        Harness::Windsurf => "Windsurf asks before each edit",
    };
    let status = match checkup.health {
        Health::Works => Status::Pass,
        Health::Warns => Status::Warn,
        Health::Fails => Status::Fail,
    };
    let (id, detail, fix) = (checkup.harness.kind(), checkup.detail, checkup.fix);
    Check { id, title, status, detail, fix, recovered: Vec::new() }
}

fn as_text(diagnosis: &Diagnosis) -> String {
    let mut text: String = diagnosis.checks.iter().map(check).collect();
    let [failed, warned, passed] =
        [Status::Fail, Status::Warn, Status::Pass].map(|status| diagnosis.count(status));
    let warned = if warned == 1 { "1 warning".to_owned() } else { format!("{warned} warnings") };
    let recovered = diagnosis.recovered().count();
    text.push_str(&format!("\n{}: {failed} failed, {warned}, {passed} passed", word(diagnosis.status())));
    if recovered > 0 {
        text.push_str(&format!(", {recovered} recovered"));
    }
    text.push('\n');
    text
}

fn check(check: &Check) -> String {
    let Check { id, status, detail, fix, recovered, .. } = check;
    let mut text = format!("{}  {id:<13}  {}\n", word(*status), table::plain(detail));
    for one in recovered.iter().take(MOST_LINES) {
        let line = format!("{}: {}: {}", one.reason_code(), one.what, one.why);
        text.push_str(&format!("      {}\n", table::plain(&line)));
    }
    if let Some(more) = recovered.len().checked_sub(MOST_LINES).filter(|more| *more > 0) {
        text.push_str(&format!("      and {more} more, see --json\n"));
    }
    if let Some(fix) = fix {
        text.push_str(&format!("      fix: {}\n", table::plain(fix)));
    }
    text
}

fn word(status: Status) -> String {
    let style: Style = match status {
        Status::Pass => AnsiColor::Green.on_default(),
        Status::Warn => AnsiColor::Yellow.on_default().bold(),
        Status::Fail => AnsiColor::Red.on_default().bold(),
    };
    format!("{style}{}{style:#}", status.word())
}

/// Progress line on a terminal: the check that runs now.
struct LiveLine {
    is_live: bool,
}

impl LiveLine {
    fn new(wanted: bool) -> Self {
        let dumb = std::env::var_os("TERM").is_some_and(|term| term == "dumb");
        Self { is_live: wanted && !dumb && std::io::stderr().is_terminal() }
    }

    fn show(&self, id: &str, position: usize, total: usize) {
        if self.is_live {
            let mut stderr = std::io::stderr().lock();
            let line = format!("checking {position}/{total} {id}");
            let line = Size::of(&stderr).map_or(line.clone(), |size| table::cut(&line, size.columns));
            // A message that cannot be printed is no reason to fail.
            let _ = write!(stderr, "\r\x1b[K{line}").and_then(|()| stderr.flush());
        }
    }

    fn clear(&self) {
        if self.is_live {
            let mut stderr = std::io::stderr().lock();
            let _ = write!(stderr, "\r\x1b[K").and_then(|()| stderr.flush());
        }
    }
}
