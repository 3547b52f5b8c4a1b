//! `config`: every setting and where it comes from.

use lockkeeper_testing::world;
use serde_json::Value;

fn setting(answer: &Value, key: &str) -> (Value, String) {
    let all = answer["settings"].as_array().unwrap();
    let found = all.iter().find(|setting| setting["key"] == key).unwrap();
    (found["value"].clone(), found["source"].as_str().unwrap().to_owned())
}

#[test]
fn every_source_is_named() {
    let world = world!().write("lockkeeper.toml", "grace = \"4s\"\nlang = \"ja\"\nttl = \"1m\"\n");
    let user = world.home().join(".config/lockkeeper");
    std::fs::create_dir_all(&user).unwrap();
    std::fs::write(user.join("config.toml"), "wait = \"7s\"\nttl = \"2m\"\n").unwrap();
    let world = world.set("LOCKKEEPER_LANG", "zh");
    let answer = world.run(["config", "--json", "--color", "never"]).code(0).json();
    assert_eq!(setting(&answer, "ticket_ttl"), ("2m".into(), "default".to_owned()));
    assert_eq!(setting(&answer, "lang"), ("zh".into(), "environment LOCKKEEPER_LANG".to_owned()));
    assert_eq!(setting(&answer, "color"), ("never".into(), "flag --color".to_owned()));
    assert_eq!(setting(&answer, "ttl").0, "1m");
    assert!(setting(&answer, "ttl").1.ends_with("lockkeeper.toml"));
    assert!(setting(&answer, "wait").1.ends_with(".config/lockkeeper/config.toml"));
    assert_eq!(setting(&answer, "owner"), (Value::Null, "default".to_owned()));
    let files: Vec<(&str, bool)> = (answer["files"].as_array().unwrap().iter())
        .map(|file| (file["of"].as_str().unwrap(), file["exists"].as_bool().unwrap()))
        .collect();
    assert_eq!(files, [("user", true), ("project", true)]);
    world.run(["config"]).code(0).prints("SETTING").prints("would be made here").prints("lockkeeper.toml");
}

#[test]
fn files_that_are_not_there_are_named() {
    let world = world!();
    let text = world.run(["config"]).code(0).stdout();
    for file in [".config/lockkeeper/config.toml  (not there)", "lockkeeper.toml  (not there)"] {
        assert!(text.contains(file), "{text}");
    }
}

#[test]
fn settings_are_used() {
    let world = world!().write("lockkeeper.toml", "wait = \"20ms\"\nowner = \"worker:project\"\n");
    world.run(["acquire", "db", "--ttl", "1m", "--json"]).code(0).prints("worker:project");
    world.run(["exec", "db", "--owner", "worker:other", "--", "true"]).code(75).says("worker:project");
}
