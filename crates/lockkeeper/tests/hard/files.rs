//! Files of the store that are deleted, damaged, of another program or of a later version.

use std::path::Path;
use std::process::Command;

use lockkeeper_testing::Finished;

use crate::site::{Site, assert_failed, until};

fn remove(site: &Site, names: &[&str]) {
    for name in names {
        let _ = std::fs::remove_file(site.store().join(name));
    }
}

/// Invariant 2.
#[test]
fn tokens_grow_whatever_is_deleted_between_commands() {
    let site = Site::new();
    let mut last = 0;
    let mut expect_more = |about: &str| {
        let token = site.pass_through("db");
        assert!(token > last, "{about}: token {token} after {last}");
        last = token;
    };
    for round in 0..3 {
        expect_more("at first");
        for lost in [
            &["leases.db-wal"][..],
            &["leases.db-shm"],
            &["leases.db-wal", "leases.db-shm"],
            &["leases.db"],
            &["leases.db", "leases.db-wal", "leases.db-shm"],
            &["gate", "life"],
            &["tokens"],
        ] {
            remove(&site, lost);
            expect_more(&format!("round {round} without {lost:?}"));
        }
    }
    site.assert_clean("after all losses");
}

/// Invariant 10. The command ran to its end before anybody could know, so the exit code says it.
#[test]
fn a_command_under_which_the_store_was_deleted_did_not_succeed() {
    for files in ["leases.db*", "tokens"] {
        let site = Site::new();
        let script = format!("rm -r '{}'/{files}", site.store().display());
        let done = site.run(&["exec", "db", "--", "sh", "-c", &script]).code(76);
        done.says("was removed or replaced while in use").says("another may have been let in");
        site.run(&["exec", "db", "--", "true"]).code(0);
    }
}

/// Invariant 2. An old `tokens`, or all files of an old backup, copied over those that are there.
#[test]
fn tokens_grow_after_a_backup_was_restored() {
    let site = Site::new();
    let mut last = site.pass_through("db");
    for names in [&["tokens"][..], &["tokens", "gate", "leases.db", "leases.db-wal", "leases.db-shm"]] {
        let backup: Vec<_> = names
            .iter()
            .map(|name| site.store().join(name))
            .map(|path| (std::fs::read(&path).unwrap(), path))
            .collect();
        for _ in 0..3 {
            last = site.pass_through("db");
        }
        for (content, path) in backup {
            std::fs::write(path, content).unwrap();
        }
        let token = site.pass_through("db");
        assert!(token > last, "{names:?}: token {token} after {last}");
        last = token;
    }
}

/// Invariants 3, 5. A cleaner deletes `life`, or a restore puts a copy in its place: the live holder keeps its lease.
#[test]
fn a_holder_whose_liveness_file_was_replaced_is_not_taken_for_dead() {
    let site = Site::new();
    let life = site.store().join("life");
    for copied in [false, true] {
        let mut holder = site.start(&["exec", "db", "--", "sh", "-c", "echo $$; read line"]);
        holder.line();
        if copied {
            std::fs::copy(&life, life.with_extension("copy")).unwrap();
            std::fs::rename(life.with_extension("copy"), &life).unwrap();
        } else {
            std::fs::remove_file(&life).unwrap();
        }
        let refused = site.run(&["exec", "db", "--no-wait", "--", "true"]);
        assert_eq!(refused.exit_code(), Some(75), "copied: {copied}: {refused:?}");
        assert_eq!(site.run(&["locks", "cleanup"]).exit_code(), Some(0));
        assert_eq!(site.leases().len(), 1, "copied: {copied}");
        holder.close_input();
        assert!(holder.end().code().is_some());
        site.pass_through("db");
    }
}

/// Invariant 2. The same after the holder was killed, with the log in the middle of its life.
#[test]
fn tokens_grow_across_a_kill_and_a_lost_log() {
    let site = Site::new();
    let mut last = 0;
    for lost in [&["leases.db-wal"][..], &["leases.db", "leases.db-wal", "leases.db-shm"], &["tokens"]] {
        let script = "echo $LOCKKEEPER_TOKEN; exec sleep 600";
        let mut holder = site.start(&["exec", "db", "--", "sh", "-c", script]);
        let token: u64 = holder.line().parse().unwrap();
        assert!(token > last, "{token} after {last}");
        let command = lockkeeper_platform::tree::descendants(holder.pid()).unwrap();
        holder.kill();
        command.iter().for_each(|process| crate::site::end(process.pid));
        remove(&site, lost);
        last = site.pass_through("db");
        assert!(last > token, "without {lost:?}: {last} after {token}");
    }
}

