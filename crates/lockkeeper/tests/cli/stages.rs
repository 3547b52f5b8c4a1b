//! `stages check`, `stages plan` and `conflicts rules`.

use lockkeeper_testing::world;
use serde_json::{Value, json};

const EXAMPLE: &str = include_str!("../../../../examples/STAGES.yml");
const BROKEN: &str = "parallel_groups:\n  P1:\n    - group_id: a\n      colour: red\n      conflict_paths:\n        - \"src/[a\"\n";

fn keys(value: &Value) -> Vec<&str> {
    value.as_object().unwrap().keys().map(String::as_str).collect()
}

/// Requirements 137, 203.
#[test]
fn a_sound_file_is_checked_in_silence() {
    let world = world!().write("STAGES.yml", EXAMPLE);
    world.run(["stages", "check", "STAGES.yml"]).code(0).prints("6 phases, 14 groups").prints("0 errors");
    let answer = world.run(["stages", "check", "STAGES.yml", "--json"]).code(0).json();
    assert_eq!((&answer["valid"], &answer["errors"]), (&json!(true), &json!(0)));
    let rules = world.run(["conflicts", "rules", "STAGES.yml", "--json"]).code(0).json();
    assert_eq!(keys(&rules["rules"][0]), ["name", "severity", "action", "strategy", "priority", "paths"]);
    assert_eq!(rules["rules"][0]["name"], "one_release_at_a_time", "the strictest first");
    world
        .run(["conflicts", "rules", "STAGES.yml"])
        .code(0)
        .prints("same_source_file")
        .prints("**/*.ts")
        .says("no rule covers");
}

/// Requirement 205.
#[test]
fn a_broken_file_is_shown_with_its_lines() {
    let world = world!().write("STAGES.yml", BROKEN);
    let done = world.run(["stages", "check", "STAGES.yml"]).code(2);
    let text = done.stdout();
    assert!(text.contains(" --> STAGES.yml:6:11\n"), "{text}");
    assert!(text.contains("6 |         - \"src/[a\"\n  |           ^^^^^^^^\n"), "{text}");
    assert!(text.contains("unknown key: STAGES.yml:4:7: parallel_groups.P1[0].colour (red)"), "{text}");
    let answer = world.run(["stages", "check", "STAGES.yml", "--json"]).code(2).json();
    assert_eq!(answer["valid"], false);
    let problems = answer["problems"].as_array().unwrap();
    let bad = problems.iter().find(|problem| problem["code"] == "BAD_PATTERN").unwrap();
    assert_eq!(keys(bad), ["severity", "code", "line", "column", "message", "hint", "source"]);
    assert_eq!((&bad["line"], &bad["column"]), (&json!(6), &json!(11)));
    assert_eq!(answer["unknown_keys"][0]["line"], 4);
    // What cannot be understood is not planned.
    world
        .run(["stages", "plan", "STAGES.yml"])
        .code(2)
        .says("src/[a")
        .says("STAGES.yml has an error")
        .says("hint: ");
    let refused = world.run(["stages", "plan", "STAGES.yml", "--json"]).code(2).json();
    assert_eq!(refused["error"]["reason_code"], "BAD_STAGES");
    assert_eq!(refused["error"]["context"]["problems"][1]["code"], "BAD_PATTERN");
}

#[test]
fn strict_checks_refuse_unknown_keys() {
    let text = "parallel_groups: {P1: [{id: a, agents: [x], colour: red}]}\n";
    let world = world!().write("s.yml", text);
    world.run(["stages", "check", "s.yml"]).code(0).prints("1 unknown key");
    world.run(["stages", "check", "s.yml", "--strict"]).code(2);
    world.shell("lockkeeper stages check - < s.yml").code(0).prints("stdin:1:");
}

