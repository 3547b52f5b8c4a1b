//! Tools that claim, wait, release and hand over.

use lockkeeper_testing::until;
use serde_json::{Value, json};

use crate::peer::{Harness, Peer, holders, repository};

fn file() -> Value {
    json!({ "paths": ["src/a.rs"] })
}

/// The owner of the only agent that the board shows with this claim.
fn owner_of(peer: &mut Peer, path: &str) -> String {
    let board = peer.call("board", &json!({ "path": path }));
    let agents = board["agents"].as_array().unwrap();
    let holds = |agent: &&Value| agent["claims"].as_array().unwrap().contains(&json!(path));
    agents.iter().find(holds).unwrap()["owner"].as_str().unwrap().to_owned()
}

#[test]
fn a_conflict_is_a_result_with_a_place_in_line() {
    let world = repository();
    let (mut one, mut two) = (Peer::new(&world), Peer::new(&world));
    let claimed = one.call("claim", &json!({ "paths": ["src/a.rs"], "note": "split the parser" }));
    assert_eq!((&claimed["granted"], &claimed["leases"][0]["target"]), (&json!(true), &json!("src/a.rs")));
    assert!(claimed["lease"].as_str().unwrap().starts_with('L') && claimed["token"].is_u64(), "{claimed}");
    assert_eq!(one.call("claim", &file())["lease"], claimed["lease"], "asking again changes nothing");
    assert_eq!(one.call("check", &file()), json!({ "free": true, "conflicts": [] }));

    let seen = two.call("check", &file());
    assert_eq!(seen["free"], false);
    let held = two.call("claim", &json!({ "paths": ["src/b.rs", "src/a.rs"] }));
    assert_eq!(held["granted"], false);
    let conflict = &held["conflicts"][0];
    assert_eq!((&conflict["path"], &conflict["witness"]), (&json!("src/a.rs"), &json!("src/a.rs")));
    assert_eq!(
        (&conflict["owner"], &conflict["note"]),
        (&seen["conflicts"][0]["owner"], &json!("\"split the parser\""))
    );
    assert!(conflict["ends"].as_str().unwrap().contains("at the latest in"), "{held}");
    assert!(held["next"].as_str().unwrap().contains("`wait`"), "{held}");
    assert_eq!(holders(&world, "src/b.rs"), [""; 0], "all or none");

    let waits = two.call("wait", &json!({ "paths": ["src/a.rs"], "seconds": 0 }));
    assert_eq!((&waits["granted"], &waits["position"]), (&json!(false), &json!(1)));
    assert_eq!(waits["ticket"], held["ticket"], "the place is kept");
    let board = one.call("board", &json!({}));
    assert_eq!(
        (&board["waiting"][0]["path"], &board["waiting"][0]["position"]),
        (&json!("src/a.rs"), &json!(1))
    );

    assert_eq!(one.call("release", &file()), json!({ "released": ["src/a.rs"] }));
    let mine = two.call("wait", &file());
    assert_eq!((&mine["granted"], &mine["conflicts"]), (&json!(true), &json!([])));
    assert_eq!(one.call("release", &file()), json!({ "released": [] }));
    one.finish();
    two.finish();
}

#[test]
fn a_wait_tells_of_its_progress_and_ends_with_the_lease() {
    let world = repository();
    let (mut one, mut two) = (Peer::new(&world), Peer::new(&world));
    one.call("claim", &file());
    let params = json!({ "name": "wait", "arguments": file(), "_meta": { "progressToken": "p" } });
    let id = two.ask("tools/call", &params);
    let progress = two.message();
    assert_eq!(
        (&progress["method"], &progress["params"]["progressToken"]),
        (&json!("notifications/progress"), &json!("p"))
    );
    until("the other one waits", || !one.call("board", &json!({}))["waiting"].as_array().unwrap().is_empty());
    one.call("release", &json!({ "all": true }));
    assert_eq!(two.answer(id)["result"]["structuredContent"]["granted"], true);
    one.finish();
    two.finish();
}

/// A client that is tired of waiting keeps its place.
#[test]
fn a_cancelled_wait_ends_and_keeps_its_place() {
    let world = repository();
    let (mut one, mut two) = (Peer::new(&world), Peer::new(&world));
    one.call("claim", &file());
    let id = two.ask("tools/call", &json!({ "name": "wait", "arguments": file() }));
    until("it waits", || !one.call("board", &json!({}))["waiting"].as_array().unwrap().is_empty());
    two.notify("notifications/cancelled", &json!({ "requestId": id, "reason": "tired" }));
    let again = two.call("wait", &json!({ "paths": ["src/a.rs"], "seconds": 0 }));
    assert_eq!((&again["granted"], &again["position"]), (&json!(false), &json!(1)));
    assert_eq!(two.call("release", &file()), json!({ "released": ["src/a.rs"] }), "it leaves the line");
    assert_eq!(one.call("board", &json!({}))["waiting"], json!([]));
    one.finish();
    two.finish();
}

