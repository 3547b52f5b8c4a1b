//! `conflicts check`: can two patterns match one same path?

use serde_json::{Value, json};

use crate::env::Env;

/// Requirements 116, 117, 118 and 119.
#[test]
fn conflicts_are_typed_and_have_a_witness() {
    let env = Env::new();
    let answer = env
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
    env.run(["conflicts", "check", "src", "src"]).code(75).prints("EXACT");
    env.run(["conflicts", "check", "src/**", "src/a/b"]).code(75).prints("PARENT_CHILD");
    env.run(["conflicts", "check", "docs/a", "docs/b"]).code(0).prints("SAME_DIR").says("no conflict");
    assert_eq!(
        env.run(["conflicts", "check", "a/x", "b/x", "--json"]).code(0).json(),
        json!({ "conflicts": [] })
    );
}

#[test]
fn folders_of_backend_and_frontend_do_not_conflict() {
    let env = Env::new();
    let backend = ["src/backend/**", "src/api/**", "src/migrations/**"];
    let frontend = ["src/frontend/**", "src/components/**"];
    for a in backend {
        for b in frontend {
            env.run(["conflicts", "check", a, b]).code(0);
        }
    }
}

#[test]
fn many_pairs_come_as_a_line_each() {
    let env = Env::new().write("pairs.tsv", "src/**\tsrc/a.rs\na\tb/c\n");
    let text = env.run(["conflicts", "check", "--pairs", "pairs.tsv"]).code(75).stdout();
    let lines: Vec<Value> = text.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    assert_eq!(
        (&lines[0]["type"], &lines[1]["type"], lines.len()),
        (&"PARENT_CHILD".into(), &"NONE".into(), 2)
    );
    let piped = env.shell("printf 'a\\tb/c\\nbroken\\n' | lockkeeper conflicts check --pairs -").code(2);
    assert!(piped.stdout().lines().nth(1).unwrap().contains("\"error\""));
    env.run(["conflicts", "check", "--pairs", "no-such-file"]).code(1).says("hint: ");
}
