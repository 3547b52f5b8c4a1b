//! `conflicts predict`: which other paths a change will touch, by the history of git.

use lockkeeper_testing::{World, world};
use serde_json::{Value, json};

use crate::past::{Edit, Story};

/// `src/api.rs` and `docs/api.md` go together; `src/web.rs` goes alone; `Cargo.lock` goes with both.
fn coupled() -> Story {
    let mut story = Story::new();
    story.commits(4, "api: change", &["src/api.rs", "docs/api.md"]);
    story.commits(4, "web: change", &["src/web.rs"]);
    story.commits(6, "web: depend", &["src/web.rs", "Cargo.lock"]);
    story.commits(8, "api: depend", &["src/api.rs", "docs/api.md", "Cargo.lock"]);
    story
}

fn in_repository(story: Story) -> World {
    let world = world!();
    story.told_in(&world);
    world
}

fn predicted(world: &World, args: &[&str]) -> Value {
    // Less likely paths than those of the default are looked at, too.
    let bar: &[&str] = if args.contains(&"--min-confidence") { &[] } else { &["--min-confidence", "0.2"] };
    world.run([&["conflicts", "predict", "--json"], bar, args].concat()).code(0).json()
}

fn paths(answer: &Value) -> Vec<&str> {
    let predictions = answer["groups"][0]["predictions"].as_array().unwrap();
    predictions.iter().map(|found| found["path"].as_str().unwrap()).collect()
}

/// Requirement 161.
#[test]
fn a_prediction_comes_with_its_evidence() {
    let world = in_repository(coupled());
    let usual = world.json(&["conflicts", "predict", "--paths", "src/api.rs"]);
    assert_eq!(paths(&usual), ["docs/api.md"], "advice begins at one half");
    let answer = predicted(&world, &["--paths", "src/api.rs"]);
    assert_eq!(paths(&answer), ["docs/api.md", "Cargo.lock"]);
    let found = &answer["groups"][0]["predictions"][0];
    let keys: Vec<&String> = found.as_object().unwrap().keys().collect();
    let expected =
        ["path", "likelihood", "pattern", "commits", "of", "goes_with", "commits_anywhere", "evidence"];
    assert_eq!(keys, expected);
    assert_eq!((&found["commits"], &found["of"]), (&json!(12), &json!(12)));
    assert_eq!(
        (&found["pattern"], &found["goes_with"]["path"]),
        (&json!("src/api.rs"), &json!("src/api.rs"))
    );
    let likelihood = found["likelihood"].as_f64().unwrap();
    assert!((0.7..0.9).contains(&likelihood), "12 of 12 is not certain: {likelihood}");
    let evidence = found["evidence"].as_array().unwrap();
    assert_eq!((evidence.len(), &evidence[0]["subject"]), (2, &json!("api: depend")));
    world.git_run(&["cat-file", "-e", evidence[0]["commit"].as_str().unwrap()]);
    assert_eq!(answer["groups"][0]["suggestions"], json!(["Cargo.lock", "docs/api.md"]));
    assert_eq!(answer["learned"], json!({ "commits": 22, "left_out": 0, "paths": 4, "shallow": false }));
    world
        .run(["conflicts", "predict", "--min-confidence", "0.2", "--paths", "src/api.rs"])
        .code(0)
        .prints("docs/api.md\n      in 12 of 12 commits that touched src/api.rs\n      last: ")
        .prints("api: depend; ")
        .says("to declare them too, add 'Cargo.lock' 'docs/api.md'");
}

