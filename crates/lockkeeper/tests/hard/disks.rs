//! Disks that are full or read-only. They are mounted in a mount namespace of their own, which needs root: elsewhere
//! these tests say so and check nothing.

use std::process::Command;

use lockkeeper_testing::Finished;

use crate::site::assert_failed;

/// Runs a shell script in a mount namespace of its own, with `$LK` as the program and `$DIR` as an empty folder.
fn in_own_mounts(script: &str) -> Option<Finished> {
    let possible = Command::new("unshare").args(["-m", "sh", "-c", "mount -t tmpfs none /mnt"]).output();
    if !possible.expect("these tests need unshare(1)").status.success() {
        eprintln!("SKIPPED: mounting needs root (or CAP_SYS_ADMIN); nothing was checked");
        return None;
    }
    let folder = tempfile::tempdir().unwrap();
    let prelude = "set -eu; fail() { echo \"FAILED: $*\"; exit 99; }
        says() { want=$1; shift; code=0; \"$@\" >out 2>err || code=$?
            case \" $want \" in *\" $code \"*) ;; *) cat out err; fail \"$* ended with $code, not $want\";; esac; }
        explains() { says '1 69' \"$@\"; grep -q '^error: ' err || fail \"no sentence: $*\"
            grep -q '^hint: ' err || fail \"no hint: $*\"; }";
    let mut unshare = Command::new("unshare");
    unshare
        .args(["-m", "sh", "-c", &format!("{prelude}\n{script}")])
        .current_dir(folder.path())
        .env("LK", env!("CARGO_BIN_EXE_lockkeeper"))
        .env("DIR", folder.path().join("disk"));
    Some(Finished::of(&mut unshare).code(0))
}

/// Invariants 6, 12. Whatever fails on a full disk says so; with room again everything goes on.
#[test]
fn a_full_disk_takes_no_lease_and_breaks_nothing() {
    in_own_mounts(
        "mkdir $DIR; mount -t tmpfs -o size=256k none $DIR
         says 0 $LK --dir $DIR/s acquire kept --ttl 1h
         kept=$(cat out)
         dd if=/dev/zero of=$DIR/fill bs=1k 2>/dev/null || true
         failed=0; n=0
         while [ $n -lt 120 ]; do n=$((n+1))
             says '0 1 69' $LK --dir $DIR/s acquire name$n --ttl 1h
             if [ $code != 0 ]; then failed=$((failed+1))
                 grep -q '^error: ' err || fail no sentence; grep -q '^hint: ' err || fail no hint
             else says 0 $LK --dir $DIR/s release $(cat out); fi
         done
         [ $failed -gt 0 ] || fail 'the disk was never full'
         explains $LK --dir $DIR/new acquire db --ttl 1h
         says 69 $LK --dir $DIR/s work --drain
         rm $DIR/fill
         says 0 $LK --dir $DIR/s renew $kept
         says 75 $LK --dir $DIR/s acquire kept --owner test:2 --ttl 1h
         says 0 $LK --dir $DIR/s acquire fresh --ttl 1h
         says 0 $LK --dir $DIR/new acquire db --ttl 1h
         says 0 $LK --dir $DIR/s --json locks
         n=$(grep -o '\"id\"' out | wc -l); [ $n = 2 ] || fail \"$n leases: $(cat out)\"",
    );
}

/// Invariant 3. A full disk does not end what is held: the holder lives, and so does its lease.
#[test]
fn a_full_disk_does_not_cost_a_running_command_its_lease() {
    in_own_mounts(
        "mkdir $DIR; mount -t tmpfs -o size=256k none $DIR; mkfifo go told
         $LK --dir $DIR/s exec db --ttl 1s -- sh -c 'echo in > told; read x < go; exit 7' & holder=$!
         read x < told
         dd if=/dev/zero of=$DIR/fill bs=1k 2>/dev/null || true
         says '75 1 69' $LK --dir $DIR/s acquire db --owner test:2 --wait=3s --quiet
         rm $DIR/fill
         says 75 $LK --dir $DIR/s acquire db --owner test:2
         echo > go; code=0; wait $holder || code=$?
         [ $code = 7 ] || fail \"the command ended with $code\"
         says 0 $LK --dir $DIR/s acquire db --owner test:2",
    );
}

/// Invariants 6, 12.
#[test]
fn a_read_only_folder_is_refused_in_one_sentence() {
    in_own_mounts(
        "mkdir -p $DIR; mount -t tmpfs none $DIR
         says 0 $LK --dir $DIR/s acquire db --ttl 1h
         lease=$(cat out)
         mount -o remount,ro $DIR
         explains $LK --dir $DIR/s acquire other --ttl 1h
         explains $LK --dir $DIR/s exec other -- true
         explains $LK --dir $DIR/s release $lease
         explains $LK --dir $DIR/new acquire db --ttl 1h
         mount -o remount,rw $DIR
         says 0 $LK --dir $DIR/s release $lease",
    );
}

/// Invariant 6. Another user, without the right to the folder.
#[test]
fn a_folder_of_somebody_else_is_refused_in_one_sentence() {
    if !rustix::process::geteuid().is_root() {
        eprintln!("SKIPPED: becoming another user needs root; nothing was checked");
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let program = folder.path().join("lockkeeper");
    std::fs::copy(env!("CARGO_BIN_EXE_lockkeeper"), &program).unwrap();
    let chmod = |mode: &str, path: &std::path::Path| {
        assert!(Command::new("chmod").arg(mode).arg(path).status().unwrap().success());
    };
    chmod("755", folder.path());
    let store = folder.path().join("store");
    let run = |user: &[&str]| {
        let mut line = user.to_vec();
        line.extend([
            program.to_str().unwrap(),
            "--dir",
            store.to_str().unwrap(),
            "acquire",
            "db",
            "--ttl",
            "1h",
        ]);
        Finished::of(Command::new(line[0]).args(&line[1..]).current_dir("/").env("HOME", "/nowhere"))
    };
    let nobody = ["setpriv", "--reuid=65534", "--regid=65534", "--clear-groups"];
    assert_failed(&run(&nobody), &[69], "cannot make the folder");
    assert!(!store.exists());
    assert_eq!(run(&["env"]).exit_code(), Some(0));
    assert_failed(&run(&nobody), &[69], "cannot open the store");
    chmod("755", &store);
    assert_failed(&run(&nobody), &[69], "can look but not write");
}
