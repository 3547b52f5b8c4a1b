//! docs/reference: the page of commands and the tables of settings and of patterns are those of the code.

use std::fs;

use lockkeeper_testing::world;

use crate::guide::follow;
use crate::{docs, hold_to};

const BEGIN: &str = "<!-- settings:";
const END: &str = "<!-- end of settings -->";

#[test]
fn the_page_of_settings_has_the_table_of_the_code() {
    let world = world!();
    let code = include_str!("../../../engine/src/config/keys.rs");
    let mut table = String::from("| setting | variable | default | meaning |\n|---|---|---|---|\n");
    for setting in world.json(&["config"])["settings"].as_array().unwrap() {
        let key = setting["key"].as_str().unwrap();
        // The world sets the variables of two settings, whose names are those of other systems.
        let from = setting["source"].as_str().unwrap().strip_prefix("environment ").map(str::to_owned);
        let value = setting["value"].as_str().filter(|_| from.is_none());
        let default = value.map_or("-".to_owned(), |value| format!("`{value}`"));
        let usual = || format!("LOCKKEEPER_{}", key.to_uppercase().replace('.', "_"));
        let variable = from.unwrap_or_else(usual);
        assert!(code.contains(&format!("variable: \"{variable}\"")), "{variable}");
        let meaning = setting["meaning"].as_str().unwrap();
        table.push_str(&format!("| `{key}` | `{variable}` | {default} | {meaning} |\n"));
    }
    let page = "reference/config.md";
    let text = fs::read_to_string(docs().join(page)).unwrap();
    let begin = text.find(BEGIN).unwrap();
    let body = begin + text[begin..].find('\n').unwrap() + 1;
    let end = text.find(END).unwrap();
    hold_to(page, &format!("{}\n{table}\n{}", &text[..body], &text[end..]));
}

#[test]
fn the_page_of_commands_is_made_from_their_definitions() {
    hold_to("reference/cli.md", &world!().run(["man", "--markdown"]).code(0).stdout());
}

#[test]
fn the_page_of_patterns_has_the_grammar_of_the_code() {
    let code = include_str!("../../../core/src/pattern.rs");
    let table: Vec<&str> = code.lines().filter_map(|line| line.strip_prefix("//! |")).collect();
    assert!(table.len() > 5, "{table:?}");
    let text = fs::read_to_string(docs().join("reference/patterns.md")).unwrap();
    for row in table {
        assert!(text.contains(&format!("\n|{row}\n")), "{row}");
    }
}

#[test]
fn the_examples_of_patterns_work_as_written() {
    follow("reference/patterns");
}
