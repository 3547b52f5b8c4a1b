//! Which agent runs this command: named, or the one session whose process started it.

use lockkeeper_agents::{Session, Sessions, takes_part};
use lockkeeper_core::id::Owner;
use lockkeeper_core::liveness::Proof;
use lockkeeper_engine::open::OpenError;
use lockkeeper_engine::report::Report;
use lockkeeper_platform::{holder_process, origin};

use super::context::Context;

/// The owner in whose name an agent's command runs, and the proof of life of its claims.
pub(super) struct AgentOwner {
    pub(super) owner: Owner,
    pub(super) proof: Proof,
}

/// Refuses a repository whose agents are not coordinated.
pub(super) fn sessions(context: &Context) -> Result<Sessions, Report> {
    if takes_part(&context.location) {
        return Ok(Sessions::new(&context.location.state));
    }
    Err(Report::usage(format!("agents are not coordinated in {}", context.location.root.display()))
        .with_hint(
            "run the command inside of a repository that takes part, or make it one with `lockkeeper init`",
        ))
}

/// Finds the agent. The process is the one that its hook registered: inside of a sandbox an ancestor proves nothing.
pub(super) fn find(context: &Context, sessions: &Sessions, flag: Option<&str>) -> Result<AgentOwner, Report> {
    let here = origin::origin().map_err(OpenError::Machine)?;
    let flag: Option<Owner> = flag.map(str::parse).transpose()?;
    let process = holder_process::choose(None, &|_| None).ok().flatten().map(|chosen| chosen.process);
    let known = sessions.all(&here).map_err(|error| Report::machine(&error))?;
    let Some(owner) = context.named_owner(flag.as_ref()) else {
        let is_own = |session: &&Session| {
            process.is_some_and(|process| {
                session.proof().process() == Some(process) && session.boot == here.boot
            })
        };
        let own: Vec<&Session> = known.iter().filter(is_own).collect();
        return match own.as_slice() {
            [one] => Ok(AgentOwner { owner: one.owner.parse()?, proof: one.proof() }),
            [] => Err(Report::usage("no hook has registered the agent that runs this command")
                .with_hint("name it with --owner, as `lockkeeper board` shows it")),
            _ => Err(Report::usage("several agents run in the process that runs this command")
                .with_hint("say which one it is with --owner, as `lockkeeper board` shows it")),
        };
    };
    let session = known.iter().find(|session| session.owner == owner.as_str());
    let Some(session) = session else {
        return Err(Report::usage(format!("no hook has registered {owner}"))
            .with_hint("`lockkeeper board` shows all agents here"));
    };
    Ok(AgentOwner { owner, proof: session.proof() })
}
