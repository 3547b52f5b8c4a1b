//! Progress of a phase: totals and a bar for each group on a terminal, a line for each event elsewhere.

use std::io::{IsTerminal, Write};
use std::time::{Duration, Instant};

use anstream::{AutoStream, ColorChoice};
use anstyle::{AnsiColor, Style};
use lockkeeper_core::plan::{GroupState, Progress};
use lockkeeper_core::time::format_span;
use lockkeeper_engine::messages::Phrases;
use lockkeeper_engine::stages::PhaseEvent;
use lockkeeper_engine::with_short_ids;
use lockkeeper_platform::terminal::Size;
use lockkeeper_stages::PhasePlan;

use super::run::word;
use crate::cli::context::Context;
use crate::cli::{print, table};

/// The width of a bar in characters.
const BAR: usize = 20;

const BOLD: Style = Style::new().bold();
const DIM: Style = Style::new().dimmed();

/// The colour of a group.
fn style_of(state: GroupState) -> Style {
    match state {
        GroupState::Waiting => DIM,
        GroupState::Running => AnsiColor::Cyan.on_default(),
        GroupState::Succeeded => AnsiColor::Green.on_default(),
        GroupState::Failed => AnsiColor::Red.on_default().bold(),
        GroupState::Skipped => AnsiColor::Yellow.on_default(),
    }
}

/// Progress display of a phase, on stderr.
pub(super) struct Live<'p> {
    phrases: &'p Phrases,
    plan: &'p PhasePlan,
    quiet: bool,
    on_terminal: bool,
    groups: Vec<View>,
    /// How many lines of the display are above the cursor.
    drawn: usize,
    in_colour: bool,
    began: Instant,
}

#[derive(Default)]
struct View {
    started: Option<Instant>,
    ended: Option<Duration>,
    agents_done: usize,
    note: String,
}

impl<'p> Live<'p> {
    pub(super) fn new(context: &'p Context, plan: &'p PhasePlan) -> Self {
        let (quiet, phrases) = (context.json, &**context.phrases());
        let dumb = std::env::var_os("TERM").is_some_and(|term| term == "dumb");
        let on_terminal = !quiet && std::io::stderr().is_terminal() && !dumb;
        let groups = plan.groups.iter().map(|_| View::default()).collect();
        let in_colour = AutoStream::choice(&std::io::stderr()) != ColorChoice::Never;
        Self { phrases, plan, quiet, on_terminal, groups, drawn: 0, in_colour, began: Instant::now() }
    }

    /// Shows an event, and the state of every group.
    pub(super) fn show(&mut self, event: Option<&PhaseEvent>, standings: &[GroupState]) {
        if let Some(event) = event {
            self.apply(event);
            // The bars show the other events.
            let needs_line = match event {
                PhaseEvent::Downgraded { .. } | PhaseEvent::Tuned { .. } | PhaseEvent::Stopping { .. } => {
                    true
                }
                PhaseEvent::GroupWaiting { .. }
                | PhaseEvent::GroupStarted { .. }
                | PhaseEvent::AgentEnded { .. }
                | PhaseEvent::GroupEnded { .. } => false,
            };
            if !self.quiet && (needs_line || !self.on_terminal) {
                self.print_above(&self.line(event));
            }
        }
        if self.on_terminal {
            self.draw(standings);
        }
    }

    /// Leaves the last display on the terminal.
    pub(super) fn end(&mut self) {
        self.drawn = 0;
    }

    /// Erases the bars and prints a line. The next draw puts the bars below it.
    fn print_above(&mut self, line: &str) {
        if self.drawn > 0 {
            let mut stderr = std::io::stderr().lock();
            let _ = write!(stderr, "\x1b[{}A\r\x1b[J", self.drawn).and_then(|()| stderr.flush());
            self.drawn = 0;
        }
        print::talk(line);
    }