/// Invariant 2. Many commands at once, while files are deleted under them.
#[test]
fn no_token_repeats_while_files_are_deleted_under_commands() {
    let site = Site::new();
    site.pass_through("db");
    let tokens = std::sync::Mutex::new(Vec::new());
    std::thread::scope(|scope| {
        for worker in 0..4 {
            let (site, tokens) = (&site, &tokens);
            scope.spawn(move || {
                for _ in 0..20 {
                    let script = ["exec", &format!("db{worker}"), "--", "sh", "-c", "echo $LOCKKEEPER_TOKEN"];
                    let answer = site.run(&script);
                    // A process that learns that its store was removed starts again.
                    tokens.lock().unwrap().extend(answer.stdout().trim().parse::<u64>());
                }
            });
        }
        for lost in ["leases.db-wal", "leases.db", "tokens"].iter().cycle().take(9) {
            // One loss at a time: the next command makes it good from what is left.
            until("a command works", || {
                let answer = site.run(&["exec", "main", "--", "true"]);
                // A database and a log that are not each other's are refused, and the way out is told.
                if answer.stderr().contains("is damaged") {
                    remove(&site, &["leases.db", "leases.db-wal", "leases.db-shm"]);
                }
                answer.exit_code() == Some(0)
            });
            remove(&site, &[lost]);
        }
    });
    let mut tokens = tokens.into_inner().unwrap();
    tokens.sort_unstable();
    let repeated: Vec<_> = tokens.windows(2).filter(|pair| pair[0] == pair[1]).collect();
    assert!(repeated.is_empty(), "{repeated:?} of {}", tokens.len());
    assert!(tokens.len() >= 40, "only {} of 80 commands ran", tokens.len());
    site.pass_through("db");
}

/// What is written for good is copied into the database now and then.
#[test]
fn the_log_does_not_grow_for_ever() {
    let site = Site::new();
    let keeper = lockkeeper::Keeper::open(site.store()).unwrap();
    for _ in 0..400 {
        drop(keeper.lock("db").try_acquire().unwrap());
    }
    let log = std::fs::metadata(site.store().join("leases.db-wal")).unwrap().len();
    assert!(log < 160 * 1024, "{log} bytes");
}

/// Commands that run one after the other read the whole log each time they start.
#[test]
fn the_log_does_not_grow_with_commands_that_run_alone() {
    let site = Site::new();
    for _ in 0..60 {
        site.pass_through("db");
    }
    let log = std::fs::metadata(site.store().join("leases.db-wal")).unwrap().len();
    assert!(log < 160 * 1024, "{log} bytes");
}

fn assert_refused_untouched(site: &Site, file: &Path, code: &str) {
    let before = std::fs::read(file).unwrap();
    let commands: [&[&str]; 4] =
        [&["acquire", "db", "--ttl", "1h"], &["exec", "db", "--", "true"], &["locks"], &["locks", "cleanup"]];
    for args in commands {
        assert_failed(&site.run(args), &[69], &format!("{code}: {args:?}"));
        assert_eq!(std::fs::read(file).unwrap(), before, "{code}: {args:?} changed it");
    }
    let json: serde_json::Value =
        serde_json::from_str(&site.run(&["--json", "acquire", "db", "--ttl", "1h"]).stdout()).unwrap();
    assert_eq!(json["error"]["reason_code"], code, "{json}");
    assert!(json["error"]["hint"].is_string(), "{json}");
}

/// Tables of the first version, as far as it matters.
const OLDER: &str = "CREATE TABLE lease (id); CREATE TABLE ticket (id); CREATE TABLE numbers (highest);
    PRAGMA application_id = 1282102132; PRAGMA user_version = 1;";

