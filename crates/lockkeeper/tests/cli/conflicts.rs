//! `conflicts check`: can two patterns match one same path?

use lockkeeper_testing::world;
use serde_json::{Value, json};

/// Requirements 116, 117, 118 and 119.
#[test]
fn conflicts_are_typed_and_have_a_witness() {
    let world = world!();
    let answer = world
        .run(["conflicts", "check", "src/**/*.rs", "src/api/**", "docs/a", "docs/b", "--json"])
        .code(75)
        .json();
    let found = answer["conflicts"].as_array().unwrap();
    assert_eq!(
        (&found[0]["type"], &found[1]["type"], found.len()),
        (&"OVERLAP".into(), &"SAME_DIR".into(), 2)
    );
    assert!(found[0]["witness"].is_string() && found[1]["witness"].is_null());
    assert_eq!(found[0].as_object().unwrap().keys().collect::<Vec<_>>(), ["a", "b", "type", "witness"]);
    world.run(["conflicts", "check", "src", "src"]).code(75).prints("EXACT");
    world.run(["conflicts", "check", "src/**", "src/a/b"]).code(75).prints("PARENT_CHILD");
    world.run(["conflicts", "check", "docs/a", "docs/b"]).code(0).prints("SAME_DIR").says("no conflict");
    assert_eq!(
        world.run(["conflicts", "check", "a/x", "b/x", "--json"]).code(0).json(),
        json!({ "conflicts": [] })
    );
}

#[test]
fn folders_of_backend_and_frontend_do_not_conflict() {
    let world = world!();
    let backend = ["src/backend/**", "src/api/**", "src/migrations/**"];
    let frontend = ["src/frontend/**", "src/components/**"];
    for a in backend {
        for b in frontend {
            world.run(["conflicts", "check", a, b]).code(0);
        }
    }
}

#[test]
fn many_pairs_come_as_a_line_each() {
    let world = world!().write("pairs.tsv", "src/**\tsrc/a.rs\na\tb/c\n");
    let text = world.run(["conflicts", "check", "--pairs", "pairs.tsv"]).code(75).stdout();
    let lines: Vec<Value> = text.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    assert_eq!(
        (&lines[0]["type"], &lines[1]["type"], lines.len()),
        (&"PARENT_CHILD".into(), &"NONE".into(), 2)
    );
    let piped = world.shell("printf 'a\\tb/c\\nbroken\\n' | lockkeeper conflicts check --pairs -").code(2);
    assert!(piped.stdout().lines().nth(1).unwrap().contains("\"error\""));
    world.run(["conflicts", "check", "--pairs", "no-such-file"]).code(1).says("hint: ");
}

#[test]
fn neighbours_are_told_once_a_pattern_and_not_in_pairs() {
    let world = world!();
    let names: Vec<String> = (0..200).map(|number| format!("src/{number}.rs")).collect();
    let args = ["conflicts", "check", "--json"].into_iter().chain(names.iter().map(String::as_str));
    let answer = world.run(args).code(0).json();
    assert_eq!(answer["conflicts"].as_array().unwrap().len(), 199);
}

#[test]
fn a_bad_pattern_is_shown_with_the_place_of_the_mistake() {
    let world = world!();
    world.run(["conflicts", "check", "src/**", "src/[ab"]).code(2).says("`src/[ab`").says("column 5");
    let error = world.run(["conflicts", "match", "a/{b", "--json"]).code(2).json();
    let context = &error["error"]["context"];
    assert_eq!((&context["pattern"], &context["column"]), (&"a/{b".into(), &3.into()));
    world.run(["conflicts", "check", "a", ""]).code(2).says("a pattern is empty");
}

/// Requirement 123.
#[test]
fn matching_lists_what_git_tracks_and_what_is_new_but_nothing_ignored() {
    let world = world!()
        .git()
        .write(".gitignore", "*.log\n")
        .write("src/a.rs", "")
        .write("src/new\nline.rs", "")
        .write("src/x.log", "")
        .write("docs/a.md", "");
    world.git_run(&["add", "src/a.rs"]);
    let listed = world.run(["conflicts", "match", "src/**", "**/*.md", "-z"]).code(0).stdout();
    let mut paths: Vec<&str> = listed.split_terminator('\0').collect();
    paths.sort_unstable();
    assert_eq!(paths, ["docs/a.md", "src/a.rs", "src/new\nline.rs"]);
    let answer = world.run(["conflicts", "match", "docs", "*/a.*", "--json"]).code(0).json();
    let found = answer["paths"].as_array().unwrap();
    assert_eq!((&answer["matched"], found.len()), (&2.into(), 2));
    assert_eq!(
        found.iter().find(|one| one["path"] == "docs/a.md").unwrap()["patterns"],
        json!(["docs", "*/a.*"])
    );
    world.run(["conflicts", "match", "none/**"]).code(0).says("none of ");
    let below = world.at("src");
    assert_eq!(below.run(["conflicts", "match", "docs"]).code(0).stdout(), "docs/a.md\n");
}

