//! What people are used to: the flags of flock(1), names instead of ids, and a warning where a lock is not shared.

use lockkeeper_testing::world;

#[test]
fn exec_has_the_flags_of_flock() {
    let world = world!().with_state();
    let holder = world.hold(&["db"]);
    world.run(["exec", "-n", "db", "--", "touch", "ran"]).code(75);
    world.run(["exec", "-w", "0.1", "db", "-c", "touch ran"]).code(75);
    world.run(["exec", "-w", "soon", "db", "--", "touch", "ran"]).code(2).says("not a duration");
    world.run(["exec", "-n", "-w", "1", "db", "--", "touch", "ran"]).code(2);
    assert!(!world.path("ran").exists());
    holder.finish().code(0);
    world.run(["exec", "db", "-c", "echo held $LOCKKEEPER_LEASE; exit 3"]).code(3).prints("held L");
    world.run(["exec", "db", "-c", "true", "--", "true"]).code(2);
    let world = world.set("SHELL", "/bin/echo");
    world.run(["exec", "db", "-c", "a line"]).code(0).prints("-c a line");
}

#[test]
fn an_unknown_flag_leads_to_what_was_meant() {
    let world = world!();
    for (args, hint) in [
        (&["locks", "--path", "src"][..], "hint: `lockkeeper why NAME`"),
        (&["locks", "--wacth"], "hint: did you mean `--watch`?"),
        (&["exec", "--zzz", "db", "--", "true"], "hint: `lockkeeper exec --help` lists the arguments"),
        (&["acquire", "db", "--ttl", "0"], "error: a TTL of 0s is out of range"),
    ] {
        let refused = world.run(args).code(2);
        assert!(refused.stderr().contains(hint), "{refused:?}");
    }
}

/// The hint has the words of the user, and never leads to a command that takes the locks of others.
#[test]
fn a_near_miss_leads_to_the_right_command() {
    let world = world!().with_state();
    world.acquire(&["db", "--owner", "worker:1"]);
    for (line, meant) in [
        ("locks release db", "`lockkeeper release db`"),
        ("locks free db", "`lockkeeper release db`"),
        ("locks releas db", "`lockkeeper locks --help`"),
        ("locks forse-release-all", "`lockkeeper locks --help`"),
        ("locks force-release", "`force-release-all`"),
        ("runs show links", "`lockkeeper run show links`"),
        ("runs logs links -f", "`lockkeeper run logs links -f`"),
        ("runs wait links", "`lockkeeper run wait links`"),
        ("runs cancel links", "`lockkeeper run cancel links`"),
        ("runs retry links", "`lockkeeper run retry links`"),
        ("runs events links", "`lockkeeper run events links`"),
        ("requests cancel links", "`lockkeeper run cancel links`"),
        ("requests retry links", "`lockkeeper run retry links`"),
        ("requests retry", "`lockkeeper run retry RUN`"),
        ("run list", "`lockkeeper runs`"),
        ("queue status", "`lockkeeper queue list`"),
        ("queue show", "`lockkeeper queue list`"),
        ("queue start", "`lockkeeper work`"),
        ("queue add make test", "`lockkeeper submit -- make test`"),
        ("queue add -- make test", "`lockkeeper submit -- make test`"),
        ("submit --name nightly -- true", "`lockkeeper submit --id nightly -- true`"),
        ("exec -s db -- true", "`lockkeeper exec --shared db -- true`"),
        ("exec -x db -- true", "`lockkeeper exec db -- true`"),
        ("acquire db -w 5", "`lockkeeper acquire db --wait 5`"),
        ("work -j 0", "`lockkeeper work --help`"),
        ("unlock db", "`lockkeeper release db`"),
        ("unlock", "`lockkeeper release LEASE`"),
        ("version", "`lockkeeper --version`"),
    ] {
        let said = world.run(line.split(' ')).code(2).stderr();
        let hint = said.lines().find(|line| line.starts_with("hint: ")).unwrap_or_default();
        assert!(hint.contains(meant), "{line}: {said}");
    }
}