/// Invariants 2, 12. Nobody is in it, so that nothing is lost; what it knows of tokens stays.
#[test]
fn an_older_database_is_made_anew_when_nobody_is_in_it() {
    let site = Site::new();
    std::fs::create_dir(site.store()).unwrap();
    let database = site.store().join("leases.db");
    let script = format!("{OLDER} INSERT INTO numbers VALUES (5000);");
    rusqlite::Connection::open(database).unwrap().execute_batch(&script).unwrap();
    let (_, token) = site.acquire("db");
    assert!(token > 5000, "{token}");
}

/// Invariant 12.
#[test]
fn a_database_that_cannot_be_used_is_refused_and_left_as_it_is() {
    let sql = |database: &Path, script: &str| {
        rusqlite::Connection::open(database).unwrap().execute_batch(script).unwrap();
    };
    let garbage: &dyn Fn(&Path) = &|database| std::fs::write(database, "no database".repeat(400)).unwrap();
    let foreign: &dyn Fn(&Path) = &|database| sql(database, "CREATE TABLE t (a); PRAGMA application_id = 7;");
    let unnamed: &dyn Fn(&Path) = &|database| sql(database, "CREATE TABLE t (a);");
    let newer: &dyn Fn(&Path) = &|database| {
        sql(database, "CREATE TABLE t (a); PRAGMA application_id = 1282102132; PRAGMA user_version = 99;");
    };
    let older: &dyn Fn(&Path) = &|database| sql(database, &format!("{OLDER} INSERT INTO lease VALUES (1);"));
    let all = [
        ("STORE_DAMAGED", garbage),
        ("STORE_FOREIGN", foreign),
        ("STORE_FOREIGN", unnamed),
        ("STORE_TOO_NEW", newer),
        ("STORE_TOO_OLD", older),
    ];
    for (code, make) in all {
        let site = Site::new();
        std::fs::create_dir(site.store()).unwrap();
        let database = site.store().join("leases.db");
        make(&database);
        assert_refused_untouched(&site, &database, code);
    }
}

/// Invariant 12. Damage in the middle of a database that was ours.
#[test]
fn a_damaged_database_is_refused_and_left_as_it_is() {
    let site = Site::new();
    site.acquire("db");
    let database = site.store().join("leases.db");
    let connection = rusqlite::Connection::open(&database).unwrap();
    connection.execute_batch("PRAGMA wal_checkpoint(TRUNCATE);").unwrap();
    drop(connection);
    remove(&site, &["leases.db-wal", "leases.db-shm"]);
    let mut bytes = std::fs::read(&database).unwrap();
    bytes[1024..].fill(0xa5);
    std::fs::write(&database, bytes).unwrap();
    let before = std::fs::read(&database).unwrap();
    assert_failed(&site.run(&["acquire", "db", "--ttl", "1h"]), &[69], "damaged");
    assert_eq!(std::fs::read(&database).unwrap(), before);
}

/// Invariant 12.
#[test]
fn a_damaged_file_of_tokens_is_refused_and_left_as_it_is() {
    let site = Site::new();
    site.pass_through("db");
    let tokens = site.store().join("tokens");
    for damage in ["", "lockkeeper-tokens 9 boot=x\n", "\0\0\0\0"].iter().skip(1) {
        std::fs::write(&tokens, damage).unwrap();
        assert_failed(&site.run(&["acquire", "db", "--ttl", "1h"]), &[69], damage);
        assert_eq!(std::fs::read_to_string(&tokens).unwrap(), *damage);
    }
}

/// Invariant 12. What is not a file is refused at once: nobody hangs on a FIFO.
#[test]
fn strange_things_in_place_of_files_are_refused_at_once() {
    for name in ["gate", "tokens", "leases.db", "life"] {
        for kind in ["fifo", "folder", "link"] {
            let site = Site::new();
            std::fs::create_dir(site.store()).unwrap();
            let path = site.store().join(name);
            match kind {
                "fifo" => assert!(Command::new("mkfifo").arg(&path).status().unwrap().success()),
                "folder" => std::fs::create_dir(&path).unwrap(),
                _ => std::os::unix::fs::symlink(site.folder().join("elsewhere"), &path).unwrap(),
            }
            let about = format!("{kind} as {name}");
            let mut command = site.command_under(&["timeout", "20"], &["acquire", "db", "--ttl", "1h"]);
            let answer = Finished::of(&mut command);
            assert_failed(&answer, &[69], &about);
            assert!(!site.folder().join("elsewhere").exists(), "{about}");
        }
    }
}