/// Requirements 127, 128, 129, 130.
#[test]
fn a_plan_has_the_keys_that_scripts_read() {
    let world = world!().write("STAGES.yml", EXAMPLE);
    let plan = world.run(["stages", "plan", "STAGES.yml", "P3", "--load", "0", "--json"]).code(0).json();
    for key in ["phase", "mode", "reason", "groups", "waves", "conflicts"] {
        assert!(keys(&plan).contains(&key), "{key}");
    }
    assert_eq!((&plan["phase"], &plan["mode"]), (&json!("P3"), &json!("MUTEX")));
    assert_eq!(plan["waves"], json!([["impl-backend", "impl-docs"], ["impl-frontend"]]));
    let conflict = &plan["conflicts"][0];
    assert_eq!(keys(conflict)[..7], ["group1", "group2", "type", "rule", "severity", "action", "witness"]);
    assert_eq!(conflict["witness"], "package.json");
    assert_eq!(plan["groups"][1]["excludes"][0]["group_id"], "impl-backend");
    let all = world.run(["stages", "plan", "STAGES.yml", "--load", "0", "--json"]).code(0).json();
    let modes: Vec<&str> =
        all["phases"].as_array().unwrap().iter().map(|plan| plan["mode"].as_str().unwrap()).collect();
    assert_eq!(modes, ["DIRECT", "PARALLEL", "MUTEX", "QUEUE", "SERIAL", "ABORT"]);
    let loaded = ["stages", "plan", "STAGES.yml", "P2", "--max-load", "4.0", "--json", "--load"];
    let mode = |load: &str, more: &[&str]| {
        let args: Vec<&str> = loaded.iter().copied().chain([load]).chain(more.iter().copied()).collect();
        world.run(args).code(0).json()["mode"].clone()
    };
    assert_eq!((mode("4.0", &[]), mode("4.01", &[])), (json!("PARALLEL"), json!("SERIAL")));
    let per_core =
        ["stages", "plan", "STAGES.yml", "P2", "--max-load-per-core", "2", "--cores", "8", "--load", "16.5"];
    world.run(per_core).code(0).prints("SERIAL").prints("per core");
}

#[test]
fn a_plan_explains_itself() {
    let world = world!().write("STAGES.yml", EXAMPLE);
    world.run(["stages", "plan", "STAGES.yml", "Phase3", "--load", "0"])
        .code(0)
        .prints("P3  MUTEX\n`impl-backend` and `impl-frontend` both match `package.json`: rule `shared_config` (FATAL) lets one of the two run at a time\n")
        .prints("not beside impl-frontend: both match package.json (rule shared_config)")
        .prints("about 900ms in all, 1.5s one by one");
    world.run(["stages", "plan", "STAGES.yml", "P3", "impl-docs"]).code(0).prints("DIRECT");
    world
        .run(["stages", "plan", "STAGES.yml", "P9"])
        .code(2)
        .says("no phase `P9`")
        .says("the phases are P1, P2");
    world.run(["stages", "plan", "STAGES.yml", "P3", "nobody"]).code(2).says("its groups are impl-backend");
    world.run(["stages", "plan", "none.yml"]).code(1).says("cannot read `none.yml`").says("hint: ");
    world.run(["stages", "plan", "STAGES.yml", "--load", "-1"]).code(2);
}

#[test]
fn a_plan_is_drawn_for_graphviz_and_as_a_picture() {
    let world = world!().write("STAGES.yml", EXAMPLE);
    let before = world.tree();
    world.run(["stages", "plan", "STAGES.yml", "P3", "--dot"]).code(0).prints("digraph stages {");
    world.run(["stages", "plan", "STAGES.yml", "P3", "--svg"]).code(0).prints("<svg xmlns=").prints("</svg>");
    world.run(["stages", "plan", "STAGES.yml", "--svg", "--dot"]).code(2);
    assert_eq!(world.tree(), before, "looking leaves nothing behind");
}

#[test]
fn a_file_cannot_steer_the_terminal() {
    let text =
        "parallel_groups: {P1: [{id: \"a\\e[2J\", agents: [x], \"k\\e[31m\": 1}]}\n\"\\e]0;x\\a\": 1\n";
    let world = world!().write("s.yml", text);
    for command in ["check", "plan"] {
        let done = world.run(["stages", command, "s.yml"]);
        assert!(!done.stdout().contains('\x1b') && !done.stderr().contains('\x1b'), "{command}");
    }
}