/// Requirement 161.
#[test]
fn groups_that_are_apart_are_told_where_they_will_meet() {
    let world = in_repository(coupled());
    let groups = ["--group", "api=src/api.rs,docs/**", "--group", "web=src/{web,page}.rs"];
    let answer = predicted(&world, &groups);
    let meeting = &answer["collisions"][0];
    assert_eq!(
        (&meeting["a"], &meeting["b"], &meeting["path"]),
        (&json!("api"), &json!("web"), &json!("Cargo.lock"))
    );
    assert!(meeting["a_likelihood"].is_f64() && meeting["b_likelihood"].is_f64());
    assert_eq!((answer["collisions"].as_array().unwrap().len(), &answer["overlaps"]), (1, &json!([])));
    world
        .run([&["conflicts", "predict", "--min-confidence", "20%"], groups.as_slice()].concat())
        .code(0)
        .prints("api and web may both touch Cargo.lock: api ");
    let answer = predicted(&world, &["--group", "api=src/api.rs", "--group", "docs=docs/**"]);
    assert_eq!(answer["collisions"][0]["path"], "docs/api.md");
    assert!(answer["collisions"][0]["b_likelihood"].is_null(), "it is declared: {answer}");
    world
        .run(["conflicts", "predict", "--group", "all=src/**", "--group", "web=src/web.rs"])
        .code(0)
        .prints("all and web overlap already: both declare src/web.rs");
}

/// Requirement 161.
#[test]
fn who_holds_paths_now_is_a_group() {
    let world = in_repository(coupled());
    world.run(["conflicts", "predict", "--held"]).code(0).says("nobody holds paths now");
    world.acquire(&["--path", "src/api.rs", "--owner", "worker:one"]);
    world.acquire(&["--path", "docs/**", "--owner", "worker:two"]);
    world.acquire(&["only-a-name", "--owner", "worker:three"]);
    let answer = predicted(&world, &["--held"]);
    assert_eq!(answer["groups"].as_array().unwrap().len(), 2);
    let meetings = answer["collisions"].as_array().unwrap();
    assert!(meetings.iter().any(|met| met["path"] == "docs/api.md" && met["a"] == "worker:one"), "{answer}");
}

#[test]
fn a_file_keeps_its_history_when_it_is_renamed() {
    let mut story = Story::new();
    story.commits(5, "together", &["lib/old.rs", "guide/old.md"]);
    story.edit("move", &[Edit::Rename("lib/old.rs", "src/new.rs")]);
    story.edit(
        "move again",
        &[Edit::Rename("src/new.rs", "src/api.rs"), Edit::Rename("guide/old.md", "docs/api.md")],
    );
    let world = in_repository(story);
    let answer = predicted(&world, &["--paths", "src/**"]);
    assert_eq!(paths(&answer), ["docs/api.md"]);
    assert_eq!(answer["groups"][0]["predictions"][0]["commits"], 6);
    assert!(paths(&predicted(&world, &["--paths", "lib/**"])).is_empty(), "nothing is there any more");
}

#[test]
fn what_was_removed_is_not_predicted() {
    let mut story = coupled();
    story.edit("drop the documents", &[Edit::Remove("docs/api.md")]);
    let world = in_repository(story);
    assert_eq!(paths(&predicted(&world, &["--paths", "src/api.rs"])), ["Cargo.lock"]);
}

#[test]
fn sweeping_commits_are_left_out() {
    let mut story = coupled();
    let many: Vec<String> = (0..60).map(|number| format!("gen/{number}")).collect();
    let mut many: Vec<&str> = many.iter().map(String::as_str).collect();
    many.push("src/web.rs");
    story.commits(9, "reformat", &many);
    let world = in_repository(story);
    let answer = predicted(&world, &["--paths", "src/web.rs"]);
    assert_eq!((paths(&answer), &answer["learned"]["left_out"]), (vec!["Cargo.lock"], &json!(9)));
    assert!(paths(&predicted(&world, &["--paths", "src/web.rs", "--max-files", "61"])).len() > 9);
}

#[test]
fn any_byte_may_be_in_names_and_subjects() {
    let mut story = Story::new();
    let odd = b"we\x01ird\n\xffn\x1b[2Jame \"x\" \\".to_vec();
    for _ in 0..5 {
        let both = [(b'M', odd.clone(), Vec::new()), (b'M', b"src/a.rs".to_vec(), Vec::new())];
        story.raw(b"a \x1b[2J\xff subject", &both);
    }
    let world = in_repository(story).set("TERM", "xterm");
    let answer = predicted(&world, &["--paths", "src/**"]);
    assert_eq!(paths(&answer), ["we\u{1}ird\n\u{fffd}n\u{1b}[2Jame \"x\" \\"]);
    let shown = world
        .on_terminal(&format!("'{}' conflicts predict --paths 'src/**'", world.program()))
        .code(0)
        .stdout();
    assert!(shown.contains("[2Jame") && !shown.contains("\u{1b}[2J"), "{shown:?}");
}

