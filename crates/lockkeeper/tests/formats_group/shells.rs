//! The shell functions, in every shell that is installed.

use lockkeeper_testing::{Finished, Signal, is_installed, skip};

use crate::groups::{Groups, held};

/// The shells to test: bash and dash, and zsh where it is installed.
pub fn shells() -> Vec<&'static str> {
    let zsh = is_installed("zsh").then_some("zsh");
    ["bash", "dash"].into_iter().chain(zsh).collect()
}

const PREAMBLE: &str = r#"set -eu
if [ -n "${BASH_VERSION:-}" ]; then eval 'set -o pipefail'; fi
eval "$("$LK" shell-init)"
"#;

/// A script that has the shell functions.
pub fn script(groups: &Groups, shell: &str, body: &str) -> std::process::Command {
    let path = groups.path("script.sh");
    std::fs::write(&path, format!("{PREAMBLE}{body}")).unwrap();
    let mut command = groups.world.command(shell);
    command.arg(path);
    command
}

/// Requirements 95, 96, 97, 98, 99, 145.
#[test]
fn a_script_against_the_documents_functions_runs() {
    let body = r#"
        taken() { ! flock -n "$LOCK_DIR/$1.lock" true; }
        acquire_lock impl-backend 5
        first=$LOCK_FD
        taken impl-backend || exit 10
        try_lock "group with blanks"
        [ "$LOCK_FD" != "$first" ] || exit 11
        taken "group with blanks" || exit 12
        if acquire_lock impl-backend 5; then exit 13; fi
        work() { taken impl-frontend || return 99; echo "worked on $*"; return 7; }
        code=0; execute_with_lock impl-frontend work a "b c" || code=$?
        [ "$code" = 7 ] || exit 14
        taken impl-frontend && exit 15
        execute_with_lock impl-frontend true
        release_lock impl-backend "$first"
        taken impl-backend && exit 16
        release_lock "group with blanks"
        if release_lock impl-backend; then exit 17; fi
        check_deadlock && cleanup_orphan_locks
        (acquire_lock test-unit && taken test-unit && echo "in a subshell")
        taken test-unit && exit 18
        echo done"#;
    for shell in shells() {
        let groups = Groups::new();
        let output = Finished::of(&mut script(&groups, shell, body)).code(0);
        assert_eq!(output.stdout(), "worked on a b c\nin a subshell\ndone\n", "{shell}");
        assert_eq!(groups.statuses("impl-frontend"), ["RELEASED"; 2], "{shell}");
        assert_eq!(groups.statuses("impl-backend"), ["RELEASED"], "{shell}");
    }
}

/// Requirements 100, 112.
#[test]
fn init_lock_system_makes_a_missing_folder_and_registry_again() {
    for shell in shells() {
        let groups = Groups::new();
        let body =
            "init_lock_system\ninit_lock_system\nrm -r \"$LOCK_DIR\"\ninit_lock_system\nls \"$LOCK_DIR\"\n";
        let output = Finished::of(&mut script(&groups, shell, body)).code(0);
        assert_eq!(output.stdout(), "registry.log\n", "{shell}");
        assert!(
            groups.registry().starts_with("# Format: lock_id:pid:group_id:timestamp:status\n"),
            "{shell}"
        );
    }
}

/// Requirements 98, 105, 113.
#[test]
fn a_wait_in_vain_returns_to_the_script() {
    for shell in shells() {
        let groups = Groups::new();
        let holder = groups.hold("g");
        let body = r#"
            code=0; acquire_lock g 0.1 || code=$?; echo "acquire $code"
            code=0; try_lock g || code=$?; echo "try $code"
            code=0; execute_with_lock g echo ran || code=$?; echo "execute $code""#;
        let output = Finished::of(script(&groups, shell, body).env("LOCK_TIMEOUT", "0.1"));
        assert_eq!(output.stdout(), "acquire 75\ntry 75\nexecute 75\n", "{shell}: {output:?}");
        holder.finish().code(0);
    }
}

/// Requirement 109.
#[test]
fn the_end_of_a_script_releases_and_keeps_its_own_trap_and_code() {
    for shell in shells() {
        let groups = Groups::new();
        let body = "trap 'echo \"bye $?\"' EXIT\nacquire_lock a\nacquire_lock b\n(exit 0)\nexit 5";
        let output = Finished::of(&mut script(&groups, shell, body));
        assert_eq!(output.code(5).stdout(), "bye 5\n", "{shell}");
        assert_eq!(
            (groups.statuses("a"), groups.statuses("b")),
            (vec!["RELEASED".into()], vec!["RELEASED".into()]),
            "{shell}"
        );
        let output = Finished::of(&mut script(&groups, shell, "acquire_lock c\nfalse\necho unreached"));
        assert_eq!(output.code(1).stdout(), "", "{shell}");
        assert_eq!(groups.statuses("c"), ["RELEASED"], "{shell}");
    }
}

/// Requirement 109.
#[test]
fn int_and_term_release_and_end_the_script() {
    for shell in shells() {
        for signal in [Signal::TERM, Signal::INT] {
            let groups = Groups::new();
            let mut holder = held(&mut script(&groups, shell, "acquire_lock g\necho held\nread line"));
            holder.signal(signal);
            holder.end();
            holder.wait().shell_code(128 + signal.as_raw());
            assert_eq!(groups.statuses("g"), ["RELEASED"], "{shell} {signal:?}");
            assert!(groups.flock_is_free("g"));
        }
    }
}

/// Requirement 109.
#[test]
fn a_subshell_does_not_give_back_what_its_parent_holds() {
    for shell in shells() {
        let groups = Groups::new();
        let body = r#"
            acquire_lock g
            (echo "in a subshell"; exit 3) || :
            (acquire_lock other; exit 0)
            flock -n "$LOCK_DIR/g.lock" true && exit 10
            echo held"#;
        let output = Finished::of(&mut script(&groups, shell, body));
        assert_eq!(output.stdout(), "in a subshell\nheld\n", "{shell}: {output:?}");
        assert_eq!(groups.statuses("g"), ["RELEASED"], "{shell}");
    }
}

/// Requirement 136.
#[test]
fn kept_as_mutex_lock_it_is_a_command_too() {
    for shell in shells() {
        let groups = Groups::new();
        let path = groups.path("mutex_lock.sh");
        std::fs::write(&path, groups.world.run(["shell-init"]).code(0).bytes()).unwrap();
        let holder = groups.hold("g");
        let run = |argument: &str| Finished::of(groups.world.command(shell).arg(&path).arg(argument));
        run("status").code(0).prints("locked");
        run("check-deadlock").code(0);
        run("cleanup").code(0);
        run("force-release-all").code(2);
        holder.finish().code(0);
    }
}

#[test]
fn the_script_is_clean_by_shellcheck() {
    if !is_installed("shellcheck") {
        return skip("shellcheck");
    }
    let groups = Groups::new();
    let path = groups.path("init.sh");
    std::fs::write(&path, groups.world.run(["shell-init"]).code(0).bytes()).unwrap();
    for shell in ["sh", "bash", "dash"] {
        Finished::of(groups.world.command("shellcheck").args(["-s", shell]).arg(&path)).code(0);
    }
}
