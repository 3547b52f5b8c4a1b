//! Messages in the language of the locale, of the setting and of `--lang`.

use std::collections::BTreeSet;
use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;

use lockkeeper_engine::messages::{Language, Phrases};
use lockkeeper_testing::{Finished, World, files, world};
use serde_json::json;

/// Requirement 194. The locale decides where neither a setting nor a flag does.
#[test]
fn errors_follow_the_locale_the_setting_and_the_flag() {
    let world = world!().with_state();
    let _holder = world.hold(&["db"]);
    let refused = |variables: &[(&str, &str)], args: &[&str]| {
        let mut command =
            world.lockkeeper([&["--json"], args, &["exec", "db", "--no-wait", "--", "true"]].concat());
        command.envs(variables.iter().copied());
        let error = lockkeeper_testing::Finished::of(&mut command).code(75).json()["error"].take();
        assert_eq!(error["reason_code"], "LOCK_HELD");
        assert!(
            ["title", "summary", "actions", "message", "hint", "context"]
                .iter()
                .all(|key| !error[key].is_null())
        );
        error
    };
    let english = refused(&[], &[]);
    assert_eq!(english["title"], "Another owner holds it");
    assert!(english["message"].as_str().unwrap().starts_with("refused: db"), "{english}");
    let japanese = "他の所有者が保持しています";
    assert_eq!(refused(&[("LANG", "ja_JP.UTF-8")], &[])["title"], japanese);
    assert_eq!(refused(&[("LANG", "zh_CN.UTF-8"), ("LC_MESSAGES", "ja_JP")], &[])["title"], japanese);
    assert_eq!(refused(&[("LANG", "ja_JP.UTF-8"), ("LC_ALL", "C")], &[])["title"], english["title"]);
    assert_eq!(
        refused(&[("LANG", "ja_JP.UTF-8"), ("LOCKKEEPER_LANG", "zh")], &[])["title"],
        "已被其他所有者持有"
    );
    let flag = refused(&[("LANG", "zh_CN.UTF-8"), ("LOCKKEEPER_LANG", "en")], &["--lang", "ja"]);
    assert_eq!((&flag["title"], &flag["message"]), (&json!(japanese), &json!(japanese)));
    assert!(flag["detail"].as_str().unwrap().starts_with("refused: db"), "{flag}");
}

#[test]
fn no_sentence_is_half_translated() {
    let world = world!().with_state().set("LANG", "ja_JP.UTF-8");
    let task = ["task", "lock", "t1", "--worker", "w1"];
    world.run(task).code(0).says("ロックしました: t1");
    world
        .run(task)
        .code(75)
        .says("エラー: 別のワーカーがこのタスクを担当しています")
        .says("対処: 別のタスクを選ぶ");
    world.run(["task", "show", "t1"]).code(0).prints("判定: 保持中");
    world.run(["task", "unlock", "t1", "--worker", "w1"]).code(0).says("ロックを解除しました: t1");
    world.run(["group", "status"]).code(0).prints("ロックされたグループはまだありません");
    world.run(["doctor"]).code(0).prints("デッドロックがない");
    world.run(["queue", "list"]).code(0).says("実行できるRequestはありません");
    world.run(["status", "summary"]).code(0).prints("状態の行はまだありません");
    world.run(["status"]).code(0).prints("失敗のいずれもありません");
    world.run(["submit", "--id", "bad", "--", "false"]).code(0);
    world.run(["queue", "run-next"]).code(1);
    let overview = world.run(["status"]).code(0).prints("失敗 (1)").prints("人の対応が必要 (1)").stdout();
    assert!(overview.contains("キュー実行が停止しました: "), "{overview}");
    // A usage error comes before any setting is read.
    world.run(["queue", "nonsense"]).code(2).says("エラー: 入力が正しくありません");
    let chinese = world.set("LC_ALL", "zh_CN.UTF-8");
    chinese.run(task).code(0).says("已锁定：t1");
    chinese.run(["queue", "list"]).code(0).says("没有可以运行的请求");
}

