//! How a server is named, and who may use it.

use std::fs;
use std::os::unix::fs::PermissionsExt;

use super::server::{self, Serving};
use super::team::{Team, machine};

#[test]
fn a_server_serves_one_project_only() {
    let team = Team::new().unwrap();
    let stranger = machine(&team.server, "another");
    let says = format!("it serves the project `{}`", team.project);
    stranger.run(["exec", "db", "--", "true"]).code(69).says(&says);
}

#[test]
fn a_server_without_a_project_is_no_store() {
    let address = server::of_tests().unwrap();
    let _serving = Serving::start(&address, "", &["--no-token", "--yes"]);
    machine(&address, "p").run(["exec", "db", "--", "true"]).code(69).says("not the store of a project");
}

#[test]
fn the_token_is_read_from_a_file_that_nobody_else_reads() {
    let address = server::of_tests().unwrap();
    let serving = Serving::start(&address, "p", &[]);
    let token = serving.world.path(".lockkeeper/server.token");
    machine(&address, "p").run(["exec", "db", "--", "true"]).code(69).says("a token is needed");
    let member = machine(&address, "p").set("LOCKKEEPER_PASSWORD_FILE", &token);
    member.run(["exec", "db", "--", "true"]).code(0);
    let secret = fs::read_to_string(&token).unwrap();
    let shown = member.run(["config"]).code(0).stdout();
    assert!(!shown.contains(secret.trim()), "{shown}");
    fs::set_permissions(&token, fs::Permissions::from_mode(0o644)).unwrap();
    member.run(["exec", "db", "--", "true"]).code(2).says("others can read");
}

#[test]
fn what_others_could_read_on_the_way_is_refused() {
    for (address, says) in [
        ("http://locks.example:7272", "unencrypted"),
        ("http://secret@localhost:7272", "contains a password"),
        ("http://localhost:7272?tls=no", "unknown option"),
    ] {
        let refused = machine(address, "p").run(["exec", "db", "--", "true"]).code(2).says(says);
        assert!(!refused.stderr().contains("secret"), "{}", refused.stderr());
    }
}
