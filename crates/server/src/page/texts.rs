//! The texts of the page, in English, Japanese and Chinese.

mod en;
mod ja;
mod zh;

use lockkeeper_engine::messages::Language;
use lockkeeper_stages::picture::Labels;

/// Every word that the page itself says.
pub(super) struct Texts {
    /// Text of the link over the head of the page.
    pub(super) skip: &'static str,
    /// What the tabs are.
    pub(super) pages: &'static str,
    /// Before the letter that opens a tab.
    pub(super) key: &'static str,
    /// The page of locks.
    pub(super) locks: &'static str,
    /// What the choice is about.
    pub(super) language: &'static str,
    /// What the choice is about.
    pub(super) theme: &'static str,
    /// The system's own.
    pub(super) theme_auto: &'static str,
    /// Dark on light.
    pub(super) theme_light: &'static str,
    /// Light on dark.
    pub(super) theme_dark: &'static str,
    /// The stream is open.
    pub(super) live_on: &'static str,
    /// The stream is closed.
    pub(super) live_off: &'static str,
    /// Confirms.
    pub(super) yes: &'static str,
    /// Does not.
    pub(super) no: &'static str,
    /// Something worked.
    pub(super) done: &'static str,
    /// Count of leases.
    pub(super) held: &'static str,
    /// Count of tickets.
    pub(super) waiting: &'static str,
    /// The longest wait.
    pub(super) longest_wait: &'static str,
    /// Count of leases of the dead.
    pub(super) orphans: &'static str,
    /// Heading.
    pub(super) holders: &'static str,
    /// Heading.
    pub(super) waiters: &'static str,
    /// Empty page.
    pub(super) nothing_held: &'static str,
    /// What to do first.
    pub(super) nothing_held_do: &'static str,
    /// Empty list.
    pub(super) nobody_waits: &'static str,
    /// Column.
    pub(super) lease: &'static str,
    /// Before the fencing number.
    pub(super) token: &'static str,
    /// Column.
    pub(super) owner: &'static str,
    /// Column.
    pub(super) holds: &'static str,
    /// Column.
    pub(super) wants: &'static str,
    /// Column.
    pub(super) state: &'static str,
    /// Column.
    pub(super) since: &'static str,
    /// Column.
    pub(super) heartbeat: &'static str,
    /// Column.
    pub(super) ends_in: &'static str,
    /// Column.
    pub(super) process: &'static str,
    /// Column.
    pub(super) action: &'static str,
    /// Button that takes a lease away.
    pub(super) break_: &'static str,
    /// Question; the owner follows.
    pub(super) break_confirm: &'static str,
    /// Column.
    pub(super) ticket: &'static str,
    /// Column.
    pub(super) position: &'static str,
    /// Column.
    pub(super) why: &'static str,
    /// Begins a reason; what is wanted follows.
    pub(super) waits_for: &'static str,
    /// Goes on; the owner follows.
    pub(super) held_by: &'static str,
    /// Goes on; a path follows.
    pub(super) both_match: &'static str,
    /// Goes on; an owner follows.
    pub(super) behind: &'static str,
    /// Before how many are not shown.
    pub(super) more: &'static str,
    /// Heading.
    pub(super) graph: &'static str,
    /// What an arrow means.
    pub(super) graph_hint: &'static str,
    /// Alert.
    pub(super) alert_wait: &'static str,
    /// Alert.
    pub(super) alert_deadlock: &'static str,
    /// Alert.
    pub(super) alert_orphans: &'static str,
    /// Before an alert.
    pub(super) alert: &'static str,
    /// Verdict.
    pub(super) alive: &'static str,
    /// Verdict.
    pub(super) unknown: &'static str,
    /// Verdict.
    pub(super) dead: &'static str,
    /// Verdict.
    pub(super) expired: &'static str,
    /// Verdict.
    pub(super) overdue: &'static str,
    /// Heading and button.
    pub(super) login: &'static str,
    /// Above the field.
    pub(super) token_label: &'static str,
    /// Column.
    pub(super) parameter: &'static str,
    /// Column.
    pub(super) place: &'static str,
    /// Column.
    pub(super) meaning: &'static str,
    /// Heading.
    pub(super) body: &'static str,
    /// Heading.
    pub(super) answers: &'static str,
    /// Before how long something lasts.
    pub(super) for_span: &'static str,
    /// Before how long ago the holder was last heard of.
    pub(super) heartbeat_of: &'static str,
    /// After how long ago something was.
    pub(super) ago: &'static str,
    /// Alert.
    pub(super) alert_downgrades: &'static str,
    /// The board of requests.
    pub(super) board: &'static str,
    /// The page of runs and events.
    pub(super) activity: &'static str,
    /// The page of the doctor.
    pub(super) doctor: &'static str,
    /// Heading.
    pub(super) requests: &'static str,
    /// Column.
    pub(super) request: &'static str,
    /// Column.
    pub(super) run: &'static str,
    /// Heading.
    pub(super) runs: &'static str,
    /// Heading.
    pub(super) events: &'static str,
    /// Heading.
    pub(super) timeline: &'static str,
    /// Heading.
    pub(super) output: &'static str,
    /// Empty output.
    pub(super) no_output: &'static str,
    /// Empty page.
    pub(super) no_requests: &'static str,
    /// What to do first.
    pub(super) no_requests_do: &'static str,
    /// Empty page.
    pub(super) no_runs: &'static str,
    /// State.
    pub(super) queued: &'static str,
    /// State.
    pub(super) running: &'static str,
    /// State.
    pub(super) done_status: &'static str,
    /// State.
    pub(super) needs_input: &'static str,
    /// State.
    pub(super) failed: &'static str,
    /// State.
    pub(super) canceled: &'static str,
    /// State.
    pub(super) cancelling: &'static str,
    /// State.
    pub(super) succeeded: &'static str,
    /// State.
    pub(super) timed_out: &'static str,
    /// State.
    pub(super) rejected: &'static str,
    /// What LOCKED says.
    pub(super) locked_means: &'static str,
    /// Button.
    pub(super) run_next: &'static str,
    /// Button.
    pub(super) auto_run: &'static str,
    /// Button.
    pub(super) run_now: &'static str,
    /// Button.
    pub(super) run_again: &'static str,
    /// Button.
    pub(super) queue_again: &'static str,
    /// Button.
    pub(super) cancel: &'static str,
    /// Question.
    pub(super) cancel_confirm: &'static str,
    /// Button.
    pub(super) stop: &'static str,
    /// Banner.
    pub(super) queue_running: &'static str,
    /// Goes on.
    pub(super) queue_stopping: &'static str,
    /// Somebody else works through the queue.
    pub(super) queue_busy: &'static str,
    /// Before a count.
    pub(super) runs_so_far: &'static str,
    /// Before other requests.
    pub(super) comes_after: &'static str,
    /// Why it waits.
    pub(super) next_attempt: &'static str,
    /// Why it waits.
    pub(super) no_worker: &'static str,
    /// Fact.
    pub(super) command: &'static str,
    /// Fact.
    pub(super) folder: &'static str,
    /// Fact.
    pub(super) queued_ago: &'static str,
    /// Fact.
    pub(super) started_ago: &'static str,
    /// Fact.
    pub(super) ended_ago: &'static str,
    /// Column.
    pub(super) took: &'static str,
    /// Fact.
    pub(super) attempt: &'static str,
    /// Fact.
    pub(super) worker: &'static str,
    /// Fact.
    pub(super) lock_holder: &'static str,
    /// Fact.
    pub(super) exit_code: &'static str,
    /// Button.
    pub(super) full_pass: &'static str,
    /// Question.
    pub(super) full_confirm: &'static str,
    /// Column.
    pub(super) check: &'static str,
    /// Column.
    pub(super) found: &'static str,
    /// Before what to do.
    pub(super) fix: &'static str,
    /// The page of stages.
    pub(super) stages: &'static str,
    /// Heading.
    pub(super) executions: &'static str,
    /// Column.
    pub(super) phase: &'static str,
    /// Column.
    pub(super) mode: &'static str,
    /// Column.
    pub(super) group: &'static str,
    /// Heading and column.
    pub(super) groups: &'static str,
    /// Fact.
    pub(super) file: &'static str,
    /// Fact.
    pub(super) speed_up: &'static str,
    /// Before how long it would have taken otherwise.
    pub(super) one_by_one: &'static str,
    /// Before how long was waited for what others held.
    pub(super) waited: &'static str,
    /// Heading.
    pub(super) conflicts: &'static str,
    /// Column.
    pub(super) number: &'static str,
    /// Column.
    pub(super) kind: &'static str,
    /// Column.
    pub(super) witness: &'static str,
    /// Column.
    pub(super) rule: &'static str,
    /// Where no rule counted.
    pub(super) no_rule: &'static str,
    /// Column.
    pub(super) severity: &'static str,
    /// Column.
    pub(super) measure: &'static str,
    /// Groups that stand in one folder.
    pub(super) same_dir: &'static str,
    /// Where groups merely stand in one folder.
    pub(super) advice: &'static str,
    /// Heading.
    pub(super) conflict_graph: &'static str,
    /// What the drawing means.
    pub(super) conflict_graph_hint: &'static str,
    /// Nothing collides.
    pub(super) no_conflicts: &'static str,
    /// Heading.
    pub(super) over_time: &'static str,
    /// While something runs.
    pub(super) not_over: &'static str,
    /// Empty page.
    pub(super) no_executions: &'static str,
    /// What to do first.
    pub(super) no_executions_do: &'static str,
    /// Heading and link.
    pub(super) plan: &'static str,
    /// Heading.
    pub(super) plans: &'static str,
    /// What the links lead to.
    pub(super) plans_hint: &'static str,
    /// Where nothing is known about it.
    pub(super) plan_lost: &'static str,
    /// Heading.
    pub(super) downgrades: &'static str,
    /// State.
    pub(super) not_begun: &'static str,
    /// State.
    pub(super) waits: &'static str,
    /// State.
    pub(super) skipped: &'static str,
    /// State.
    pub(super) interrupted: &'static str,
    /// Before why it was ended.
    pub(super) stopped_by: &'static str,
    /// Heading.
    pub(super) open_requests: &'static str,
    /// What the drawing means.
    pub(super) open_requests_hint: &'static str,
    /// The texts in drawings.
    pub(super) drawing: Labels,
    /// Button and heading.
    pub(super) filter: &'static str,
    /// No choice of a state.
    pub(super) any_state: &'static str,
    /// Field.
    pub(super) text: &'static str,
    /// Link that takes the filter away.
    pub(super) show_all: &'static str,
    /// Before how many match.
    pub(super) matching: &'static str,
    /// Empty list.
    pub(super) nothing_matches: &'static str,
    /// Button.
    pub(super) cancel_matching: &'static str,
    /// Question; `{n}` is how many.
    pub(super) cancel_matching_confirm: &'static str,
    /// Button.
    pub(super) retry_matching: &'static str,
    /// Question; `{n}` is how many.
    pub(super) retry_matching_confirm: &'static str,
    /// Nothing that matches can be changed.
    pub(super) bulk_none: &'static str,
    /// `{n}` were changed, `{m}` were not.
    pub(super) bulk_done: &'static str,
    /// Button.
    pub(super) log_begin: &'static str,
    /// Button.
    pub(super) log_end: &'static str,
}

impl Texts {
    /// Those of a language.
    pub(super) const fn of(language: Language) -> &'static Self {
        match language {
            Language::En => &en::EN,
            Language::Ja => &ja::JA,
            Language::Zh => &zh::ZH,
        }
    }
}