/// Requirement 194. The check that stopped the queue is kept in English.
#[test]
fn the_check_that_stopped_the_queue_stands_behind_a_label() {
    let world = world!().git().with_state().set("LANG", "zh_CN.UTF-8");
    files::write(&world.path(".git/hooks/pre-commit"), "#!/bin/sh\nexec /nonexistent/lockkeeper guard\n");
    let hook = fs::Permissions::from_mode(0o755);
    fs::set_permissions(world.path(".git/hooks/pre-commit"), hook).unwrap();
    world.run(["submit", "--id", "RQ-1", "--", "true"]).code(0);
    for (words, code) in [(["queue", "auto"], 1), (["queue", "list"], 0)] {
        let said = world.run(words).code(code).says("  详情: hooks: ").stderr();
        assert!(said.lines().all(|line| english_words(line) < 3), "{said}");
    }
}

/// Requirements 28 and 194. Only what the format prescribes is English.
#[test]
fn words_about_a_sprint_are_in_one_language() {
    let world = world!().with_state().set("LANG", "zh_CN.UTF-8");
    let lock = world.path(".sprint-running");
    files::write(&lock, "pid: 4194304\nsession_id: s\nstarted_at: 2026-01-31T12:00:00Z\n");
    let check = ["sprint", "check", "--project-root", "."];
    let said = world.run(check).code(75).prints("会话: s, 启动时间: 2026-01-31T12:00:00Z, ").stdout();
    assert!(said.contains(" 小时前)") && !said.contains("session: ") && !said.contains(" ago"), "{said}");
    let json = world.run([&["--json"], &check[..]].concat()).code(75).json();
    assert!(json["message"].as_str().unwrap().starts_with("Zombie lock found (PID: 4194304"), "{json}");
    files::write(&lock, "x: [");
    files::set_age(&lock, std::time::Duration::from_secs(60));
    let acquire = ["sprint", "acquire", "--project-root", ".", "--session-id", "t", "--epic-spec", "e"];
    let asked =
        world.run(acquire).code(75).says("警告  详情: Lock file exists but has invalid format").stderr();
    assert!(!asked.contains("warning:"), "{asked}");
}

#[test]
fn the_monitor_of_groups_is_started_and_stopped_in_the_language() {
    let world = world!().with_state().set("LANG", "ja_JP.UTF-8");
    world.run(["group", "init"]).code(0);
    world.run(["group", "monitor", "start"]).code(0).says("deadlock_monitor を開始しました: プロセス ");
    world.run(["group", "monitor", "start"]).code(0).says("deadlock_monitor はプロセス ");
    world.run(["group", "monitor", "stop"]).code(0).says("deadlock_monitor を停止しました: プロセス ");
    world.run(["group", "monitor", "stop"]).code(0).says("deadlock_monitor は動作していません");
}

/// Behind this label, a line has English text of another part, to its end.
const LABELS: [&str; 2] = ["詳細: ", "详情: "];

/// The English words that follow each other in a line, without what is quoted or behind a label.
fn english_words(line: &str) -> usize {
    let line = LABELS.iter().find_map(|label| line.split_once(label)).map_or(line, |(before, _)| before);
    let unquoted: String = line.split('`').step_by(2).collect::<Vec<_>>().join(" . ");
    let is_word = |word: &&str| word.len() > 1 && word.chars().all(|letter| letter.is_ascii_lowercase());
    let runs =
        unquoted.split_whitespace().map(|word| word.trim_end_matches([',', ';', ':'])).collect::<Vec<_>>();
    runs.split(|word| !is_word(word)).map(<[&str]>::len).max().unwrap_or(0)
}

fn is_east_asian(text: &str) -> bool {
    text.chars().any(|letter| matches!(letter, '\u{3040}'..='\u{30ff}' | '\u{4e00}'..='\u{9fff}'))
}

