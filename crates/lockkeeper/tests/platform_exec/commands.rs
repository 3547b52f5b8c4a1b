//! Wrapped commands: how they end, signals, orphans, whole process trees.

use std::os::fd::AsFd;
use std::process::Command;
use std::time::Duration;

use lockkeeper_core::liveness::LockState;
use lockkeeper_platform::exec::{Ending, Event, Mode, Next, Spec, StartError, start};
use lockkeeper_platform::liveness_lock::LivenessFile;
use lockkeeper_platform::{clock, random};
use lockkeeper_testing::{Finished, Signal, processes};

use crate::wrapped::Wrapped;

fn worker_runs(script: &str) -> Spec {
    let args = vec!["-c".into(), script.into()];
    Spec { program: "sh".into(), args, mode: Mode::Worker, ..Spec::default() }
}

#[test]
fn endings_are_told_as_they_were() {
    for (script, ending) in
        [("exit 3", Ending::Exited(3)), ("true", Ending::Exited(0)), ("kill -9 $$", Ending::Signaled(9))]
    {
        let running = start(&worker_runs(script), None).unwrap();
        assert_eq!(running.supervise(&[], &mut |_| Next::Wait).unwrap(), ending);
        assert_eq!(Wrapped::run(script).ended(), ending.to_string());
    }
}

#[test]
fn what_does_not_start_has_the_exit_code_of_shells() {
    let dir = tempfile::tempdir().unwrap();
    let plain = dir.path().join("plain");
    std::fs::write(&plain, "exit 5\n").unwrap();
    let refusal = |program: &std::path::Path| {
        start(&Spec { program: program.into(), mode: Mode::Worker, ..Spec::default() }, None).unwrap_err()
    };
    assert!(matches!(refusal("no-such-program-here".as_ref()), StartError::NotFound { .. }));
    assert_eq!(refusal(&dir.path().join("missing")).exit_code(), 127);
    assert!(matches!(refusal(&plain), StartError::CannotExecute { .. }));
    assert_eq!(refusal(dir.path()).exit_code(), 126);
}

#[test]
fn a_script_without_an_interpreter_line_is_run_by_sh() {
    let dir = tempfile::tempdir().unwrap();
    let script = dir.path().join("script");
    std::fs::write(&script, "exit $1\n").unwrap();
    Finished::of(Command::new("chmod").arg("+x").arg(&script)).code(0);
    let spec = Spec { program: script.into(), args: vec!["6".into()], mode: Mode::Worker, ..Spec::default() };
    let running = start(&spec, None).unwrap();
    assert_eq!(running.supervise(&[], &mut |_| Next::Wait).unwrap(), Ending::Exited(6));
}

#[test]
fn the_command_leads_a_group_and_has_its_variables() {
    let spec = Spec {
        env: vec![("LOCKKEEPER_TOKEN".into(), "7".into())],
        ..worker_runs("[ $(cut -d' ' -f5 /proc/$$/stat) = $$ ] && [ $LOCKKEEPER_TOKEN = 7 ]")
    };
    let running = start(&spec, None).unwrap();
    assert_eq!(running.supervise(&[], &mut |_| Next::Wait).unwrap(), Ending::Exited(0));
}

#[test]
fn signals_are_passed_on_once_each_and_the_wrapper_waits_for_the_command() {
    let mut wrapped = Wrapped::run(
        "trap 'echo usr1' USR1; trap 'echo usr2' USR2; trap 'echo hup' HUP; trap 'echo int' INT; trap 'echo quit' QUIT
         trap 'echo term; kill %1; exit 7' TERM; sleep 600 & echo up
         while :; do wait; done",
    );
    wrapped.expect("up");
    for (signal, line) in [
        (Signal::USR1, "usr1"),
        (Signal::USR2, "usr2"),
        (Signal::HUP, "hup"),
        (Signal::INT, "int"),
        (Signal::QUIT, "quit"),
    ] {
        wrapped.signal(signal);
        assert_eq!(wrapped.line(), line);
    }
    wrapped.signal(Signal::TERM);
    assert_eq!(wrapped.line(), "term");
    assert_eq!(wrapped.ended(), "exited with code 7");
}

