//! Scripts that hold a lock, and get signals while the command runs that the lock protects.

use std::time::Duration;

use lockkeeper_testing::{Dice, Finished, Signal, Started, until};

use crate::groups::{Groups, held};
use crate::shells::{script, shells};

/// A command that says whether flock(1) gets the lock beside it.
const PROTECTED: &str =
    r#"sh -c 'echo held; read line; flock -n "$LOCK_DIR/g.lock" true && echo overlap; echo checked'"#;

/// How scripts give a lock back: by the trap of the library, or by the trap that the document shows.
const FORMS: [&str; 2] = ["", "trap 'release_lock g' EXIT INT TERM"];

const SIGNALS: [Signal; 4] = [Signal::TERM, Signal::HUP, Signal::INT, Signal::KILL];

/// Whether this signal ends the shell before its command ends. Shells run the traps of other signals afterwards.
fn ends_at_once(shell: &str, form: &str, signal: Signal) -> bool {
    match signal {
        Signal::KILL | Signal::HUP => true,
        Signal::TERM => shell == "bash" && form.is_empty(),
        _ => false,
    }
}

/// Requirements 104, 109, 110. Invariant 10.
#[test]
fn a_signal_does_not_free_the_lock_while_the_protected_command_runs() {
    for shell in shells() {
        for form in FORMS {
            for signal in SIGNALS {
                let groups = Groups::new();
                let body = format!("acquire_lock g\n{form}\n{PROTECTED}\n");
                let mut holder = held(&mut script(&groups, shell, &body));
                holder.signal(signal);
                if ends_at_once(shell, form, signal) {
                    holder.end();
                }
                let output = holder.finish();
                assert_eq!(output.stdout(), "checked\n", "{shell} {form:?} {signal:?}: {output:?}");
                until("the lock is free after the command", || groups.flock_is_free("g"));
                groups.run(&["cleanup"]).code(0);
                let statuses = groups.statuses("g");
                assert!(
                    statuses == ["RELEASED"] || statuses == ["ORPHAN_CLEANED"],
                    "{shell} {form:?} {signal:?}: {statuses:?}"
                );
            }
        }
    }
}

/// Requirement 96.
#[test]
fn what_a_script_left_in_the_background_keeps_the_lock_and_is_named() {
    for shell in shells() {
        let groups = Groups::new();
        let body = "exec 3<&0\nacquire_lock g\nsh -c 'read line' <&3 &\nrelease_lock g\necho held\nwait\n";
        let mut holder = held(&mut script(&groups, shell, body));
        assert!(!groups.flock_is_free("g"), "{shell}");
        holder.until_stderr("group g stays locked until process");
        holder.finish().code(0);
        assert!(groups.flock_is_free("g"), "{shell}");
    }
}

/// Requirement 132.
#[test]
fn a_monitor_that_a_holder_starts_does_not_keep_the_lock() {
    for shell in shells() {
        let groups = Groups::new();
        let body = "acquire_lock g\nstart_deadlock_monitor >&2\nrelease_lock g\nflock -n \"$LOCK_DIR/g.lock\" echo free\n";
        let output = Finished::of(&mut script(&groups, shell, body));
        groups.run(&["monitor", "stop"]).code(0);
        assert_eq!(output.stdout(), "free\n", "{shell}: {output:?}");
        assert_eq!(groups.statuses("g"), ["RELEASED"], "{shell}");
    }
}

/// Requirements 104, 109, 110. Invariant 10.
#[test]
fn a_storm_of_signals_lets_nobody_in_beside_a_live_command() {
    const SCRIPTS: u64 = 6;
    let body = r#"
        execute_with_lock g sh -c 'mkdir busy || touch overlap; echo held; sleep 0.02; rmdir busy'
        execute_with_lock g sh -c 'mkdir busy || touch overlap; sleep 0.01; rmdir busy'"#;
    let dice = Dice::from_environment();
    for shell in shells() {
        let groups = Groups::new();
        // All scripts are the same file.
        drop(script(&groups, shell, body));
        std::thread::scope(|scope| {
            for number in 0..SCRIPTS {
                let (groups, mut dice) = (&groups, Dice::new(dice.seed() + number));
                scope.spawn(move || {
                    for signal in [Signal::TERM, Signal::HUP, Signal::INT, Signal::KILL, Signal::STOP] {
                        let mut command = groups.world.command(shell);
                        let mut holder = Started::of(command.arg(groups.path("script.sh")));
                        if dice.below(4) > 0 {
                            holder.line();
                        }
                        std::thread::sleep(Duration::from_millis(dice.below(40)));
                        if !holder.has_ended() {
                            holder.signal(signal);
                        }
                        if signal == Signal::STOP && !holder.has_ended() {
                            std::thread::sleep(Duration::from_millis(dice.below(60)));
                            holder.signal(Signal::CONT);
                        }
                        drop(holder.wait());
                    }
                });
            }
        });
        until("the last command is gone", || groups.flock_is_free("g"));
        assert!(!groups.path("overlap").exists(), "{shell}");
        assert!(!groups.path("busy").exists(), "{shell}");
        groups.run(&["cleanup"]).code(0);
        let statuses = groups.statuses("g");
        assert!(!statuses.iter().any(|status| status == "ACTIVE"), "{shell}: {statuses:?}");
    }
}
