//! User interface texts, in English, Japanese and Chinese.

mod en;
mod ja;
mod zh;

use lockkeeper_engine::messages::Language;
use lockkeeper_stages::picture::Labels;

/// All texts of the pages.
pub(super) struct Texts {
    /// Link that skips the navigation.
    pub(super) skip: &'static str,
    /// Label of the navigation.
    pub(super) pages: &'static str,
    /// Before the key that opens a tab.
    pub(super) key: &'static str,
    /// The page of locks.
    pub(super) locks: &'static str,
    /// Label of the choice.
    pub(super) language: &'static str,
    /// Label of the choice.
    pub(super) theme: &'static str,
    /// Theme of the system.
    pub(super) theme_auto: &'static str,
    /// Light theme.
    pub(super) theme_light: &'static str,
    /// Dark theme.
    pub(super) theme_dark: &'static str,
    /// Shown while the event stream is open.
    pub(super) live_on: &'static str,
    /// Shown while the event stream is closed.
    pub(super) live_off: &'static str,
    /// Button that confirms.
    pub(super) yes: &'static str,
    /// Button that rejects.
    pub(super) no: &'static str,
    /// Shown after a successful action.
    pub(super) done: &'static str,
    /// Number of leases.
    pub(super) held: &'static str,
    /// Number of tickets.
    pub(super) waiting: &'static str,
    /// The longest wait.
    pub(super) longest_wait: &'static str,
    /// Number of leases whose holders are dead.
    pub(super) orphans: &'static str,
    /// Heading.
    pub(super) holders: &'static str,
    /// Heading.
    pub(super) waiters: &'static str,
    /// Empty page.
    pub(super) nothing_held: &'static str,
    /// First step for a new user.
    pub(super) nothing_held_do: &'static str,
    /// Empty list.
    pub(super) nobody_waits: &'static str,
    /// Column heading.
    pub(super) lease: &'static str,
    /// Before the fencing token.
    pub(super) token: &'static str,
    /// Column heading.
    pub(super) owner: &'static str,
    /// Column heading.
    pub(super) holds: &'static str,
    /// Column heading.
    pub(super) wants: &'static str,
    /// Column heading.
    pub(super) state: &'static str,
    /// Column heading.
    pub(super) since: &'static str,
    /// Column heading.
    pub(super) heartbeat: &'static str,
    /// Column heading.
    pub(super) ends_in: &'static str,
    /// Column heading.
    pub(super) process: &'static str,
    /// Column heading.
    pub(super) action: &'static str,
    /// Button that breaks a lease.
    pub(super) break_: &'static str,
    /// Question; the owner follows.
    pub(super) break_confirm: &'static str,
    /// Column heading.
    pub(super) ticket: &'static str,
    /// Column heading.
    pub(super) position: &'static str,
    /// Column heading.
    pub(super) why: &'static str,
    /// Starts a reason; the resource follows.
    pub(super) waits_for: &'static str,
    /// Continues the reason; the owner follows.
    pub(super) held_by: &'static str,
    /// Continues the reason; a path follows.
    pub(super) both_match: &'static str,
    /// Continues the reason; an owner follows.
    pub(super) behind: &'static str,
    /// Before the number of entries that are not shown.
    pub(super) more: &'static str,
    /// Heading.
    pub(super) graph: &'static str,
    /// Explains the arrows.
    pub(super) graph_hint: &'static str,
    /// Alert.
    pub(super) alert_wait: &'static str,
    /// Alert.
    pub(super) alert_deadlock: &'static str,
    /// Alert.
    pub(super) alert_orphans: &'static str,
    /// Before an alert.
    pub(super) alert: &'static str,
    /// State of a holder.
    pub(super) alive: &'static str,
    /// State of a holder.
    pub(super) unknown: &'static str,
    /// State of a holder.
    pub(super) dead: &'static str,
    /// State of a holder.
    pub(super) expired: &'static str,
    /// State of a holder.
    pub(super) overdue: &'static str,
    /// Heading and button.
    pub(super) login: &'static str,
    /// Button.
    pub(super) logout: &'static str,
    /// Label of the field.
    pub(super) token_label: &'static str,
    /// Column heading.
    pub(super) parameter: &'static str,
    /// Column heading.
    pub(super) place: &'static str,
    /// Column heading.
    pub(super) meaning: &'static str,
    /// Heading.
    pub(super) body: &'static str,
    /// Heading.
    pub(super) answers: &'static str,
    /// Before a duration.
    pub(super) for_span: &'static str,
    /// Before the age of the last heartbeat.
    pub(super) heartbeat_of: &'static str,
    /// After the age of an event.
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
    /// Column heading.
    pub(super) request: &'static str,
    /// Column heading.
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
    /// First step for a new user.
    pub(super) no_requests_do: &'static str,
    /// Empty page.
    pub(super) no_runs: &'static str,
    /// Status.
    pub(super) queued: &'static str,
    /// Status.
    pub(super) running: &'static str,
    /// Status.
    pub(super) done_status: &'static str,
    /// Status.
    pub(super) needs_input: &'static str,
    /// Status.
    pub(super) failed: &'static str,
    /// Status.
    pub(super) canceled: &'static str,
    /// Status.
    pub(super) cancelling: &'static str,
    /// Status.
    pub(super) succeeded: &'static str,
    /// Status.
    pub(super) timed_out: &'static str,
    /// Status.
    pub(super) rejected: &'static str,
    /// Explains LOCKED.
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
    /// Question before a start that ignores dependencies.
    pub(super) run_anyway: &'static str,
    /// Button.
    pub(super) stop: &'static str,
    /// Banner.
    pub(super) queue_running: &'static str,
    /// Continues the banner.
    pub(super) queue_stopping: &'static str,
    /// Another worker executes the queue.
    pub(super) queue_busy: &'static str,
    /// Before a count.
    pub(super) runs_so_far: &'static str,
    /// Before other requests.
    pub(super) comes_after: &'static str,
    /// Why it waits.
    pub(super) next_attempt: &'static str,
    /// Why it waits.
    pub(super) no_worker: &'static str,
    /// Nobody looks after it.
    pub(super) unattended: &'static str,
    /// Nobody looks after it, and nothing can be said about it.
    pub(super) out_of_reach: &'static str,
    /// Its processes are being ended.
    pub(super) time_is_up: &'static str,
    /// Label.
    pub(super) command: &'static str,
    /// Label.
    pub(super) folder: &'static str,
    /// Label.
    pub(super) queued_ago: &'static str,
    /// Label.
    pub(super) started_ago: &'static str,
    /// Label.
    pub(super) ended_ago: &'static str,
    /// Column heading.
    pub(super) took: &'static str,
    /// Label.
    pub(super) attempt: &'static str,
    /// Label.
    pub(super) worker: &'static str,
    /// Label.
    pub(super) lock_holder: &'static str,
    /// Label.
    pub(super) exit_code: &'static str,
    /// Button.
    pub(super) full_pass: &'static str,
    /// Question.
    pub(super) full_confirm: &'static str,
    /// Column heading.
    pub(super) check: &'static str,
    /// Column heading.
    pub(super) found: &'static str,
    /// Before what to do.
    pub(super) fix: &'static str,
    /// The page of stages.
    pub(super) stages: &'static str,
    /// Heading.
    pub(super) executions: &'static str,
    /// Column heading.
    pub(super) phase: &'static str,
    /// Column heading.
    pub(super) mode: &'static str,
    /// Column heading.
    pub(super) group: &'static str,
    /// Heading and column.
    pub(super) groups: &'static str,
    /// Label.
    pub(super) file: &'static str,
    /// Label.
    pub(super) speed_up: &'static str,
    /// Before the duration one by one.
    pub(super) one_by_one: &'static str,
    /// Before the time spent waiting for leases.
    pub(super) waited: &'static str,
    /// Heading.
    pub(super) conflicts: &'static str,
    /// Column heading.
    pub(super) number: &'static str,
    /// Column heading.
    pub(super) kind: &'static str,
    /// Column heading.
    pub(super) witness: &'static str,
    /// Column heading.
    pub(super) rule: &'static str,
    /// Shown when no rule applied.
    pub(super) no_rule: &'static str,
    /// Column heading.
    pub(super) severity: &'static str,
    /// Column heading.
    pub(super) measure: &'static str,
    /// Groups that share a folder.
    pub(super) same_dir: &'static str,
    /// Note for groups that only share a folder.
    pub(super) advice: &'static str,
    /// Heading.
    pub(super) conflict_graph: &'static str,
    /// Explains the drawing.
    pub(super) conflict_graph_hint: &'static str,
    /// No conflicts.
    pub(super) no_conflicts: &'static str,
    /// Heading.
    pub(super) over_time: &'static str,
    /// Label while something runs.
    pub(super) not_over: &'static str,
    /// Empty page.
    pub(super) no_executions: &'static str,
    /// First step for a new user.
    pub(super) no_executions_do: &'static str,
    /// Heading and link.
    pub(super) plan: &'static str,
    /// Heading.
    pub(super) plans: &'static str,
    /// Explains the links.
    pub(super) plans_hint: &'static str,
    /// Shown when the plan was not kept.
    pub(super) plan_lost: &'static str,
    /// Heading.
    pub(super) downgrades: &'static str,
    /// Status.
    pub(super) not_begun: &'static str,
    /// Status.
    pub(super) waits: &'static str,
    /// Status.
    pub(super) skipped: &'static str,
    /// Status.
    pub(super) interrupted: &'static str,
    /// Before the reason for an early end.
    pub(super) stopped_by: &'static str,
    /// Heading.
    pub(super) open_requests: &'static str,
    /// Explains the drawing.
    pub(super) open_requests_hint: &'static str,
    /// Texts in drawings.
    pub(super) drawing: Labels,
    /// Button and heading.
    pub(super) filter: &'static str,
    /// Option for any status.
    pub(super) any_state: &'static str,
    /// Field.
    pub(super) text: &'static str,
    /// Link that removes the filter.
    pub(super) show_all: &'static str,
    /// Before the number of matches.
    pub(super) matching: &'static str,
    /// Empty list.
    pub(super) nothing_matches: &'static str,
    /// Button.
    pub(super) cancel_matching: &'static str,
    /// Question; `{n}` is the number of requests.
    pub(super) cancel_matching_confirm: &'static str,
    /// Button.
    pub(super) retry_matching: &'static str,
    /// Question; `{n}` is the number of requests.
    pub(super) retry_matching_confirm: &'static str,
    /// Shown when no match can be changed.
    pub(super) bulk_none: &'static str,
    /// Result; `{n}` were changed, `{m}` were not.
    pub(super) bulk_done: &'static str,
    /// Button.
    pub(super) log_begin: &'static str,
    /// Button.
    pub(super) log_end: &'static str,
}

impl Texts {
    /// The texts of a language.
    pub(super) const fn of(language: Language) -> &'static Self {
        match language {
            Language::En => &en::EN,
            Language::Ja => &ja::JA,
            Language::Zh => &zh::ZH,
        }
    }
}
