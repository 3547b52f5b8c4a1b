//! Progress of a phase: a bar for each group on a terminal, a line for each event elsewhere.

use std::io::{IsTerminal, Write};
use std::time::{Duration, Instant};

use lockkeeper_core::plan::{GroupState, Progress};
use lockkeeper_core::time::format_span;
use lockkeeper_engine::stages::PhaseEvent;
use lockkeeper_platform::terminal::Size;
use lockkeeper_stages::PhasePlan;

use super::run::word;
use crate::cli::{print, table};

/// The width of a bar in characters.
const BAR: usize = 20;

/// Progress display of a phase, on stderr.
pub(super) struct Live<'p> {
    plan: &'p PhasePlan,
    quiet: bool,
    on_terminal: bool,
    groups: Vec<View>,
    /// How many lines of the display are above the cursor.
    drawn: usize,
}

#[derive(Default)]
struct View {
    started: Option<Instant>,
    ended: Option<Duration>,
    agents_done: usize,
    note: String,
}

impl<'p> Live<'p> {
    pub(super) fn new(quiet: bool, plan: &'p PhasePlan) -> Self {
        let dumb = std::env::var_os("TERM").is_some_and(|term| term == "dumb");
        let on_terminal = !quiet && std::io::stderr().is_terminal() && !dumb;
        let groups = plan.groups.iter().map(|_| View::default()).collect();
        Self { plan, quiet, on_terminal, groups, drawn: 0 }
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

    /// Prints a line in index of the bars. The next draw puts them below it.
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
            PhaseEvent::GroupWaiting { group, why } => {
                let view = &mut self.groups[*group];
                view.started.get_or_insert_with(Instant::now);
                view.note = format!("waits: {why}");
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
        let id = |index: &usize| table::plain(self.plan.id(*index));
        match event {
            PhaseEvent::GroupWaiting { group, why } => format!("{}: waits, {}", id(group), table::plain(why)),
            PhaseEvent::GroupStarted { group, .. } => format!("{}: began", id(group)),
            PhaseEvent::AgentEnded { group, agent, run } => {
                format!("{}: {} {}", id(group), table::plain(agent), run.status())
            }
            PhaseEvent::GroupEnded { group, state, why } => {
                let why = why.as_ref().map_or_else(String::new, |why| format!(", {}", table::plain(why)));
                format!("{}: {}{why}", id(group), word(*state))
            }
            PhaseEvent::Downgraded { rule, what, why } => {
                format!("rule {}: {}, because {}", table::plain(rule), table::plain(what), table::plain(why))
            }
            PhaseEvent::Tuned { slots } => format!("tuned: {slots} groups at a time"),
            PhaseEvent::Stopping { why } => format!("ending everything: {}", table::plain(why)),
        }
    }

    fn draw(&mut self, standings: &[GroupState]) {
        let mut stderr = std::io::stderr().lock();
        let size = Size::of(&stderr);
        let columns = size.map_or(80, |size| size.columns);
        // Lines that have scrolled off the screen cannot be drawn again. Running groups are shown first.
        let rows = size.map_or(24, |size| size.rows).saturating_sub(2).max(1);
        let mut shown: Vec<usize> = (0..self.groups.len()).collect();
        shown.sort_by_key(|index| standings.get(*index) != Some(&GroupState::Running));
        shown.truncate(rows);
        shown.sort_unstable();
        let hidden = self.groups.len() - shown.len();
        let width =
            (0..self.groups.len()).map(|index| self.plan.id(index).chars().count()).max().unwrap_or(0);
        let mut text = String::new();
        if self.drawn > 0 {
            text.push_str(&format!("\x1b[{}A", self.drawn));
        }
        for index in &shown {
            let line = self.bar(*index, &self.groups[*index], standings, width);
            text.push_str(&format!("\r\x1b[K{}\n", table::cut(&line, columns)));
        }
        if hidden > 0 {
            text.push_str(&format!("\r\x1b[Kand {hidden} more\n"));
        }
        self.drawn = shown.len() + usize::from(hidden > 0);
        // A message that cannot be printed is no reason to fail.
        let _ = stderr.write_all(text.as_bytes()).and_then(|()| stderr.flush());
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
        if names.is_empty() { String::new() } else { format!("after {}", names.join(", ")) }
    }
}