#[test]
fn names_and_folders_are_claimed_alone_or_shared() {
    let world = repository();
    let (mut one, mut two) = (Peer::new(&world), Peer::new(&world));
    assert_eq!(one.call("claim", &json!({ "names": ["port/3000"], "paths": ["src"] }))["granted"], true);
    assert_eq!(two.call("claim", &json!({ "names": ["port/3000"] }))["conflicts"][0]["path"], "port/3000");
    let below = two.call("check", &json!({ "paths": ["src/b.rs"] }));
    assert_eq!((&below["free"], &below["conflicts"][0]["witness"]), (&json!(false), &json!("src/b.rs")));
    for peer in [&mut one, &mut two] {
        assert_eq!(peer.call("claim", &json!({ "names": ["db"], "shared": true }))["granted"], true);
    }
    let mut released = one.call("release", &json!({ "all": true }));
    released["released"].as_array_mut().unwrap().sort_by_key(Value::to_string);
    assert_eq!(released, json!({ "released": ["db", "port/3000", "src"] }));
    assert_eq!(two.call("wait", &json!({ "names": ["port/3000"] }))["granted"], true);
    assert_eq!(holders(&world, "port/3000").len(), 1);
    one.finish();
    two.finish();
}

#[test]
fn files_are_handed_over_to_an_agent_that_is_here() {
    let world = repository();
    let (mut one, mut two) = (Peer::new(&world), Peer::new(&world));
    one.call("claim", &file());
    two.call("claim", &json!({ "paths": ["src/b.rs"] }));
    let to = owner_of(&mut one, "src/b.rs");
    let nobody = one.call("hand_over", &json!({ "paths": ["src/a.rs"], "to": "claude:nobody" }));
    assert!(nobody["done"] == false && nobody["why"].as_str().unwrap().contains("`board`"), "{nobody}");
    let not_mine = one.call("hand_over", &json!({ "paths": ["src/a.rs", "src/b.rs"], "to": to }));
    assert!(not_mine["why"].as_str().unwrap().contains("src/b.rs is not claimed by you"), "{not_mine}");
    assert!(!holders(&world, "src/a.rs").contains(&to), "all or none");
    assert_eq!(
        one.call("hand_over", &json!({ "paths": ["src/a.rs"], "to": to })),
        json!({ "done": true, "to": to })
    );
    assert_eq!(holders(&world, "src/a.rs"), [to]);
    assert_eq!(one.call("check", &file())["free"], false);
    one.finish();
    two.finish();
}

#[test]
fn why_shows_the_evidence_and_never_how_to_break_a_lease() {
    let world = repository();
    let (mut one, mut two) = (Peer::new(&world), Peer::new(&world));
    one.call("claim", &json!({ "names": ["db"], "paths": ["src/a.rs"] }));
    for (target, kind) in [("src/a.rs", "path"), ("db", "name")] {
        let why = two.call("why", &json!({ "target": target }));
        let evidence = &why["evidence"][0];
        assert_eq!((&why["held"], &evidence[kind]), (&json!(true), &json!(target)), "{why}");
        assert_eq!(evidence["holders"][0]["verdict"], "alive");
        assert!(evidence["holders"][0]["steps"].to_string().contains("it lives"), "{why}");
        assert!(!why.to_string().contains("break"), "{why}");
    }
    assert_eq!(two.call("why", &json!({ "target": "src/b.rs" }))["held"], false);
    one.finish();
    two.finish();
}

#[test]
fn an_agent_is_told_at_its_next_tool_call_what_was_handed_over_to_it() {
    let world = repository();
    let harness = Harness::new(&world, "claude");
    assert_eq!(harness.edit("s", "src/b.rs"), "");
    let mut peer = Peer::new(&world);
    peer.call("claim", &file());
    assert_eq!(peer.call("hand_over", &json!({ "paths": ["src/a.rs"], "to": "claude:s" }))["done"], true);
    let told = harness.edit("s", "src/a.rs");
    assert!(told.contains("handed over to you: src/a.rs") && !told.contains("deny"), "{told}");
    peer.finish();
    assert_eq!(holders(&world, "src/a.rs"), ["claude:s"], "it does not end with the giver");
}

/// Each has what the other one wants.
#[test]
fn a_wait_that_would_never_end_is_refused_at_once() {
    let world = repository();
    let (mut one, mut two) = (Peer::new(&world), Peer::new(&world));
    one.call("claim", &file());
    two.call("claim", &json!({ "paths": ["src/b.rs"] }));
    assert!(two.call("claim", &file())["ticket"].is_string());
    let never = one.call("wait", &json!({ "paths": ["src/b.rs"] }));
    assert!(never["granted"] == false && never["ticket"].is_null() && never["position"].is_null(), "{never}");
    assert!(never["told"][0].as_str().unwrap().contains("waiting would never end"), "{never}");
    one.finish();
    two.finish();
}

/// Nobody holds the file, but a claim would be granted after those who wait for it.
#[test]
fn check_names_those_who_wait_before() {
    let world = repository();
    let (mut one, mut two) = (Peer::new(&world), Peer::new(&world));
    assert_eq!(one.call("claim", &json!({ "paths": ["src/b.rs"] }))["granted"], true);
    let args = ["acquire", "--path", "src/a.rs", "--path", "src/b.rs", "--wait=60s", "--owner", "by:hand"];
    let mut waiter = world.start(args);
    waiter.until_stderr("waiting for");
    let seen = two.call("check", &file());
    assert_eq!((&seen["free"], &seen["conflicts"][0]["owner"]), (&json!(false), &json!("by:hand")), "{seen}");
    assert_eq!(two.call("claim", &file())["granted"], false, "as the claim finds");
    one.finish();
    two.finish();
    waiter.wait().code(0);
}
