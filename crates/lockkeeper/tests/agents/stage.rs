//! A repository, a home folder and a fake model, in which sessions of one harness run.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::rc::Rc;

use lockkeeper_testing::http::Http;
use lockkeeper_testing::{FakeModel, Finished, Script, Started, World, skip, world};

use crate::harness::{Harness, installed};
use crate::test_hook::LIMIT;

/// Where sessions of one harness run.
pub struct Stage {
    pub world: Rc<World>,
    pub model: Rc<FakeModel>,
    pub harness: &'static dyn Harness,
    program: PathBuf,
}

impl Stage {
    /// An empty repository. None, and a visible note, if the harness is not installed.
    pub fn of(harness: &'static dyn Harness) -> Option<Self> {
        let program = program_of(harness)?;
        // The fake model is also the proxy for everything else, and refuses it: nothing leaves the machine.
        let model = FakeModel::start();
        let proxies = ["http_proxy", "https_proxy", "HTTP_PROXY", "HTTPS_PROXY"];
        let world = proxies.iter().fold(world!().git(), |world, name| world.set(name, model.url("")));
        let world = world.set("no_proxy", "127.0.0.1").set("NO_PROXY", "127.0.0.1");
        // On a loaded machine a hook may take longer than it takes for people.
        let world = world.set("LOCKKEEPER_AGENTS_LIMIT", format!("{}s", LIMIT.as_secs() / 2));
        // Packages find the program in the search path.
        let own = Path::new(world.program()).parent().map(Path::to_owned);
        let usual = std::env::var_os("PATH").unwrap_or_default();
        let path = std::env::join_paths(own.into_iter().chain(std::env::split_paths(&usual))).unwrap();
        let world = world.set("PATH", path);
        let scratch = world.beside("tmp");
        std::fs::create_dir(&scratch).unwrap();
        let world = world.set("TMPDIR", &scratch).set("CLAUDE_CODE_TMPDIR", scratch);
        Some(Self { world: Rc::new(world), model: Rc::new(model), harness, program })
    }

    /// The same repository, home folder and model for another harness. None if that is not installed.
    pub fn shared_with(&self, harness: &'static dyn Harness) -> Option<Self> {
        let program = program_of(harness)?;
        Some(Self { world: Rc::clone(&self.world), model: Rc::clone(&self.model), harness, program })
    }

    /// Runs a session to its end.
    #[track_caller]
    pub fn run(&self, script: &Script) -> Finished {
        self.start(script).wait()
    }

    /// Starts a session.
    pub fn start(&self, script: &Script) -> Started {
        let mut started = Started::of(&mut self.command(script));
        started.close_input();
        started
    }

    /// The text of a file of the repository, or nothing if there is none.
    pub fn text(&self, file: &str) -> String {
        std::fs::read_to_string(self.world.path(file)).unwrap_or_default()
    }

    /// Runs the program of the harness itself.
    pub fn manage(&self, args: &[&str]) -> Finished {
        let usual = self.harness.command(&self.world, &self.program, &self.model, "");
        let mut command = self.world.command(&self.program);
        command.args(args).envs(usual.get_envs().filter_map(|(name, value)| Some((name, value?))));
        Finished::of(&mut command)
    }

    fn command(&self, script: &Script) -> Command {
        self.harness.command(&self.world, &self.program, &self.model, &script.prompt())
    }
}

fn program_of(harness: &dyn Harness) -> Option<PathBuf> {
    let program = installed(harness);
    if program.is_none() {
        skip(&format!("{}: scripts/agents-install {0}", harness.name()));
    }
    program
}