#[test]
fn a_lease_is_released_by_the_name_that_it_holds() {
    let world = world!().with_state();
    world.run(["release", "db"]).code(2).says("nobody holds that name");
    world.acquire(&["db", "--owner", "worker:1"]);
    world.run(["release", "db", "--owner", "worker:2"]).code(75).says("worker:1");
    world.run(["locks", "--owner", "worker:2"]).code(0).says("worker:2 holds nothing and waits for nothing");
    world.run(["renew", "db", "--owner", "worker:1"]).code(0).says("renewed: L");
    world.run(["release", "db", "--owner", "worker:1"]).code(0).says("released: L");
    let leases = [world.acquire(&["x", "--shared"]), world.acquire(&["x", "--shared"])];
    let refused = world.run(["release", "x"]).code(2).says("several leases");
    for lease in &leases {
        assert!(refused.stderr().contains(lease.as_str()), "{}", refused.stderr());
    }
    world.run(["release", &leases[0]]).code(0);
    world.run(["release", "x"]).code(0);
}

#[test]
fn all_own_leases_are_released_at_once() {
    let world = world!().with_state();
    world.run(["release", "--mine"]).code(0).says("0 released");
    assert!(!world.path("state").exists());
    let mine = [world.acquire(&["a", "--owner", "worker:1"]), world.acquire(&["b", "--owner", "worker:1"])];
    world.acquire(&["c", "--owner", "worker:2"]);
    let done = world.run(["release", "--mine", "--owner", "worker:1", "--json"]).code(0).json();
    let ids: Vec<&str> =
        done["leases"].as_array().unwrap().iter().map(|lease| lease["id"].as_str().unwrap()).collect();
    assert_eq!(ids, mine);
    let left = world.run(["locks", "--json"]).code(0).json();
    assert_eq!(left["leases"].as_array().unwrap().len(), 1);
    world.run(["release", "--mine", "a"]).code(2);
    // The lease of `exec` protects the command that calls it.
    let script = format!("'{}' release --mine", world.program());
    world.run(["exec", "d", "-c", &script]).code(0).prints("(c)").says("1 released");
}

#[test]
fn leases_are_broken_by_name_and_listed_by_owner() {
    let world = world!().with_state();
    world.acquire(&["db", "--owner", "claude:S1:sub"]);
    world.acquire(&["log", "--owner", "claude:S10"]);
    let names = |owner: &str| {
        let listing = world.run(["locks", "--json", "--owner", owner]).code(0).json();
        let leases = listing["leases"].as_array().unwrap().clone();
        leases
            .iter()
            .map(|lease| lease["resources"][0]["name"].as_str().unwrap().to_owned())
            .collect::<Vec<_>>()
    };
    assert_eq!(names("claude:S1"), ["db"]);
    assert_eq!(names("claude:S10"), ["log"]);
    assert_eq!(names("claude"), ["db", "log"]);
    assert!(names("codex").is_empty());
    world.run(["locks", "break", "db"]).code(2).says("lockkeeper locks break db --yes");
    world.run(["locks", "break", "db", "--yes"]).code(0).says("1 broken");
    world.run(["locks", "break", "db", "--yes"]).code(2).says("nobody holds that name");
}

#[test]
fn a_new_state_folder_outside_of_git_is_warned_of_once() {
    let warning = "the same name in another folder is another lock";
    let world = world!();
    world.run(["exec", "db", "--", "true"]).code(0).says(warning).says("LOCKKEEPER_DIR");
    world.run(["exec", "db", "--", "true"]).code(0).silent();
    let world = world.at("../other");
    world.run(["acquire", "db", "--ttl", "1m"]).code(0).says(warning);
    let queue = "the queue is in";
    let world = world.at("../queue");
    world.run(["submit", "--", "true"]).code(0).says(queue).says("another folder has another queue");
    world.run(["submit", "--", "true"]).code(0).says("queued");
    world.run(["work", "--drain", "--quiet"]).code(0).silent();
    let world = world.at("../worker");
    world.run(["work", "--drain"]).code(0).says(queue);
    let json = world.at("../third");
    assert!(!json.run(["acquire", "db", "--ttl", "1m", "--json"]).code(0).stderr().contains(warning));
    world!().with_state().run(["exec", "db", "--", "true"]).code(0).silent();
    world!().git().run(["exec", "db", "--", "true"]).code(0).silent();
}