#[test]
fn the_settings_of_a_person_change_nothing() {
    let world = in_repository(coupled());
    let before = predicted(&world, &["--paths", "src/api.rs"]);
    for setting in [
        "color.ui=always",
        "diff.relative=true",
        "diff.renames=false",
        "diff.external=false",
        "log.showSignature=true",
        "log.showRoot=false",
        "core.quotePath=true",
        "diff.noprefix=true",
        "format.pretty=oneline",
        "log.date=iso",
        "core.pager=false",
    ] {
        let (key, value) = setting.split_once('=').unwrap();
        world.git_run(&["config", "--global", key, value]);
    }
    let from_root = world.cwd().join("src/api.rs");
    let world = world.at("docs");
    assert_eq!(predicted(&world, &["--paths", from_root.to_str().unwrap()]), before);
}

#[test]
fn only_what_is_asked_for_is_learned_from() {
    let world = in_repository(coupled());
    let commits = |args: &[&str]| predicted(&world, args)["learned"]["commits"].as_u64().unwrap();
    // The commits are of 2023, one a day.
    assert_eq!(commits(&["--paths", "src/api.rs", "--since", "1d"]), 0);
    assert_eq!(commits(&["--paths", "src/api.rs", "--since", "2023-11-30"]), 7);
    assert_eq!(commits(&["--paths", "src/api.rs", "--max-commits", "5"]), 5);
    assert!(paths(&predicted(&world, &["--paths", "src/api.rs", "--min-support", "13"])).is_empty());
    let all = predicted(&world, &["--paths", "src/api.rs", "--min-confidence", "0", "--limit", "1"]);
    assert_eq!((paths(&all).len(), &all["groups"][0]["more"]), (1, &json!(1)));
}

#[test]
fn a_history_that_says_nothing_is_no_error() {
    let world = world!();
    world.git_run(&["init", "-q"]);
    world
        .run(["conflicts", "predict", "--paths", "src/**"])
        .code(0)
        .says("there are no commits to learn from")
        .says("paths: nothing is predicted");
    world.run(["conflicts", "predict", "--evaluate"]).code(0).says("there are no commits");
    let world = in_repository(coupled());
    world
        .run(["conflicts", "predict", "--paths", "no/such/**"])
        .code(0)
        .says("none of 22 commits touched its declared paths");
}

#[test]
fn a_shallow_clone_says_that_it_is_one() {
    let world = in_repository(coupled());
    let here = format!("file://{}", world.cwd().display());
    world.git_run(&["clone", "-q", "--depth", "4", &here, "shallow"]);
    let world = world.at("shallow");
    let answer = predicted(&world, &["--paths", "src/api.rs"]);
    assert_eq!(answer["learned"]["shallow"], true);
    world.run(["conflicts", "predict", "--paths", "src/api.rs"]).code(0).says("git fetch --unshallow");
}

#[test]
fn a_partial_clone_is_read_without_fetching() {
    let mut story = coupled();
    // Moved and changed at once: whether it is the same file is only in its contents.
    story.edit("move", &[Edit::Remove("docs/api.md"), Edit::Write("guide/api.md")]);
    let world = in_repository(story);
    world.git_run(&["config", "uploadpack.allowFilter", "true"]);
    let here = format!("file://{}", world.cwd().display());
    world.git_run(&["clone", "-q", "--no-checkout", "--filter=blob:none", &here, "partial"]);
    let world = world.at("partial");
    world.git_run(&["remote", "set-url", "origin", "file:///nowhere"]);
    assert_eq!(paths(&predicted(&world, &["--paths", "src/api.rs"])), ["Cargo.lock"]);
}

