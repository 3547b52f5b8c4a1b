//! The shell functions, in every shell that is installed.

use crate::site::{Holder, Site, is_installed, signal, text};

/// bash and dash are always there; zsh if installed.
fn shells() -> Vec<&'static str> {
    ["bash", "dash", "zsh"].into_iter().filter(|shell| is_installed(shell)).collect()
}

const PREAMBLE: &str = r#"set -eu
if [ -n "${BASH_VERSION:-}" ]; then eval 'set -o pipefail'; fi
eval "$("$LK" shell-init)"
"#;

fn script(site: &Site, shell: &str, body: &str) -> std::process::Command {
    let path = site.dir.path().join("script.sh");
    std::fs::write(&path, format!("{PREAMBLE}{body}")).unwrap();
    let mut command = site.command(shell);
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
        let site = Site::new();
        let output = script(&site, shell, body).output().unwrap();
        assert_eq!(output.status.code(), Some(0), "{shell}: {output:?}");
        assert_eq!(text(&output.stdout), "worked on a b c\nin a subshell\ndone\n", "{shell}");
        assert_eq!(site.statuses("impl-frontend"), ["RELEASED"; 2], "{shell}");
        assert_eq!(site.statuses("impl-backend"), ["RELEASED"], "{shell}");
    }
}

/// Requirements 98, 105, 113.
#[test]
fn a_wait_in_vain_returns_to_the_script() {
    for shell in shells() {
        let site = Site::new();
        let holder = site.hold("g");
        let body = r#"
            code=0; acquire_lock g 0.1 || code=$?; echo "acquire $code"
            code=0; try_lock g || code=$?; echo "try $code"
            code=0; execute_with_lock g echo ran || code=$?; echo "execute $code""#;
        let output = script(&site, shell, body).env("LOCK_TIMEOUT", "0.1").output().unwrap();
        assert_eq!(text(&output.stdout), "acquire 75\ntry 75\nexecute 75\n", "{shell}: {output:?}");
        holder.end();
    }
}

/// Requirement 109.
#[test]
fn the_end_of_a_script_releases_and_keeps_its_own_trap_and_code() {
    for shell in shells() {
        let site = Site::new();
        let body = "trap 'echo \"bye $?\"' EXIT\nacquire_lock a\nacquire_lock b\n(exit 0)\nexit 5";
        let output = script(&site, shell, body).output().unwrap();
        assert_eq!(
            (output.status.code(), text(&output.stdout).as_str()),
            (Some(5), "bye 5\n"),
            "{shell}: {output:?}"
        );
        assert_eq!(
            (site.statuses("a"), site.statuses("b")),
            (vec!["RELEASED".into()], vec!["RELEASED".into()]),
            "{shell}"
        );
        let output = script(&site, shell, "acquire_lock c\nfalse\necho unreached").output().unwrap();
        assert_eq!((output.status.code(), text(&output.stdout).as_str()), (Some(1), ""), "{shell}");
        assert_eq!(site.statuses("c"), ["RELEASED"], "{shell}");
    }
}

/// Requirement 109.
#[test]
fn int_and_term_release_and_end_the_script() {
    for shell in shells() {
        for (name, number) in [("TERM", 15), ("INT", 2)] {
            let site = Site::new();
            let holder = Holder::start(script(&site, shell, "acquire_lock g\necho held\nread line"));
            signal(name, holder.pid());
            let mut process = holder.process;
            let status = process.wait().unwrap();
            let by = std::os::unix::process::ExitStatusExt::signal(&status);
            assert!(by == Some(number) || status.code() == Some(128 + number), "{shell} {name}: {status:?}");
            assert_eq!(site.statuses("g"), ["RELEASED"], "{shell} {name}");
            assert!(site.flock_is_free("g"));
        }
    }
}

/// Requirement 109.
#[test]
fn a_subshell_does_not_give_back_what_its_parent_holds() {
    for shell in shells() {
        let site = Site::new();
        let body = r#"
            acquire_lock g
            (echo "in a subshell"; exit 3) || :
            (acquire_lock other; exit 0)
            flock -n "$LOCK_DIR/g.lock" true && exit 10
            echo held"#;
        let output = script(&site, shell, body).output().unwrap();
        assert_eq!(text(&output.stdout), "in a subshell\nheld\n", "{shell}: {output:?}");
        assert_eq!(site.statuses("g"), ["RELEASED"], "{shell}");
    }
}

/// Requirement 136.
#[test]
fn kept_as_mutex_lock_it_is_a_command_too() {
    for shell in shells() {
        let site = Site::new();
        let path = site.dir.path().join("mutex_lock.sh");
        let init = site.command(env!("CARGO_BIN_EXE_lockkeeper")).arg("shell-init").output().unwrap();
        std::fs::write(&path, init.stdout).unwrap();
        let holder = site.hold("g");
        let run = |argument: &str| site.command(shell).arg(&path).arg(argument).output().unwrap();
        assert!(text(&run("status").stdout).contains("locked"), "{shell}");
        assert!(run("check-deadlock").status.success() && run("cleanup").status.success(), "{shell}");
        assert_eq!(run("force-release-all").status.code(), Some(2), "{shell}");
        holder.end();
    }
}

#[test]
fn the_script_is_clean_by_shellcheck() {
    if !is_installed("shellcheck") {
        return;
    }
    let site = Site::new();
    let init = site.command(env!("CARGO_BIN_EXE_lockkeeper")).arg("shell-init").output().unwrap();
    let path = site.dir.path().join("init.sh");
    std::fs::write(&path, init.stdout).unwrap();
    for shell in ["sh", "bash", "dash"] {
        let output = site.command("shellcheck").args(["-s", shell]).arg(&path).output().unwrap();
        assert!(output.status.success(), "{}", text(&output.stdout));
    }
}