#[test]
fn dispositions_of_the_command_are_those_that_the_wrapper_was_started_with() {
    // Bits 31 and 32 are the C library's own; awk catches nothing by itself.
    let status = "awk '/Sig(Blk|Ign|Cgt)/ { printf \"%s \", $2 } END { print \"\" }' /proc/self/status";
    let bare = |before: &str| {
        let finished = Finished::of(Command::new("sh").args(["-c", &format!("{before}; {status}")]));
        finished.code(0).stdout().trim_end().to_owned()
    };
    let wrapped = |before: &str| {
        let mut wrapped = Wrapped::run_after(before, status);
        let line = wrapped.line();
        wrapped.ended();
        line
    };
    for before in ["true", "trap '' HUP", "trap '' INT QUIT USR1"] {
        assert_eq!(wrapped(before), bare(before).trim_end(), "{before}");
    }
    assert_ne!(bare("true"), bare("trap '' HUP"));
}

#[test]
fn a_command_that_leaves_its_output_open_does_not_keep_the_wrapper() {
    let mut wrapped = Wrapped::run("sleep 600 & echo $!; exit 4");
    let left: u32 = wrapped.line().parse().unwrap();
    assert_eq!(wrapped.ended(), "exited with code 4");
    assert!(processes::is_alive(left), "it is left alone");
    processes::kill(left);
}

#[test]
fn orphans_are_awaited_while_the_command_runs() {
    // There is nothing to wait on for "was waited for" but the disappearance itself.
    let mut wrapped = Wrapped::run(
        "orphan=$(sh -c 'true >/dev/null & echo $!'); while [ -e /proc/$orphan ]; do sleep 0.01; done; echo awaited",
    );
    wrapped.expect("awaited");
    assert_eq!(wrapped.ended(), "exited with code 0");
}

#[test]
fn a_lost_lease_ends_the_whole_tree() {
    let mut wrapped = Wrapped::run_until_told(
        "setsid sh -c 'trap \"\" TERM; echo $$; exec sleep 600' &
         (setsid sh -c 'echo $$; exec sleep 600' &)
         sh -c 'echo $$; kill -STOP $$; exec sleep 600' &
         sh -c 'trap \"sleep 600 & echo \\$!\" TERM; echo $$; while :; do sleep 600 & wait; done' &
         trap '' TERM; echo $$; while :; do wait; done",
    );
    let started: Vec<u32> = (0..5).map(|_| wrapped.line().parse().unwrap()).collect();
    wrapped.tell();
    let late: u32 = wrapped.line().parse().unwrap();
    assert_eq!(wrapped.ended(), "was ended by SIGKILL");
    for pid in started.into_iter().chain([late]) {
        assert!(!processes::is_alive(pid), "{pid} still runs");
    }
}

#[test]
fn a_tree_that_obeys_is_not_killed() {
    let mut wrapped = Wrapped::run_until_told("trap 'kill %1; exit 5' TERM; sleep 600 & echo up; wait");
    wrapped.expect("up");
    wrapped.tell();
    assert_eq!(wrapped.ended(), "exited with code 5");
}

#[test]
fn the_caller_hears_of_its_descriptors_and_deadlines() {
    let (bell, ringer) = rustix::pipe::pipe().unwrap();
    let (quiet, _keep) = rustix::pipe::pipe().unwrap();
    let mut heard = Vec::new();
    let running = start(&worker_runs("sleep 600"), None).unwrap();
    let ending = running.supervise(&[quiet.as_fd(), bell.as_fd()], &mut |event| {
        heard.push(event);
        match event {
            Event::Started => Next::WaitUntil(clock::now().after(Duration::from_millis(5))),
            Event::Deadline => {
                rustix::io::write(&ringer, b"!").unwrap();
                Next::Wait
            }
            Event::Ready(_) => Next::Stop(Duration::from_secs(60)),
        }
    });
    assert_eq!(ending.unwrap(), Ending::Signaled(15));
    assert_eq!(heard, [Event::Started, Event::Deadline, Event::Ready(1)]);
}

#[test]
fn a_command_shares_the_proof_of_life_until_its_last_process_is_gone() {
    let dir = tempfile::tempdir().unwrap();
    let file = LivenessFile::open(dir.path()).unwrap();
    let id = random::holder_id().unwrap();
    let mut wrapped =
        Wrapped::run_holding(dir.path(), id, "(setsid sleep 600 & echo $!); echo $$; exec sleep 600");
    let pids: Vec<u32> = (0..2).map(|_| wrapped.line().parse().unwrap()).collect();
    wrapped.kill();
    for pid in pids {
        assert_eq!(file.look(id), LockState::Held);
        processes::kill(pid);
    }
    file.wait_free(id).unwrap();
    assert_eq!(file.look(id), LockState::Free);
}
