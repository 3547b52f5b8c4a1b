//! `doctor`: health checks of everything that locks depend on; the full pass also removes stale locks.

use std::io::{IsTerminal, Write};
use std::time::Duration;

use anstyle::{AnsiColor, Style};
use lockkeeper_agents::checkup::{Checkup, Health, check_up};
use lockkeeper_agents::git_guard::{self, GuardError};
use lockkeeper_agents::{Harness, HookLog, takes_part};
use lockkeeper_core::alert::DOWNGRADE_SPAN;
use lockkeeper_engine::doctor::{Check, Diagnosis, Inputs, Opened, Pass, Status, examine};
use lockkeeper_engine::messages::{Language, Phrases, Sentence, said};
use lockkeeper_engine::queue::FailedCheck;
use lockkeeper_engine::report::{Exit, Report};
use lockkeeper_engine::stages::report::Report as Executions;
use lockkeeper_platform::terminal::Size;
use lockkeeper_platform::wall_clock::WallTime;

use super::context::{Context, Globals};
use super::{Verb, group, init, print, table, task};

/// Lines of the log of hooks are shown for so long.
const LOGGED_LATELY: Duration = Duration::from_secs(24 * 60 * 60);
/// At most this many recovered locks of one check are printed.
const MOST_LINES: usize = 20;

/// Check everything that locks depend on, and say what to do
#[derive(clap::Args)]
#[command(after_help = "Examples:\n  lockkeeper doctor\n  lockkeeper doctor --full\n\n\
    The quick pass changes nothing. The full pass also tests the file system, and removes the \
    stale locks of every format, each reported as LOCK_STALE_RECOVERED.\n\
    Exit 0 when every check passes or only warns, 1 when one fails.")]
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
    let line = LiveLine::new(context, pass == Pass::Full && !context.json);
    let mut diagnosis = diagnose(context, pass, &mut |id, position, total| line.show(id, position, total))?;
    diagnosis.checks.extend(agents(context));
    diagnosis.checks.extend(guard(context));
    diagnosis.checks.extend(hook_log(context));
    line.clear();
    if context.json {
        print::json(&diagnosis.view());
    } else {
        print::out(&table::wrap_terminal(&as_text(context, &diagnosis), DETAIL));
    }
    Ok(match diagnosis.status() {
        Status::Pass | Status::Warn => Exit::Done,
        Status::Fail => Exit::Failed,
    })
}

/// Runs the quick checks. Returns the first that fails; if they cannot be run at all, that counts as a failed check.
pub(super) fn failed_check(context: &Context) -> Option<FailedCheck> {
    match diagnose(context, Pass::Quick, &mut |_, _, _| {}) {
        Ok(diagnosis) => diagnosis.failed_check(),
        Err(report) => Some(FailedCheck {
            id: "doctor".to_owned(),
            title: "the doctor can examine everything".to_owned(),
            detail: report.to_string().replace("\n  caused by", ""),
            fix: report.hint().map(str::to_owned),
        }),
    }
}

fn diagnose(
    context: &Context,
    pass: Pass,
    progress: &mut dyn FnMut(&str, usize, usize),
) -> Result<Diagnosis, Report> {
    let (groups, swarm) = (group::folders(context), task::swarm()?);
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
    // Without a home folder or a path of this program, `init` cannot have set up any agent.
    let (Ok(folders), Ok(program)) = (init::folders(context), init::program()) else { return Vec::new() };
    let checkups = Harness::ALL.into_iter().filter_map(|harness| check_up(harness, &folders, &program));
    checkups.map(of_agent).collect()
}

/// Whether git calls the guard, in a repository where agents take part.
fn guard(context: &Context) -> Option<Check> {
    let root = &context.location.root;
    if !takes_part(&context.location) {
        return None;
    }
    let found = git_guard::state(root).ok()?;
    let (id, title) = ("git-guard", "git calls the guard before a commit");
    let check = Check {
        id,
        title,
        status: Status::Pass,
        detail: "git asks before a commit of files that others work on".to_owned(),
        fix: None,
        problems: Vec::new(),
        fixes: Vec::new(),
        recovered: Vec::new(),
    };
    if found.is_complete() {
        return Some(check);
    }
    let (problem, fix) = match git_guard::obstacle(root) {
        Some(GuardError::Global { folder, scope }) => {
            let problem = said("seen.guard_elsewhere").with("folder", folder.display()).with("scope", scope);
            (problem, said("fix.guard_elsewhere"))
        }
        Some(error) => (Sentence::from(error.to_string()), Sentence::from(error.hint())),
        None => (said("seen.no_guard"), said("fix.no_guard")),
    };
    let english = Phrases::load(Language::En);
    let (detail, advice) = (english.put(&problem), english.put(&fix));
    Some(Check {
        status: Status::Warn,
        detail,
        fix: Some(advice),
        problems: vec![problem],
        fixes: vec![fix],
        ..check
    })
}