/// On a terminal there are totals, colours, and one line for all groups that have succeeded.
#[test]
fn a_person_at_a_terminal_sees_totals_and_finished_groups_folded() {
    let plan = "parallel_groups:\n  P1:\n    - group_id: api\n      agents: [x]\n      command: [\"true\"]\n    \
        - group_id: docs\n      agents: [y]\n      command: [\"true\"]\n    \
        - group_id: bad\n      agents: [z]\n      command: [\"false\"]\n";
    let world = world!().git().set("TERM", "xterm").write("STAGES.yml", plan);
    let line = format!("'{}' stages run STAGES.yml P1", world.program());
    let shown = world.on_terminal(&line).code(1).stdout();
    let last = shown.rsplit("P1: ").find(|part| part.contains("done, ")).unwrap();
    assert!(last.starts_with("2 of 3 groups done, 0 running, 0 waiting, 1 failed"), "{shown:?}");
    assert!(shown.contains("\u{1b}[32mdone: api, docs\u{1b}[0m"), "{shown:?}");
    assert!(last.contains("bad") && !last.contains("api  ["), "{last:?}");
    let plain = world.on_terminal(&format!("{line} --color never")).code(1).stdout();
    assert!(plain.contains("done: api, docs") && !plain.contains("\u{1b}[32m"), "{plain:?}");
}

/// Requirement 205.
#[test]
fn check_plan_and_run_agree_about_what_refuses_a_file() {
    let groups = "parallel_groups: {P1: [{id: a, command: 'touch ran', agents: [x], max_concurrent: 5}]}\n";
    let world = world!().with_state().write("STAGES.yml", groups);
    let commands: [&[&str]; 3] = [
        &["stages", "check", "STAGES.yml"],
        &["stages", "plan", "STAGES.yml", "--load", "0"],
        &["stages", "run", "STAGES.yml", "--load", "0"],
    ];
    for command in commands {
        world.run(command).code(2);
    }
    assert!(!world.path("ran").exists());
    let world = world.write(
        "STAGES.yml",
        &format!("{groups}validation: {{checks: [{{name: max_concurrent_valid, severity: WARNING}}]}}\n"),
    );
    for command in commands {
        world.run(command).code(0);
    }
    assert!(world.path("ran").exists());
}

/// Requirement 203. What `check` warns of is also said where it matters.
#[test]
fn plan_and_run_print_the_warnings_of_check() {
    let text = "parallel_groups: {P1: [{id: a, command: 'true', colour: red}]}\n\
        downgrade_rules: [{name: moon, trigger: 月亮变圆, to: serial}]\n";
    let world = world!().with_state().write("STAGES.yml", text);
    for command in ["plan", "run"] {
        let done = world.run(["stages", command, "STAGES.yml", "P1", "--load", "0"]).code(0);
        let done =
            done.says("warning: `moon` names no trigger that is known here").says(" --> STAGES.yml:2:");
        done.says("unknown key: STAGES.yml:1:");
        let quiet = world.run(["--json", "stages", command, "STAGES.yml", "P1", "--load", "0"]).code(0);
        assert_eq!(quiet.stderr(), "");
    }
}

/// Requirement 203. Bad input changes nothing: the phases that could run do not run, either.
#[test]
fn a_run_of_all_phases_is_refused_before_it_begins() {
    let text = "parallel_groups:\n  P1: [{id: a, command: 'touch ran'}]\n  P2: [{id: b, command: 'true', after: nobody}]\n";
    let world = world!().with_state().write("STAGES.yml", text);
    world
        .run(["stages", "run", "STAGES.yml", "--load", "0"])
        .code(2)
        .says("there is no group or phase `nobody`");
    assert!(!world.path("ran").exists());
    world.run(["stages", "run", "STAGES.yml", "P1", "--load", "0"]).code(0);
    assert!(world.path("ran").exists());
}

/// Requirement 158.
#[test]
fn a_stages_file_that_is_not_there_is_named_as_such_in_every_language() {
    let world = world!().with_state();
    let commands: [&[&str]; 3] =
        [&["stages", "run", "S.yml"], &["stages", "check", "S.yml"], &["stages", "plan", "S.yml"]];
    for command in commands {
        let error = world.run([&["--json"], command].concat()).code(1).json()["error"].take();
        assert_eq!(
            (&error["reason_code"], &error["title"]),
            (&json!("UNREADABLE"), &json!("The file cannot be read"))
        );
        world.run([&["--lang", "ja"], command].concat()).code(1).says("ファイルを読み取れません");
        world.run([&["--lang", "zh"], command].concat()).code(1).says("无法读取文件");
    }
    let pairs = world.run(["--json", "conflicts", "check", "--pairs", "nothing.tsv"]).json();
    assert_ne!(pairs["error"]["title"], "The output cannot be read", "{pairs}");
}
