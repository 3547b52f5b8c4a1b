//! How a phase goes on: a bar for each group on a terminal, a line for each step elsewhere.

use std::io::{IsTerminal, Write};
use std::time::{Duration, Instant};

use lockkeeper_core::plan::{GroupState, Progress};
use lockkeeper_core::time::format_span;
use lockkeeper_engine::stages::News;
use lockkeeper_platform::terminal::Size;
use lockkeeper_stages::PhasePlan;

use super::run::word;
use crate::cli::{print, table};

/// How many characters a bar has.
const BAR: usize = 20;

/// Shows how a phase goes on.
pub(super) struct Live<'p> {
    plan: &'p PhasePlan,
    quiet: bool,
    on_terminal: bool,
    groups: Vec<View>,
    /// How many lines of the block stand above the cursor.
    drawn: usize,
}

#[derive(Default)]
struct View {
    began: Option<Instant>,
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

    /// Shows what happened, and how things stand.
    pub(super) fn show(&mut self, news: Option<&News>, standings: &[GroupState]) {
        if let Some(news) = news {
            self.note(news);
            let stays = match news {
                News::Downgraded { .. } | News::Tuned { .. } | News::Stopping { .. } => true,
                News::Waits { .. } | News::Began { .. } | News::Agent { .. } | News::Ended { .. } => false,
            };
            if !self.quiet && (stays || !self.on_terminal) {
                self.say(&self.line(news));
            }
        }
        if self.on_terminal {
            self.draw(standings);
        }
    }

    /// The block stays as it is.
    pub(super) fn end(&mut self) {
        self.drawn = 0;
    }

    /// Says something above the bars, which are drawn again below it.
    fn say(&mut self, line: &str) {
        if self.drawn > 0 {
            let mut stderr = std::io::stderr().lock();
            let _ = write!(stderr, "\x1b[{}A\r\x1b[J", self.drawn).and_then(|()| stderr.flush());
            self.drawn = 0;
        }
        print::talk(line);
    }

    fn note(&mut self, news: &News) {
        match news {
            News::Waits { group, why } => {
                let view = &mut self.groups[*group];
                view.began.get_or_insert_with(Instant::now);
                view.note = format!("waits: {why}");
            }
            News::Began { group, .. } => {
                let view = &mut self.groups[*group];
                view.began.get_or_insert_with(Instant::now);
                view.note.clear();
            }
            News::Agent { group, .. } => self.groups[*group].agents_done += 1,
            News::Ended { group, why, .. } => {
                let view = &mut self.groups[*group];
                view.ended = Some(view.began.map_or(Duration::ZERO, |began| began.elapsed()));
                view.note = why.clone().unwrap_or_default();
            }
            News::Downgraded { .. } | News::Tuned { .. } | News::Stopping { .. } => {}
        }
    }

    fn line(&self, news: &News) -> String {
        let id = |place: &usize| table::plain(self.plan.id(*place));
        match news {
            News::Waits { group, why } => format!("{}: waits, {}", id(group), table::plain(why)),
            News::Began { group, .. } => format!("{}: began", id(group)),
            News::Agent { group, agent, run } => {
                format!("{}: {} {}", id(group), table::plain(agent), run.status)
            }
            News::Ended { group, standing, why } => {
                let why = why.as_ref().map_or_else(String::new, |why| format!(", {}", table::plain(why)));
                format!("{}: {}{why}", id(group), word(*standing))
            }
            News::Downgraded { rule, what, why } => {
                format!("rule {}: {}, because {}", table::plain(rule), table::plain(what), table::plain(why))
            }
            News::Tuned { slots } => format!("tuned: {slots} groups at a time"),
            News::Stopping { why } => format!("ending everything: {}", table::plain(why)),
        }
    }

    fn draw(&mut self, standings: &[GroupState]) {
        let mut stderr = std::io::stderr().lock();
        let size = Size::of(&stderr);
        let columns = size.map_or(80, |size| size.columns);
        // What has scrolled out of sight cannot be drawn again: those that are over or wait are left out first.
        let rows = size.map_or(24, |size| size.rows).saturating_sub(2).max(1);
        let mut shown: Vec<usize> = (0..self.groups.len()).collect();
        shown.sort_by_key(|place| standings.get(*place) != Some(&GroupState::Running));
        shown.truncate(rows);
        shown.sort_unstable();
        let hidden = self.groups.len() - shown.len();
        let width =
            (0..self.groups.len()).map(|place| self.plan.id(place).chars().count()).max().unwrap_or(0);
        let mut text = String::new();
        if self.drawn > 0 {
            text.push_str(&format!("\x1b[{}A", self.drawn));
        }
        for place in &shown {
            let line = self.bar(*place, &self.groups[*place], standings, width);
            text.push_str(&format!("\r\x1b[K{}\n", table::cut(&line, columns)));
        }
        if hidden > 0 {
            text.push_str(&format!("\r\x1b[Kand {hidden} more\n"));
        }
        self.drawn = shown.len() + usize::from(hidden > 0);
        // Talk that cannot be printed is not worth failing for.
        let _ = stderr.write_all(text.as_bytes()).and_then(|()| stderr.flush());
    }

    fn bar(&self, place: usize, view: &View, standings: &[GroupState], width: usize) -> String {
        let standing = standings.get(place).copied().unwrap_or(GroupState::Waiting);
        let elapsed = view.ended.or_else(|| view.began.map(|began| began.elapsed()));
        let estimate = self.plan.estimates[place].max(Duration::from_millis(1));
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
        let agents = self.plan.groups[place].agents.len().max(1);
        let note = if view.note.is_empty() { self.waits(place, standings) } else { view.note.clone() };
        let time = elapsed.map_or_else(String::new, format_span);
        let id = table::plain(self.plan.id(place));
        format!(
            "{id:<width$} [{bar}] {:<8} {}/{agents} {time:>8}  {}",
            word(standing),
            view.agents_done,
            table::plain(&note)
        )
    }

    /// Whom a group waits for that has not begun.
    fn waits(&self, place: usize, standings: &[GroupState]) -> String {
        if standings.get(place) != Some(&GroupState::Waiting) {
            return String::new();
        }
        let bonds = Progress::at(&self.plan.plan, standings).waits_for(place);
        let names: Vec<&str> = bonds.iter().map(|bond| self.plan.id(bond.group)).collect();
        if names.is_empty() { String::new() } else { format!("after {}", names.join(", ")) }
    }
}
