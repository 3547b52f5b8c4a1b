//! Pages whose files are those of `examples/`, and whose commands print what the page shows: docs/guide, and others.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;

use lockkeeper_testing::{World, is_installed, skip, world};

use crate::docs;
use crate::examples::{blocks, files, plain, run, steps};

/// The rest of the output differs from run to run.
const REST: &str = "…";

/// Runs all commands of a page in a new repository that has the files of the page.
pub(crate) fn follow(page: &str) {
    follow_in(page, &with_program(world!().git(), &std::env::var("PATH").unwrap()));
}

/// A world whose search path has the program first.
pub(crate) fn with_program(world: World, path: &str) -> World {
    let folder = Path::new(world.program()).parent().unwrap().display().to_string();
    world.set("PATH", format!("{folder}:{path}"))
}

/// Runs all commands of a page in this world, which gets the files of the page.
fn follow_in(page: &str, world: &World) {
    let text = fs::read_to_string(docs().join(format!("{page}.md"))).unwrap();
    let examples = docs().join("../examples").join(Path::new(page).file_name().unwrap());
    for (name, text) in files(&text) {
        let example = examples.join(name);
        assert_eq!(fs::read_to_string(&example).unwrap_or_default(), text, "{}", example.display());
        fs::write(world.path(name), text).unwrap();
        let mode = fs::metadata(&example).unwrap().permissions().mode();
        fs::set_permissions(world.path(name), fs::Permissions::from_mode(mode)).unwrap();
    }
    let steps: Vec<_> = blocks(&text).iter().flat_map(|block| steps(block)).collect();
    assert!(!steps.is_empty(), "{page} has no command");
    for (command, expected) in steps {
        let story = run(world, &command);
        let left = without_expected(&format!("{page}: `{command}`"), &story, &expected);
        let is_whole = !expected.iter().any(|line| line == REST);
        assert!(!is_whole || left.is_empty(), "{page}: `{command}` also prints {left:#?}");
    }
}

/// What a command printed besides the lines that are expected. All of these have to be there.
pub(crate) fn without_expected(what: &str, story: &[String], expected: &[String]) -> Vec<String> {
    let mut printed: Vec<String> = story.iter().map(|line| plain(line)).collect();
    for line in expected.iter().filter(|line| *line != REST) {
        let found = printed.iter().position(|one| *one == plain(line));
        let found = found.unwrap_or_else(|| panic!("{what} prints no `{line}`: {story:#?}"));
        printed.remove(found);
    }
    printed
}

/// Claude Code and Codex seem to be installed: their settings folders are there, and no program of an agent is.
pub(crate) fn home_with_agents() -> World {
    let world = with_program(world!().git(), "/usr/bin:/bin");
    for folder in [".claude", ".codex"] {
        fs::create_dir_all(world.home().join(folder)).unwrap();
    }
    world
}

#[test]
fn scripts_and_cron_jobs_take_locks() {
    follow("guide/scripts-and-cron");
}

#[test]
fn several_makes_share_a_folder() {
    if !is_installed("make") {
        return skip("make");
    }
    follow("guide/make");
}

#[test]
fn jobs_of_ci_share_a_state_folder() {
    follow("guide/ci");
}

#[test]
fn a_shared_store_is_named_with_its_project() {
    follow("guide/teams");
}

#[test]
fn a_queue_executes_a_list_of_jobs() {
    follow("guide/queue");
}

#[test]
fn groups_of_a_plan_run_where_they_do_not_conflict() {
    follow("guide/stages");
}

#[test]
fn claims_in_a_monorepo_name_the_common_path() {
    follow("guide/monorepo-claims");
}

#[test]
fn python_and_node_take_locks_through_the_command() {
    if !(is_installed("python3") && is_installed("node")) {
        return skip("python3 and node");
    }
    follow("guide/python-and-node");
}

#[test]
fn an_old_token_is_refused_by_the_resource() {
    follow("internals/locking");
}

#[test]
fn the_commands_about_conflicts_print_what_the_page_says() {
    follow("reference/conflicts");
}

#[test]
fn agents_are_set_up_examined_and_removed() {
    follow_in("guide/agents", &home_with_agents());
}

#[test]
fn every_page_of_the_guide_is_run() {
    let source = include_str!("guide.rs");
    for entry in fs::read_dir(docs().join("guide")).unwrap() {
        let page = entry.unwrap().file_name().into_string().unwrap();
        let page = page.trim_end_matches(".md");
        assert!(
            ["follow", "follow_in"]
                .iter()
                .any(|follow| source.contains(&format!("{follow}(\"guide/{page}\""))),
            "{page}"
        );
    }
}

/// Otherwise the doctor warns of a folder that other users may read.
#[test]
fn the_folder_that_lets_agents_take_part_is_only_for_its_owner() {
    let text = fs::read_to_string(docs().join("guide/agents.md")).unwrap();
    let command = text.split('`').find(|code| code.contains("mkdir") && code.contains("lockkeeper/agents"));
    let world = world!().git();
    world.shell(&format!("umask 022; {}", command.expect("the page says how"))).code(0);
    assert!(world.path(".git/lockkeeper/agents").is_dir());
    let doctor = world.run(["doctor", "--quick"]).stdout();
    assert!(!doctor.contains("other users may"), "{doctor}");
}
