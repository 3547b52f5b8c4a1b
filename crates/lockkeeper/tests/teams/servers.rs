//! Servers of several machines on one store: API, page, events and metrics show all machines from any of them.

use lockkeeper_testing::http::{Events, Http};
use lockkeeper_testing::processes::pid_in;
use lockkeeper_testing::{ServerProcess, until};

use super::team::{Machine, Team};

fn serve(machine: &Machine) -> ServerProcess {
    ServerProcess::start(&machine.world, &[])
}

#[test]
fn the_output_of_a_run_is_read_from_the_server_of_another_machine() {
    let Some(team) = Team::new() else { return };
    let (one, other) = (team.machine(), team.machine());
    let script = "echo first; echo $$ > pid; until [ -e go ]; do sleep 0.05; done; echo needle; \
                  until [ -e end ]; do sleep 0.05; done";
    other.world.run(["submit", "--id", "a", "--", "sh", "-c", script]).code(0);
    let _worker = other.world.start(["work"]);
    pid_in(&other.world.path("pid"));
    let server = serve(&one);
    let run = one.world.json(&["run", "show", "a", "--json"])["run"]["id"].as_str().unwrap().to_owned();
    let log = |query: &str| server.get(&format!("/api/runs/{run}/log{query}")).expect(200);
    until("the first line is there", || log("?from=0")["text"] == "first\n");
    assert!(log("")["host"].is_string() && log("")["ended"] == false);
    other.world.touch("go");
    // A long poll ends when there is more.
    assert_eq!(log("?from=6&wait=20")["text"], "needle\n");
    assert_eq!(server.get(&format!("/api/runs/{run}/search?text=NEEDLE")).expect(200)["at"], 6);
    other.world.touch("end");
    one.world.run(["run", "wait", "a"]).code(0);
    let whole = server.get(&format!("/api/runs/{run}/output")).text();
    assert!(whole.contains("first\nneedle\n"), "{whole}");
    assert!(server.get(&format!("/runs/{run}")).text().contains("needle"));
}

#[test]
fn machines_with_workers_are_listed_by_every_server() {
    let Some(team) = Team::new() else { return };
    let (one, other) = (team.machine(), team.machine());
    let server = serve(&one);
    let none = server.get("/api/hosts").expect(200)["hosts"].clone();
    assert!(none.as_array().is_some_and(|hosts| hosts.iter().all(|host| host["jobs"] == 0)), "{none}");
    let _worker = other.world.start(["work", "--jobs", "3"]);
    until("the worker is there", || {
        let hosts = server.get("/api/hosts").expect(200)["hosts"].clone();
        hosts.as_array().unwrap().iter().any(|host| host["jobs"] == 3 && host["silent_seconds"].is_number())
    });
    for (language, title) in [("en", "Last heard of"), ("ja", "最後の応答"), ("zh", "最近一次响应")]
    {
        let page = server.get(&format!("/hosts?lang={language}")).text();
        assert!(page.contains(title) && page.contains("data-label"), "{page}");
    }
    assert!(server.get("/").text().contains("href=\"/hosts\""));
}

/// The stream of events of runs after this one.
fn resume(server: &ServerProcess, last: &str) -> Events {
    let bearer = format!("Bearer {}", server.token().unwrap());
    let headers = [("authorization", bearer.as_str())];
    Events::open_as(server.address(), "/api/events?topics=run", Some(last), &headers)
}

/// Events are read in the order of their commits, and a position of one server holds on another.
#[test]
fn a_stream_is_resumed_at_the_server_of_another_machine() {
    let Some(team) = Team::new() else { return };
    let (one, other) = (team.machine(), team.machine());
    let servers = [&one, &other].map(serve);
    let mut first = servers[0].listen();
    assert_eq!(first.event().name, "hello");
    other.world.run(["submit", "--id", "a", "--", "true"]).code(0);
    let position = first.until("run.submitted").id;
    drop(first);
    // Nobody listens meanwhile.
    other.world.run(["submit", "--id", "b", "--", "true"]).code(0);
    other.world.run(["work", "--drain"]).code(0);
    let read = |stream: &mut Events| {
        let mut seen = Vec::new();
        while seen.iter().filter(|one: &&String| one.ends_with("ended")).count() < 2 {
            let event = stream.event();
            if event.name == "run" {
                let event = &event.data["event"];
                seen.push(format!(
                    "{} {}",
                    event["request_id"].as_str().unwrap(),
                    event["kind"].as_str().unwrap()
                ));
            }
        }
        seen
    };
    let [same, next] = [&servers[0], &servers[1]].map(|server| read(&mut resume(server, &position)));
    assert_eq!(next, same);
    assert_eq!(next[0], "b submitted", "{next:?}");
}

#[test]
fn queue_and_metrics_are_those_of_the_project() {
    let Some(team) = Team::new() else { return };
    let (one, other) = (team.machine(), team.machine());
    let servers = [&one, &other].map(serve);
    one.world.run(["submit", "--id", "a", "--", "false"]).code(0);
    one.world.run(["submit", "--id", "b", "--", "true"]).code(0);
    for server in &servers {
        assert_eq!(server.get("/api/queue").expect(200)["next"], "a");
        assert!(
            server.get("/metrics").text().contains("lockkeeper_runs{status=\"queued\"} 2"),
            "{}",
            server.get("/metrics").text()
        );
    }
    other.world.run(["queue", "list"]).code(0).prints("a");
    other.world.run(["queue", "run-next"]).code(1);
    for server in &servers {
        assert_eq!(server.get("/api/queue").expect(200)["next"], "b");
        assert!(server.get("/metrics").text().contains("lockkeeper_runs{status=\"failed\"} 1"));
    }
}

/// The locks of stages hold for all machines, and so do the runs of their agents.
#[test]
fn the_agents_of_stages_are_runs_of_the_project() {
    let Some(team) = Team::new() else { return };
    let (one, other) = (team.machine(), team.machine());
    let stages = "parallel_groups:\n  P1:\n    - {group_id: api, agents: [one], conflict_paths: [\"api/**\"], command: 'echo made'}\n";
    let one = Machine { world: one.world.write("STAGES.yml", stages), ..one };
    one.world.run(["stages", "run", "STAGES.yml", "P1", "--load", "0"]).code(0);
    let runs = other.world.json(&["runs", "--json"]);
    assert_eq!(runs["runs"].as_array().map(Vec::len), Some(1), "{runs}");
    let id = runs["runs"][0]["id"].as_str().unwrap();
    assert_eq!(other.world.run(["run", "logs", id]).code(0).stdout(), "made\n");
}