/// Commands that print sentences: what waits, fails, ends, is put away or is wrong.
fn everything_said(world: &World) -> String {
    let mut said = String::new();
    let mut run = |words: &[&str], variables: &[(&str, &str)]| {
        let mut command = world.lockkeeper(words);
        let finished = Finished::of(command.envs(variables.iter().copied()));
        said.push_str(&format!("$ {}\n{}{}\n", words.join("`"), finished.stdout(), finished.stderr()));
    };
    run(&["submit", "--title", "T", "--", "true"], &[]);
    run(&["submit", "--key", "K", "--", "false"], &[]);
    run(&["submit", "--key", "K", "--", "false"], &[]);
    run(&["submit", "--id", "A", "--", "false"], &[]);
    run(&["submit", "--after", "A", "--", "true"], &[]);
    run(&["submit", "--from", "requests.json"], &[]);
    run(&["work", "--drain", "--jobs", "2"], &[]);
    run(&["queue", "list"], &[]);
    run(&["queue", "run-next"], &[]);
    run(&["status"], &[]);
    run(&["exec", "db", "--wait=50ms", "--", "true"], &[]);
    run(&["exec", "free", "--", "lockkeeper-no-such-program"], &[]);
    run(&["group", "exec", "api", "--timeout", "0.6", "--", "true"], &[]);
    run(&["group", "status"], &[]);
    run(&["group", "check-deadlock"], &[]);
    run(&["group", "cleanup"], &[]);
    run(&["group", "force-release-all", "--yes"], &[]);
    run(&["task", "lock", "t1", "--worker", "w1"], &[]);
    run(&["task", "lock", "t1", "--worker", "w2"], &[]);
    run(&["task", "show", "t1"], &[]);
    run(&["status", "summary"], &[]);
    run(&["status", "emit", "DONE", "t1"], &[]);
    run(&["stages", "run", "STAGES.yml", "P1", "--load", "0"], &[("LOCK_TIMEOUT", "0.1")]);
    run(&["stages", "run", "STAGES.yml", "P2", "--load", "0"], &[]);
    run(&["sprint", "acquire", "--project-root", ".", "--session-id", "s", "--epic-spec", "e"], &[]);
    run(&["sprint", "release", "--project-root", ".", "--session-id", "other"], &[]);
    run(&["sprint", "acquire", "--project-root", "nowhere", "--session-id", "s", "--epic-spec", "e"], &[]);
    run(&["doctor"], &[]);
    run(&["doctor", "--full"], &[]);
    said
}

/// A repository in which much is wrong, with somebody who holds `db` and the group `api`.
fn troubled(locale: &str) -> World {
    let world = world!().git().with_state().set("LANG", locale).set("LOCK_DIR", "groups");
    let stages = "parallel_groups:\n  P1:\n    - {group_id: api, conflict_paths: [\"a/**\"], command: 'true'}\n    \
        - {group_id: web, conflict_paths: [\"a/**\"], command: 'false'}\n    - {group_id: end, depends_on: [web], command: 'true'}\n  \
        P2: [{group_id: one, command: 'false'}]\ndowngrade_rules: [{name: stop, trigger: failure_threshold, threshold: 1, action: abort}]\n";
    files::write(&world.path("STAGES.yml"), stages);
    files::write(&world.path("requests.json"), "[{\"command\": [\"true\"]}]");
    files::write(
        &world.path(".claude/settings.json"),
        "{\"hooks\": [{\"command\": \"/no/lockkeeper hook\"}]}",
    );
    files::write(&world.path(".codex/hooks.json"), "{");
    files::write(&world.path(".sprint-running.tmp"), "x");
    files::write(&world.path("groups/registry.log"), "bad line\nold:999999:old:1728456791:ACTIVE\n");
    world
}

/// Requirement 194. A line is in one language: what other parts report in English stands behind a label.
#[test]
fn no_line_mixes_languages() {
    for (locale, language) in
        [("C", Language::En), ("ja_JP.UTF-8", Language::Ja), ("zh_CN.UTF-8", Language::Zh)]
    {
        let world = troubled(locale);
        let _lease = world.hold(&["db"]);
        let _group = world.start(["group", "exec", "api", "--", "sh", "-c", "touch held; sleep 600"]);
        lockkeeper_testing::until("the group is held", || world.path("held").exists());
        let said = everything_said(&world);
        let mut in_language = 0;
        for line in said.lines().filter(|line| !line.starts_with('$')) {
            let (words, east) = (english_words(line), is_east_asian(line));
            in_language += usize::from(east);
            // Fields of the format of sprints, and rows of tables, which quote command lines.
            let is_row = !east && line.trim_start().contains("  ") && !line.contains("FAIL  ");
            let is_data = line.starts_with("message:") || line.starts_with("  - ") || is_row;
            assert!(language == Language::En || words < 3 || is_data, "{locale}: {line}\n\n{said}");
            assert!(language != Language::En || !east, "{locale}: {line}");
        }
        assert!(language == Language::En || in_language > 60, "{locale}: {in_language}\n{said}");
    }
}

