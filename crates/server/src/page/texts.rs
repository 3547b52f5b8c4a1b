//! User interface texts, in English, Japanese and Chinese.

mod en;
mod fill;
mod ja;
mod zh;

use lockkeeper_engine::messages::Language;
use lockkeeper_stages::picture::Labels;

pub(super) use fill::{fill, pieces};

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
    pub(super) language: &'static str,
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
    pub(super) holders: &'static str,
    pub(super) waiters: &'static str,
    pub(super) nothing_held: &'static str,
    /// First step for a new user.
    pub(super) nothing_held_do: &'static str,
    pub(super) nobody_waits: &'static str,
    pub(super) lease: &'static str,
    /// Before the fencing token.
    pub(super) token: &'static str,
    pub(super) owner: &'static str,
    pub(super) holds: &'static str,
    pub(super) wants: &'static str,
    pub(super) state: &'static str,
    pub(super) since: &'static str,
    pub(super) heartbeat: &'static str,
    pub(super) ends_in: &'static str,
    pub(super) process: &'static str,
    pub(super) action: &'static str,
    /// Button that breaks a lease.
    pub(super) break_: &'static str,
    pub(super) ticket: &'static str,
    pub(super) position: &'static str,
    pub(super) why: &'static str,
    /// Starts a reason; the resource follows.
    pub(super) waits_for: &'static str,
    /// Continues the reason; a path follows.
    pub(super) held_by: &'static str,
    pub(super) both_match: &'static str,
    /// Continues the reason; an owner follows.
    pub(super) behind: &'static str,
    /// Before the number of entries that are not shown.
    pub(super) more: &'static str,
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
    pub(super) parameter: &'static str,
    pub(super) place: &'static str,
    pub(super) meaning: &'static str,
    pub(super) body: &'static str,
    pub(super) answers: &'static str,
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
    pub(super) requests: &'static str,
    pub(super) request: &'static str,
    pub(super) run: &'static str,
    pub(super) runs: &'static str,
    pub(super) events: &'static str,
    pub(super) timeline: &'static str,
    pub(super) output: &'static str,
    /// Empty output.
    pub(super) no_output: &'static str,
    pub(super) no_requests: &'static str,
    /// First step for a new user.
    pub(super) no_requests_do: &'static str,
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
    /// Question before a start that ignores dependencies.
    pub(super) run_anyway: &'static str,
    /// Button.
    pub(super) stop: &'static str,
    /// Banner.
    pub(super) queue_running: &'static str,
    pub(super) queue_elsewhere: &'static str,
    /// Continues the banner.
    pub(super) queue_stopping: &'static str,
    /// Begins the notice after the queue has stopped.
    pub(super) queue_stopped: &'static str,
    pub(super) foreign_locks: &'static str,
    pub(super) format: &'static str,
    /// Another worker executes the queue.
    pub(super) queue_busy: &'static str,
    /// Before a count.
    pub(super) runs_so_far: &'static str,
    /// Before other requests.
    pub(super) comes_after: &'static str,
    /// Why it waits.
    pub(super) no_worker: &'static str,
    pub(super) no_worker_with: &'static str,
    /// Nobody looks after it.
    pub(super) unattended: &'static str,
    /// Nobody looks after it, and nothing can be said about it.
    pub(super) out_of_reach: &'static str,
    /// Nobody looks after it, and its command belongs to another user. With `{user}`.
    pub(super) of_another_user: &'static str,
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
    pub(super) check: &'static str,
    pub(super) found: &'static str,
    /// Before what to do.
    pub(super) fix: &'static str,
    /// The page of stages.
    pub(super) stages: &'static str,
    pub(super) executions: &'static str,
    pub(super) phase: &'static str,
    pub(super) mode: &'static str,
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
    pub(super) conflicts: &'static str,
    pub(super) number: &'static str,
    pub(super) kind: &'static str,
    pub(super) witness: &'static str,
    pub(super) rule: &'static str,
    /// Shown when no rule applied.
    pub(super) no_rule: &'static str,
    pub(super) severity: &'static str,
    pub(super) measure: &'static str,
    /// Groups that share a folder.
    pub(super) same_dir: &'static str,
    /// Note for groups that only share a folder.
    pub(super) advice: &'static str,
    pub(super) conflict_graph: &'static str,
    /// Explains the drawing.
    pub(super) conflict_graph_hint: &'static str,
    /// No conflicts.
    pub(super) no_conflicts: &'static str,
    pub(super) over_time: &'static str,
    /// Label while something runs.
    pub(super) not_over: &'static str,
    pub(super) no_executions: &'static str,
    /// First step for a new user.
    pub(super) no_executions_do: &'static str,
    /// Heading and link.
    pub(super) plan: &'static str,
    pub(super) plans: &'static str,
    /// Explains the links.
    pub(super) plans_hint: &'static str,
    /// Shown when the plan was not kept.
    pub(super) plan_lost: &'static str,
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
    /// The page of coding agents.
    pub(super) agents: &'static str,
    pub(super) agent: &'static str,
    /// State of an agent.
    pub(super) agent_works: &'static str,
    /// State of an agent.
    pub(super) agent_waits: &'static str,
    /// State of an agent.
    pub(super) agent_rests: &'static str,
    /// Before the time since an agent was last seen.
    pub(super) last_seen: &'static str,
    /// Column heading: what an agent says that it does.
    pub(super) note: &'static str,
    /// Column heading: the files of an agent.
    pub(super) works_on: &'static str,
    /// Column heading: the files that an agent was denied.
    pub(super) denied: &'static str,
    /// Column heading: who has a file.
    pub(super) has_it: &'static str,
    /// Column heading: who waits for a file.
    pub(super) wants_it: &'static str,
    /// Before the last incident.
    pub(super) incident: &'static str,
    /// Before the last hook call that failed.
    pub(super) failed_open: &'static str,
    pub(super) no_agents: &'static str,
    /// First step for a new user.
    pub(super) no_agents_do: &'static str,
    pub(super) no_part: &'static str,
    /// First step for a new user.
    pub(super) no_part_do: &'static str,
    /// Sentence: `{resource}`, `{owner}`, `{span}`.
    pub(super) why_held: &'static str,
    /// Sentence: `{requests}`.
    pub(super) why_after: &'static str,
    /// Why a request waits in vain: requests before it failed.
    pub(super) why_never: &'static str,
    /// Sentence: `{span}`.
    pub(super) why_retry: &'static str,
    pub(super) why_next: &'static str,
    /// Sentence: `{n}`.
    pub(super) why_place: &'static str,
    /// Sentence: `{n}`.
    pub(super) why_place_or_more: &'static str,
    /// Sentence: `{code}`.
    pub(super) why_exit: &'static str,
    /// Sentence: `{signal}`.
    pub(super) why_signal: &'static str,
    pub(super) why_not_started: &'static str,
    pub(super) why_needs_input: &'static str,
    pub(super) why_queue_timeout: &'static str,
    pub(super) why_timeout: &'static str,
    pub(super) why_canceled: &'static str,
    pub(super) why_lost: &'static str,
    pub(super) why_silent: &'static str,
    pub(super) why_lease_lost: &'static str,
    pub(super) why_queue_full: &'static str,
    pub(super) why_duplicate: &'static str,
    pub(super) why_conflict: &'static str,
    pub(super) why_marked: &'static str,
    /// Sentence: `{reason}`, `{line}`.
    pub(super) last_output: &'static str,
    /// Sentence: `{n}`.
    pub(super) waits_behind: &'static str,
    /// Sentence: `{n}`, `{most}`.
    pub(super) attempt_of: &'static str,
    /// Sentence: `{pid}`.
    pub(super) process_alive: &'static str,
    /// What is known of a run.
    pub(super) worker_alive: &'static str,
    pub(super) needs_person: &'static str,
    pub(super) nothing_needs_person: &'static str,
    pub(super) waiting_for_lock: &'static str,
    /// After the number of queued requests.
    pub(super) next_first: &'static str,
    /// Sentence: `{n}`.
    pub(super) all_of_them: &'static str,
    pub(super) who_waits_link: &'static str,
    /// Link to the output.
    pub(super) log: &'static str,
    pub(super) workers: &'static str,
    /// Empty list: `lockkeeper work` is a command.
    pub(super) no_workers: &'static str,
    /// The page of machines.
    pub(super) hosts: &'static str,
    /// Heading: a machine.
    pub(super) host: &'static str,
    /// Heading: how many runs the workers of a machine execute at once.
    pub(super) job_slots: &'static str,
    /// Heading: when a machine was last heard of.
    pub(super) last_heard: &'static str,
    /// Column heading: how many runs a worker executes, of how many.
    pub(super) jobs: &'static str,
    pub(super) ended_lately: &'static str,
    /// Sentence: `{n}`, `{m}`.
    pub(super) ended_words: &'static str,
    pub(super) median_wait: &'static str,
    /// Sentence: `{now}`, `{most}`.
    pub(super) wait_words: &'static str,
    pub(super) new_request: &'static str,
    pub(super) new_request_title: &'static str,
    pub(super) field_title: &'static str,
    pub(super) field_command: &'static str,
    pub(super) field_locks: &'static str,
    pub(super) field_paths: &'static str,
    pub(super) field_priority: &'static str,
    pub(super) field_after: &'static str,
    pub(super) submit: &'static str,
    /// Shown after a request was added.
    pub(super) submitted: &'static str,
    /// Button that closes a dialog.
    pub(super) close: &'static str,
    pub(super) answer: &'static str,
    /// Heading of a dialog: `{title}`.
    pub(super) answer_title: &'static str,
    /// What an answer does.
    pub(super) answer_means: &'static str,
    pub(super) answer_field: &'static str,
    pub(super) answer_send: &'static str,
    /// Button of a dialog that changes nothing.
    pub(super) keep_running: &'static str,
    /// Button of a dialog that changes nothing.
    pub(super) keep_waiting: &'static str,
    /// Button of a dialog.
    pub(super) cancel_yes: &'static str,
    /// Question: `{title}`.
    pub(super) cancel_title: &'static str,
    pub(super) cancel_running_means: &'static str,
    pub(super) cancel_queued_means: &'static str,
    /// Question: `{resource}`.
    pub(super) break_title: &'static str,
    /// Sentence: `{owner}`.
    pub(super) break_told: &'static str,
    /// Sentence: `{owner}`, `{pid}`.
    pub(super) break_untold: &'static str,
    /// Sentence: `{owner}`.
    pub(super) break_no_process: &'static str,
    /// Sentence: `{owner}`.
    pub(super) break_unseen: &'static str,
    /// Sentence: `{owner}`.
    pub(super) break_gone: &'static str,
    /// Sentence: `{owner}`.
    pub(super) break_time_up: &'static str,
    /// Sentence: `{owner}`.
    pub(super) break_next: &'static str,
    pub(super) break_do: &'static str,
    /// Button of a dialog that changes nothing.
    pub(super) break_keep: &'static str,
    pub(super) notify_on: &'static str,
    pub(super) notify_off: &'static str,
    /// Notification: `{n}`.
    pub(super) notify_text: &'static str,
    pub(super) sort: &'static str,
    pub(super) sort_newest: &'static str,
    pub(super) sort_oldest: &'static str,
    pub(super) sort_title: &'static str,
    pub(super) sort_longest: &'static str,
    /// Sentence: `{n}`, `{all}`.
    pub(super) page_of: &'static str,
    /// Sentence: `{n}`.
    pub(super) latest_only: &'static str,
    /// The kinds of events, in the order of `EventKind::ALL`.
    pub(super) event_kinds: [&'static str; 10],
    pub(super) earlier_page: &'static str,
    pub(super) later_page: &'static str,
    /// Link from a lease to its run.
    pub(super) held_by_run: &'static str,
    /// What is known of a holder.
    pub(super) process_seen: &'static str,
    /// What is known of a holder: `{span}`.
    pub(super) no_process: &'static str,
    /// What is known of a holder: `{span}`.
    pub(super) not_visible: &'static str,
    /// What is known of a holder: `{span}`.
    pub(super) heard: &'static str,
    /// What is known of a holder.
    pub(super) process_ended: &'static str,
    /// Status of a ticket.
    pub(super) gone: &'static str,
    /// What happens to a ticket that is gone.
    pub(super) gone_means: &'static str,
    /// Link from an alert to its page.
    pub(super) show_it: &'static str,
    /// Heading of a dialog without a name.
    pub(super) sure: &'static str,
    /// Button of a dialog that changes nothing.
    pub(super) keep_them: &'static str,
    pub(super) cancel_matching_yes: &'static str,
    pub(super) retry_matching_yes: &'static str,
    /// Shown after a text was copied.
    pub(super) copied: &'static str,
    /// Shown when a text could not be copied.
    pub(super) not_copied: &'static str,
    pub(super) attempts: &'static str,
    /// Column heading: how long a run waited before an attempt.
    pub(super) waited_before: &'static str,
    /// In the row of the attempt whose output is shown.
    pub(super) shown_below: &'static str,
    /// Label: who waits for a lease of the run.
    pub(super) behind_it: &'static str,
    pub(super) copy: &'static str,
    pub(super) search: &'static str,
    pub(super) previous_match: &'static str,
    pub(super) next_match: &'static str,
    /// Shown when a text was not found.
    pub(super) no_match: &'static str,
    pub(super) download: &'static str,
    /// Where output was cut: `{n}`.
    pub(super) cut_out: &'static str,
    /// Button that changes a value.
    pub(super) change: &'static str,
    /// What the button `run_again` does.
    pub(super) run_again_means: &'static str,
    /// What the button `queue_again` does.
    pub(super) queue_again_means: &'static str,
    /// What the button `run_now` does.
    pub(super) run_now_means: &'static str,
    /// Label of the pages of a list, for screen readers.
    pub(super) list_pages: &'static str,
    /// Label: the labels that a worker must have.
    pub(super) needs_labels: &'static str,
    /// Column heading: what an agent waits for.
    pub(super) file_or_name: &'static str,
    /// Label of a text that is English in every language; empty in English.
    pub(super) detail: &'static str,
    /// Heading of the calls about the queue.
    pub(super) queue: &'static str,
    /// Heading of the calls about the server itself.
    pub(super) server: &'static str,
    /// Shown where descriptions are English in every language; empty in English.
    pub(super) descriptions_in_english: &'static str,
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

#[cfg(test)]
mod tests;