#[test]
fn matching_reads_other_paths_where_told() {
    let world = world!().write("paths", "src/a.rs\r\n\nsrc/b.ts\ndocs/c\n");
    assert_eq!(
        world.run(["conflicts", "match", "src/*", "--paths", "paths"]).code(0).stdout(),
        "src/a.rs\nsrc/b.ts\n"
    );
    let piped = world.shell("printf 'a\\nb\\0c\\0' | lockkeeper conflicts match -z --paths - '*'").code(0);
    assert_eq!(piped.stdout(), "a\nb\0c\0");
    world.run(["conflicts", "match", "x", "--paths", "missing"]).code(1).says("cannot read missing");
    world.run(["conflicts", "match", "x"]).code(2).says("--paths FILE");
    world.run(["conflicts", "match"]).code(2);
}

const LOG: &str = concat!(
    r#"{"timestamp":"2025-10-09T10:30:00Z","phase":"P3","group1":"impl-backend","group2":"impl-frontend","conflict_type":"SAME_DIR","path1":"src/api/users.ts","path2":"src/api/posts.ts"}"#,
    "\n",
    r#"{"timestamp":"2025-10-09T10:31:00Z","phase":"P3","group1":"impl-frontend","group2":"impl-backend","conflict_type":"EXACT","path1":"a","path2":"a","rule":"same_file_write","later_field":1}"#,
    "\n",
    r#"{"timestamp":"2025-10-09T10:32:00Z","phase":"P4","group1":"x","group2":"impl-backend","conflict_type":"EXACT","path1":"a","path2":"a"}"#,
    "\n",
    r#"{"timestamp":"2025-10-09T10:33:00Z","phase":"P4","gro"#,
);

/// Requirements 135, 137.
#[test]
fn the_report_sums_up_the_log_by_pair_type_and_rule() {
    let world = world!().git().write(".workflow/STAGES.yml", "").write(".workflow/logs/conflicts.log", LOG);
    let report = world.run(["conflicts", "report", "--json"]).code(0).json();
    assert_eq!((&report["lines"], &report["bad_lines"]), (&3.into(), &1.into()));
    assert_eq!(report["types"], json!({ "EXACT": 2, "SAME_DIR": 1 }));
    assert_eq!(report["phases"], json!({ "P3": 2, "P4": 1 }));
    assert_eq!(
        report["rules"],
        json!([{ "rule": null, "lines": 2 }, { "rule": "same_file_write", "lines": 1 }])
    );
    let pair = &report["pairs"][0];
    assert_eq!((&pair["group1"], &pair["group2"]), (&"impl-backend".into(), &"impl-frontend".into()));
    assert_eq!((&pair["lines"], &pair["last"]["path1"]), (&2.into(), &"a".into()));
    assert_eq!(report["last_at"], "2025-10-09T10:32:00Z");
    let text = world.run(["conflicts", "report"]).code(0).prints("same_file_write").says("1 of the lines");
    assert_eq!(text.stdout().lines().last(), Some("3 lines: EXACT 2, SAME_DIR 1"));
}

/// Requirement 137.
#[test]
fn a_report_without_a_log_is_empty_unless_the_log_was_named() {
    let world = world!().git();
    world.run(["conflicts", "report"]).code(0).says("no conflict is logged in ");
    assert_eq!(world.run(["conflicts", "report", "--json"]).code(0).json()["lines"], 0);
    world.run(["conflicts", "report", "--log", "none.log"]).code(1).says("hint: ");
    let world = world.write("ci/logs/conflicts.log", LOG).write("other.log", LOG);
    assert_eq!(world.run(["conflicts", "report", "ci/STAGES.yml", "--json"]).code(0).json()["lines"], 3);
    assert_eq!(world.run(["conflicts", "report", "--log", "other.log", "--json"]).code(0).json()["lines"], 3);
}