/// Every key in the code has a phrase, and every phrase is used. The tables are compared with each other in the engine.
#[test]
fn keys_in_the_code_and_in_the_tables_are_the_same() {
    let (mut sources, mut folders) = (String::new(), vec![Path::new(env!("CARGO_MANIFEST_DIR")).join("..")]);
    while let Some(folder) = folders.pop() {
        for entry in fs::read_dir(&folder).unwrap().map(|entry| entry.unwrap().path()) {
            if entry.is_dir() && !entry.ends_with("tests") && !entry.ends_with("target") {
                folders.push(entry);
            } else if entry.extension().is_some_and(|end| end == "rs") {
                sources.push_str(&fs::read_to_string(entry).unwrap());
            }
        }
    }
    let phrases = Phrases::load(Language::En);
    let mut used = BTreeSet::new();
    for part in sources.split('"').skip(1).step_by(1) {
        if phrases.get(part).is_some() {
            used.insert(part);
        }
    }
    for call in ["say(\"", "said(\"", "about(\"", "phrases.fill(\""] {
        for part in sources.split(call).skip(1) {
            let key = part.split('"').next().unwrap_or_default();
            let is_key = key.contains('.') && !key.contains([' ', '{']);
            assert!(!is_key || phrases.get(key).is_some(), "no phrase for {key}");
        }
    }
    // The code names the rest of these keys by a value.
    let by_value = ["alert.", "check.", "passed_over.", "verdict.", "sprint.hint."];
    for key in phrases.keys() {
        assert!(
            used.contains(key) || by_value.iter().any(|start| key.starts_with(start)),
            "nobody says {key}"
        );
    }
}

/// Requirement 194.
#[test]
fn what_is_done_with_a_run_is_told_in_the_language() {
    for (locale, canceled, failed) in [
        ("ja_JP.UTF-8", "状態 canceled", "失敗しました: EXIT_CODE 3"),
        ("zh_CN.UTF-8", "状态 canceled", "失败：EXIT_CODE 3"),
    ] {
        let world = world!().with_state().set("LANG", locale);
        world.run(["submit", "--id", "bad", "--", "sh", "-c", "exit 3"]).code(0);
        world.run(["submit", "--id", "asks", "--", "sh", "-c", "echo which; exit 10"]).code(0);
        world.run(["submit", "--id", "child", "--after", "bad", "--", "true"]).code(0);
        world.run(["work", "--drain", "--quiet"]).code(1);
        let mut said = world.run(["run", "wait", "bad"]).code(3).says(failed).stderr();
        said += &world.run(["run", "wait", "child"]).code(1).stderr();
        said += &world.run(["run", "answer", "asks", "here"]).code(0).stderr();
        said += &world.run(["run", "cancel", "asks"]).code(0).says(canceled).stderr();
        said += &world.run(["run", "wait", "asks"]).code(75).stderr();
        said += &world.run(["run", "retry", "bad"]).code(0).stderr();
        said += &world.run(["run", "wait", "bad", "--timeout", "10ms"]).code(75).stderr();
        assert!(said.lines().all(|line| english_words(line) < 3), "{said}");
        assert!(said.lines().all(is_east_asian), "{said}");
    }
}

/// Requirements 28 and 194. The Chinese text is the one of the format.
#[test]
fn a_question_about_a_sprint_is_in_one_language() {
    let world = world!().with_state().set("LANG", "ja_JP.UTF-8");
    files::write(
        &world.path(".sprint-running"),
        "pid: 4194304\nsession_id: s\nstarted_at: 2026-01-31T12:00:00Z\n",
    );
    let acquire = ["sprint", "acquire", "--project-root", ".", "--session-id", "t", "--epic-spec", "e"];
    let asked = world.run(acquire).code(75).says("(プロセスの状態: 終了)").says(" 時間前)").stderr();
    assert!(!asked.contains("dead") && !asked.contains(" ago") && !asked.contains("Session"), "{asked}");
}
