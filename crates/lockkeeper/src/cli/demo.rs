//! `demo`: shows the main features with real processes in a temporary folder.

mod stage;

use std::path::PathBuf;
use std::time::Duration;

use lockkeeper_core::time::Ttl;
use lockkeeper_engine::config::{GRACE, checked_store};
use lockkeeper_engine::open::OpenError;
use lockkeeper_engine::report::{Exit, Report};
use lockkeeper_engine::shared_store::{SharedStore, SharedStoreSettings, is_server};
use lockkeeper_platform::random;

use super::context::Globals;
use super::{Verb, print};
use stage::{Background, Stage};

/// Show in 20 seconds what Lockkeeper does, with real processes in a temporary folder
#[derive(clap::Args)]
#[command(
    after_help = "Examples:\n  lockkeeper demo\n  lockkeeper demo --store postgres://locks.example/lockkeeper\n\n\
    It changes nothing outside of its temporary folder, and removes that at the end. With a server it uses a project of its own there, \
    which it removes as well."
)]
pub(super) struct Args {
    /// Do not pause between the steps
    #[arg(long)]
    fast: bool,
}

impl Verb for Args {
    const NAME: &'static str = "demo";

    fn run(self, globals: &Globals) -> Result<Exit, Report> {
        let server = globals.store.as_deref().filter(|address| is_server(address));
        let server =
            server.map(|address| Ok::<_, Report>((throw_away_project(address)?, address.to_owned())));
        let server = server.transpose()?;
        let mut stage = Stage::open(!self.fast, globals.json, server)?;
        let played = play(&mut stage);
        if let Some(signal) = stage.interrupted() {
            // The folder is removed first: this process ends by the signal.
            drop((played, stage));
            return Ok(print::interrupted(signal));
        }
        played?;
        stage.close();
        Ok(Exit::Done)
    }
}

/// A project on this server that nobody else has.
fn throw_away_project(address: &str) -> Result<SharedStore, Report> {
    let project = format!("demo-{:016x}", random::number().map_err(OpenError::Machine)?);
    let password_file = std::env::var_os("LOCKKEEPER_PASSWORD_FILE").map(PathBuf::from);
    let settings = SharedStoreSettings {
        address,
        runs: None,
        project: Some(&project),
        password_file: password_file.as_deref(),
        connect_timeout: Duration::from_secs(5),
        session: Ttl::new(Duration::from_secs(30)).expect("half a minute is a TTL"),
        grace: GRACE,
    };
    let store = checked_store(settings)?;
    if store.takes_any_project() {
        return Ok(store);
    }
    Err(Report::usage(format!("{} takes no project of a demo, with requests and runs", store.address()))
        .with_hint("name a PostgreSQL server, or no store"))
}

fn play(stage: &mut Stage) -> Result<(), Report> {
    let first = collide(stage)?;
    take_over(stage, &first)?;
    refuse_deadlock(stage)?;
    run_queue(stage)
}

/// Two agents want overlapping patterns. Returns the agent that holds its pattern.
fn collide(stage: &mut Stage) -> Result<Background, Report> {
    stage.step(
        "Two agents want the same files",
        "Ann works on src/api/**. Ben wants src/**/user.rs: another pattern, but one path matches both.",
    )?;
    let held = ["exec", "--owner", "agent:ann", "--reason", "rename User", "--path", "src/api/**", "--"];
    let script = "echo $$; read -r line";
    let ann = stage.start(&[&held[..], &["sh", "-c", script]].concat(), Some("./rename.sh"))?;
    stage.run(
        &["exec", "--no-wait", "--owner", "agent:ben", "--path", "src/**/user.rs", "--", "./edit.sh"],
        75,
    )?;
    stage.say("Ben is refused, and the answer names a path that both would touch.")?;
    stage.run(&["why", "src/api/user.rs"], 0)?;
    Ok(ann)
}

/// The holder is killed, and the next in line holds the lock at once.
fn take_over(stage: &mut Stage, ann: &Background) -> Result<(), Report> {
    stage.step(
        "A holder dies",
        "Ben waits in line now. Then Ann and her command are killed with -9: nobody can release the lock.",
    )?;
    let wait = ["exec", "--owner", "agent:ben", "--path", "src/**/user.rs", "--"];
    let mut ben = stage.start_waiting(&[&wait[..], &["echo", "edits"]].concat(), Some("./edit.sh"))?;
    stage.run(&["locks"], 0)?;
    let killed_at = stage.kill(ann)?;
    ben.line()?;
    let took = killed_at.elapsed();
    ben.finish(0)?;
    stage.say(&format!(
        "Ben's command runs within {:.1} ms. The kernel vouches for every holder, so nothing has to expire.",
        took.as_secs_f64() * 1e3
    ))
}

/// A wait that would close a cycle is refused.
fn refuse_deadlock(stage: &mut Stage) -> Result<(), Report> {
    stage.step(
        "A deadlock is refused",
        "Ann holds db and waits for cache. Ben holds cache and asks for db: both would wait for ever.",
    )?;
    let both = |stage: &mut Stage, owner: &str, first: &str, second: &str| {
        let script =
            format!("echo up; read -r go; exec \"$LOCKKEEPER_DEMO\" exec --owner {owner} {second} -- true");
        stage.start(&["exec", "--owner", owner, first, "--", "sh", "-c", &script], None)
    };
    let mut ann = both(stage, "agent:ann", "db", "cache")?;
    let mut ben = both(stage, "agent:ben", "cache", "db")?;
    ann.go_on()?;
    stage.until_waiting(1)?;
    stage.run(&["locks"], 0)?;
    stage.show(&["exec", "db", "--", "./migrate.sh"])?;
    ben.go_on()?;
    let refused = ben.finish(75)?;
    stage.output(&refused)?;
    ann.finish(0)?;
    stage.say("Ben gets the whole cycle at once and gives up; Ann goes on.")
}

/// A queue whose runs hold locks.
fn run_queue(stage: &mut Stage) -> Result<(), Report> {
    stage.step(
        "A queue under locks",
        "Four jobs: tests wait for the build, and two jobs that change docs/ never run at the same time.",
    )?;
    for job in [
        &["submit", "--id", "build", "--path", "target/**", "--", "sleep", "0.6"][..],
        &["submit", "--id", "tests", "--after", "build", "--path", "target/**", "--", "sleep", "0.3"],
        &["submit", "--id", "manual", "--path", "docs/**", "--", "sleep", "0.3"],
        &["submit", "--id", "links", "--path", "docs/links.md", "--", "sleep", "0.3"],
    ] {
        stage.run_on(job, 0)?;
    }
    stage.pause()?;
    stage.run(&["work", "--jobs", "4", "--drain"], 0)?;
    stage.run(&["runs"], 0)?;
    stage.say("The queue survives crashes and power cuts, and no job ever runs beside itself.")
}