#[test]
fn bad_questions_are_refused() {
    let world = world!();
    world
        .run(["conflicts", "predict", "--paths", "src/**"])
        .code(2)
        .says("is not in a git repository")
        .says("hint: ");
    let world = in_repository(coupled());
    for args in [
        &["conflicts", "predict"] as &[&str],
        &["conflicts", "predict", "--group", "src/**"],
        &["conflicts", "predict", "--group", "=src/**"],
        &["conflicts", "predict", "--group", "a="],
        &["conflicts", "predict", "--group", "a=x", "--group", "a=y"],
        &["conflicts", "predict", "--paths", "a{"],
        &["conflicts", "predict", "--paths", "../x"],
        &["conflicts", "predict", "--paths", "a", "--min-confidence", "2"],
        &["conflicts", "predict", "--paths", "a", "--since", "soon"],
        &["conflicts", "predict", "--paths", "a", "--max-commits", "0"],
        &["conflicts", "predict", "--evaluate", "--held"],
    ] {
        let done = world.run(args).code(2).says("hint: ");
        assert_eq!(done.stdout(), "", "{args:?}");
    }
    let broken = world.set("PATH", "/nowhere");
    broken.run(["conflicts", "predict", "--paths", "a"]).code(1).says("cannot start git").says("hint: ");
}

/// Requirement 161. Predicted conflicts of a phase are advice, and a rule can act on them.
#[test]
fn a_plan_shows_predicted_conflicts_and_a_rule_acts_on_them() {
    let mut story = Story::new();
    story.commits(30, "api: settings", &["src/api.rs", "settings.json"]);
    story.commits(30, "web: settings", &["src/web.rs", "settings.json"]);
    story.commits(30, "web: notes", &["src/web.rs"]);
    story.commits(5, "docs: settings", &["docs/a.md", "settings.json"]);
    let world = in_repository(story);
    let groups = r#"
parallel_groups:
  P1:
    - {group_id: api, agents: [a], conflict_paths: ["src/api.rs"]}
    - {group_id: settings, agents: [b], conflict_paths: ["settings.json"]}
    - {group_id: web, agents: [c], conflict_paths: ["src/web.rs"]}
"#;
    let rule = "conflict_detection:\n  rules: [{name: foreseen, severity: MAJOR, action: mutex_lock, min_probability: 70%, paths: [settings.json]}]\n";
    let plan = |more: &str, args: &[&str]| {
        std::fs::write(world.path("STAGES.yml"), format!("{groups}{more}")).unwrap();
        world.run([&["stages", "plan", "STAGES.yml", "P1", "--load", "0"], args].concat()).code(0)
    };
    assert_eq!(plan("", &["--json"]).json()["conflicts"], json!([]));
    let advised = plan("", &["--json", "--predict"]).json();
    assert_eq!(advised["mode"], "PARALLEL", "{advised}");
    let found = &advised["conflicts"][0];
    assert_eq!(
        (&found["group1"], &found["group2"], &found["witness"]),
        (&json!("api"), &json!("settings"), &json!("settings.json"))
    );
    assert_eq!((&found["type"], &found["action"]), (&json!("PREDICTED"), &json!("advice")), "{advised}");
    let all = advised["conflicts"].as_array().unwrap();
    assert!(all.iter().all(|one| one["probability"].as_f64().unwrap() >= 0.5), "{advised}");
    assert!(all.iter().all(|one| one["group2"] != "web"), "half of the commits are not enough: {advised}");
    plan("", &["--predict"]).prints("% (advice): api and settings will probably both change settings.json");
    let picture = plan("", &["--predict", "--svg"]).stdout();
    assert!(picture.contains("meet minor likely"), "{picture}");
    plan("", &["--predict", "--dot"]).prints("style=dashed");
    let ruled = plan(rule, &["--json", "--predict"]).json();
    assert_eq!(
        (&ruled["mode"], &ruled["conflicts"][0]["rule"]),
        (&json!("MUTEX"), &json!("foreseen")),
        "{ruled}"
    );
    assert_eq!(plan(rule, &["--json"]).json()["mode"], "PARALLEL");
}