/// What hooks have logged since yesterday, or would log now.
fn hook_log(context: &Context) -> Option<Check> {
    let state = &context.location.state;
    let since = WallTime::now().before(LOGGED_LATELY);
    let line = takes_part(&context.location).then(|| HookLog::trouble(state, since)).flatten()?;
    let detail = format!("hooks could not do all of their work; the last time: {line}");
    let fix = format!(
        "look at {}; after a day without a new line this check is silent",
        state.join("hooks.log").display()
    );
    Some(Check {
        id: "hook-log",
        title: "hooks have checked all edits",
        status: Status::Warn,
        problems: vec![Sentence::from(&detail)],
        fixes: vec![Sentence::from(&fix)],
        detail,
        fix: Some(fix),
        recovered: Vec::new(),
    })
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
    let (problems, fixes) = (vec![Sentence::from(&detail)], fix.iter().map(Sentence::from).collect());
    Check { id, title, status, detail, fix, problems, fixes, recovered: Vec::new() }
}

fn as_text(context: &Context, diagnosis: &Diagnosis) -> String {
    let mut text: String = diagnosis.checks.iter().map(|one| check(context, one)).collect();
    let [failed, warned, passed] =
        [Status::Fail, Status::Warn, Status::Pass].map(|status| diagnosis.count(status));
    let key = if warned == 1 { "doctor.warning" } else { "doctor.warnings" };
    let warned = context.say(key, &[("count", &warned.to_string())]);
    let (status, failed, passed) = (word(diagnosis.status()), failed.to_string(), passed.to_string());
    let values = [("status", &*status), ("failed", &*failed), ("warned", &*warned), ("passed", &*passed)];
    text.push('\n');
    text.push_str(&context.say("doctor.summary", &values));
    let recovered = diagnosis.recovered().count();
    if recovered > 0 {
        text.push_str(&context.say("doctor.recovered", &[("count", &recovered.to_string())]));
    }
    text.push('\n');
    text
}

/// The column of what a check saw.
const DETAIL: usize = 21;

/// One check. In another language than English its title comes first, and then the problems, each on lines of its own.
fn check(context: &Context, check: &Check) -> String {
    let (status, id) = (word(check.status), check.id);
    let is_english = context.language() == Language::En;
    let mut lines = Vec::new();
    let head = if is_english { table::plain(&check.detail) } else { check.title_in(context.phrases()) };
    lines.push(format!("{status}  {id:<13}  {head}"));
    if !is_english && check.status != Status::Pass {
        lines.extend(check.problems.iter().map(|problem| below(context, problem)));
    }
    for one in check.recovered.iter().take(MOST_LINES) {
        let line = format!("{}: {}: {}", one.reason_code(), one.what, one.why);
        lines.push(below(context, &Sentence::English(line)));
    }
    if let Some(more) = check.recovered.len().checked_sub(MOST_LINES).filter(|more| *more > 0) {
        lines.push(format!("      {}", context.say("doctor.more", &[("count", &more.to_string())])));
    }
    if is_english {
        let fix = check.fix.iter().map(|fix| context.say("doctor.fix", &[("what", &table::plain(fix))]));
        lines.extend(fix.map(|fix| format!("      {fix}")));
    } else {
        lines.extend(check.fixes.iter().map(|fix| fix_below(context, fix)));
    }
    lines.iter().map(|line| format!("{line}\n")).collect()
}

fn below(context: &Context, sentence: &Sentence) -> String {
    let text = context.phrases().put(sentence);
    let lines: Vec<String> = text.lines().map(|line| format!("      {}", table::plain(line))).collect();
    lines.join("\n")
}

/// What to do. English text of another part has its own label.
fn fix_below(context: &Context, fix: &Sentence) -> String {
    match fix {
        Sentence::English(_) => below(context, fix),
        Sentence::Phrase(..) | Sentence::Literal(_) => {
            let what = table::plain(&context.phrases().put(fix));
            format!("      {}", context.say("doctor.fix", &[("what", &what)]))
        }
    }
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
struct LiveLine<'c> {
    context: &'c Context,
    is_live: bool,
}

impl<'c> LiveLine<'c> {
    fn new(context: &'c Context, wanted: bool) -> Self {
        let dumb = std::env::var_os("TERM").is_some_and(|term| term == "dumb");
        Self { context, is_live: wanted && !dumb && std::io::stderr().is_terminal() }
    }

    fn show(&self, id: &str, position: usize, total: usize) {
        if self.is_live {
            let mut stderr = std::io::stderr().lock();
            let [position, total] = [position, total].map(|number| number.to_string());
            let values = [("position", &*position), ("total", &*total), ("id", id)];
            let line = self.context.say("doctor.checking", &values);
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