    fn apply(&mut self, event: &PhaseEvent) {
        match event {
            PhaseEvent::GroupWaiting { group, why, limit } => {
                let why = with_short_ids(why);
                let note = match limit.map(format_span) {
                    Some(limit) => {
                        self.phrases.fill("stages.note_waits_at_most", &[("limit", &limit), ("why", &why)])
                    }
                    None => self.phrases.fill("stages.note_waits", &[("why", &why)]),
                };
                let view = &mut self.groups[*group];
                view.started.get_or_insert_with(Instant::now);
                view.note = note;
            }
            PhaseEvent::GroupStarted { group, .. } => {
                let view = &mut self.groups[*group];
                view.started.get_or_insert_with(Instant::now);
                view.note.clear();
            }
            PhaseEvent::AgentEnded { group, .. } => self.groups[*group].agents_done += 1,
            PhaseEvent::GroupEnded { group, why, .. } => {
                let view = &mut self.groups[*group];
                view.ended = Some(view.started.map_or(Duration::ZERO, |started| started.elapsed()));
                view.note = why.clone().unwrap_or_default();
            }
            PhaseEvent::Downgraded { .. } | PhaseEvent::Tuned { .. } | PhaseEvent::Stopping { .. } => {}
        }
    }

    fn line(&self, event: &PhaseEvent) -> String {
        let about = |key: &str, group: &usize, more: &[(&str, &str)]| {
            let id = table::plain(self.plan.id(*group));
            self.phrases.fill(key, &[&[("group", id.as_str())], more].concat())
        };
        match event {
            PhaseEvent::GroupWaiting { group, why, limit } => {
                let why = table::plain(&with_short_ids(why));
                match limit.map(format_span) {
                    Some(limit) => about("stages.waits_at_most", group, &[("limit", &limit), ("why", &why)]),
                    None => about("stages.waits", group, &[("why", &why)]),
                }
            }
            PhaseEvent::GroupStarted { group, .. } => about("stages.began", group, &[]),
            PhaseEvent::AgentEnded { group, agent, run } => {
                let (agent, status) = (table::plain(agent), run.status().to_string());
                about("stages.agent", group, &[("agent", &agent), ("status", &status)])
            }
            PhaseEvent::GroupEnded { group, state, why: Some(why) } => {
                about("stages.ended_why", group, &[("state", word(*state)), ("why", &table::plain(why))])
            }
            PhaseEvent::GroupEnded { group, state, why: None } => {
                about("stages.ended", group, &[("state", word(*state))])
            }
            PhaseEvent::Downgraded { rule, what, why } => {
                let [rule, what, why] = [rule, what, why].map(|text| table::plain(text));
                let values = [("rule", &*rule), ("what", &*what), ("why", &*why)];
                self.phrases.fill("stages.downgraded", &values)
            }
            PhaseEvent::Tuned { slots } => {
                self.phrases.fill("stages.tuned", &[("slots", &slots.to_string())])
            }
            PhaseEvent::Stopping { why } => {
                self.phrases.fill("stages.stopping", &[("why", &table::plain(why))])
            }
        }
    }

    fn draw(&mut self, standings: &[GroupState]) {
        let mut stderr = std::io::stderr().lock();
        let (columns, rows) = Size::of(&stderr).map_or((80, 24), |size| (size.columns, size.rows));
        // Lines that have scrolled off the screen cannot be drawn again.
        let lines = self.lines(standings, rows.saturating_sub(2).max(2));
        let mut text = String::new();
        if self.drawn > 0 {
            text.push_str(&format!("\x1b[{}A", self.drawn));
        }
        for line in &lines {
            // What is left of a longer display is erased.
            text.push_str(&format!("\r\x1b[K{}\n", table::cut(&self.painted(line), columns)));
        }
        text.push_str("\x1b[J");
        self.drawn = lines.len();
        // A message that cannot be printed is no reason to fail.
        let _ = stderr.write_all(text.as_bytes()).and_then(|()| stderr.flush());
    }

    /// A line with its colour, if colours are wanted.
    fn painted(&self, (style, line): &(Style, String)) -> String {
        if self.in_colour { format!("{style}{line}{style:#}") } else { line.clone() }
    }

    /// The display, at most this many lines: the totals, the groups that have succeeded on one line, and a bar for each other
    /// group. If there is not enough room, running and failed groups are shown first.
    fn lines(&self, standings: &[GroupState], rows: usize) -> Vec<(Style, String)> {
        let state = |index: usize| standings.get(index).copied().unwrap_or(GroupState::Waiting);
        let all = 0..self.groups.len();
        let count = |wanted: GroupState| all.clone().filter(|index| state(*index) == wanted).count();
        let number = |wanted: GroupState| count(wanted).to_string();
        let values = [
            ("phase", table::plain(&self.plan.phase)),
            ("done", number(GroupState::Succeeded)),
            ("all", self.groups.len().to_string()),
            ("running", number(GroupState::Running)),
            ("waiting", number(GroupState::Waiting)),
        ];
        let mut totals =
            self.phrases.fill("stages.totals", &values.each_ref().map(|(key, text)| (*key, &**text)));
        for (wanted, key) in
            [(GroupState::Failed, "stages.totals_failed"), (GroupState::Skipped, "stages.totals_skipped")]
        {
            if count(wanted) > 0 {
                totals.push_str(&self.phrases.fill(key, &[("count", &number(wanted))]));
            }
        }
        let age = Duration::from_secs(self.began.elapsed().as_secs());
        let mut lines = vec![(BOLD, format!("{totals}, {}", format_span(age)))];
        let (folded, mut shown): (Vec<usize>, Vec<usize>) =
            all.partition(|index| state(*index) == GroupState::Succeeded);
        if !folded.is_empty() {
            let names: Vec<String> = folded.iter().map(|index| table::plain(self.plan.id(*index))).collect();
            lines.push((
                style_of(GroupState::Succeeded),
                self.phrases.fill("stages.done", &[("groups", &names.join(", "))]),
            ));
        }
        let room = rows.saturating_sub(lines.len() + 1);
        let hidden = if shown.len() > room + 1 { shown.len() - room } else { 0 };
        shown.sort_by_key(|index| !matches!(state(*index), GroupState::Running | GroupState::Failed));
        shown.truncate(shown.len() - hidden);
        shown.sort_unstable();
        let width = shown.iter().map(|index| self.plan.id(*index).chars().count()).max().unwrap_or(0);
        for index in shown {
            lines.push((style_of(state(index)), self.bar(index, &self.groups[index], standings, width)));
        }
        if hidden > 0 {
            lines.push((DIM, self.phrases.fill("stages.more", &[("count", &hidden.to_string())])));
        }
        lines
    }

    fn bar(&self, index: usize, view: &View, standings: &[GroupState], width: usize) -> String {
        let standing = standings.get(index).copied().unwrap_or(GroupState::Waiting);
        let elapsed = view.ended.or_else(|| view.started.map(|started| started.elapsed()));
        let estimate = self.plan.estimates[index].max(Duration::from_millis(1));
        let share = match standing {
            GroupState::Waiting | GroupState::Skipped => 0.0,
            GroupState::Running => {
                let by_time = elapsed.unwrap_or_default().as_secs_f64() / estimate.as_secs_f64();
                by_time.min(0.95)
            }
            GroupState::Succeeded | GroupState::Failed => 1.0,
        };
        let filled = (share * BAR as f64) as usize;
        let bar = format!("{}{}", "#".repeat(filled), ".".repeat(BAR - filled));
        let agents = self.plan.groups[index].agents.len().max(1);
        let note = if view.note.is_empty() { self.waits(index, standings) } else { view.note.clone() };
        let time = elapsed.map_or_else(String::new, format_span);
        let id = table::plain(self.plan.id(index));
        format!(
            "{id:<width$} [{bar}] {:<8} {}/{agents} {time:>8}  {}",
            word(standing),
            view.agents_done,
            table::plain(&note)
        )
    }

    /// The groups that a group waits for before it starts.
    fn waits(&self, index: usize, standings: &[GroupState]) -> String {
        if standings.get(index) != Some(&GroupState::Waiting) {
            return String::new();
        }
        let bonds = Progress::at(&self.plan.plan, standings).waits_for(index);
        let names: Vec<&str> = bonds.iter().map(|bond| self.plan.id(bond.group)).collect();
        if names.is_empty() {
            return String::new();
        }
        self.phrases.fill("stages.after", &[("groups", &names.join(", "))])
    }
}
