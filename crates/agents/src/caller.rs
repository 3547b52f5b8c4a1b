//! Which agent runs a command: the owner that the environment names, else the nearest ancestor that a hook has registered.

use lockkeeper_core::id::Owner;
use lockkeeper_core::liveness::{Origin, ProcessRef};

use crate::session::Session;

/// Variables that harnesses set in the shells of their agents to the id of the session, each with the kind of the owner.
const MARKS: [(&str, &str); 3] = [
    ("CODEX_SESSION_ID", "codex"),
    ("CLAUDE_CODE_SESSION_ID", "claude"),
    ("COPILOT_AGENT_SESSION_ID", "copilot"),
];

/// The agent, person or program that runs a command.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Caller {
    /// One of these agents. A process may run an agent and its sub-agents: then nobody can tell which of them it is.
    Agents(Vec<Owner>),
    /// A person or a program, with the owner that the environment names.
    Other(Option<Owner>),
}

impl Caller {
    /// Finds the caller. `ancestors` are this process and those above it, the nearest first.
    pub fn find(
        sessions: &[Session],
        named: Option<Owner>,
        ancestors: &[ProcessRef],
        here: &Origin,
        variable: &dyn Fn(&str) -> Option<String>,
    ) -> Self {
        let owner_of = |session: &Session| session.owner.parse::<Owner>().ok();
        if let Some(named) = named {
            let is_registered = sessions.iter().any(|session| session.owner == named.as_str());
            return if is_registered { Self::Agents(vec![named]) } else { Self::Other(Some(named)) };
        }
        for process in ancestors {
            let is_of = |session: &&Session| {
                let proof = session.proof();
                proof.process() == Some(*process)
                    && (&proof.origin.boot, proof.origin.pid_namespace) == (&here.boot, here.pid_namespace)
            };
            let found: Vec<Owner> = sessions.iter().filter(is_of).filter_map(owner_of).collect();
            if !found.is_empty() {
                return Self::Agents(found);
            }
        }
        // Inside a sandbox the ancestors cannot be seen, so the variables decide. If one harness runs inside another, both
        // variables are set, and the caller stays unknown.
        let marks: Vec<Owner> = MARKS
            .iter()
            .filter_map(|(name, kind)| format!("{kind}:{}", variable(name)?).parse().ok())
            .collect();
        match marks.as_slice() {
            [one] => Self::Agents(vec![one.clone()]),
            _ => Self::Other(None),
        }
    }

    /// Whether a claim of this owner is the caller's own: the same owner, or one of the same session.
    pub fn is_family_of(&self, owner: &Owner) -> bool {
        match self {
            Self::Agents(agents) => agents.iter().any(|agent| session_of(agent) == session_of(owner)),
            Self::Other(named) => named.as_ref() == Some(owner),
        }
    }

    /// Whether it is an agent.
    pub fn is_agent(&self) -> bool {
        matches!(self, Self::Agents(_))
    }

    /// The name of the caller in messages.
    pub fn shown(&self) -> String {
        match self {
            Self::Agents(agents) => {
                let shortest = agents.iter().min_by_key(|agent| agent.as_str().len());
                shortest.map_or_else(|| "an agent".to_owned(), ToString::to_string)
            }
            Self::Other(Some(named)) => named.to_string(),
            Self::Other(None) => "somebody without a claim".to_owned(),
        }
    }
}

/// The session of an agent: `claude:S` for `claude:S` and `claude:S:A`.
fn session_of(owner: &Owner) -> Owner {
    owner.all_above().last().unwrap_or_else(|| owner.clone())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn here() -> Origin {
        Origin { host: "h".into(), boot: "b".into(), pid_namespace: 1, session: None }
    }

    fn session(owner: &str, pid: u32) -> Session {
        let (host, boot) = ("h".to_owned(), "b".to_owned());
        Session {
            owner: owner.into(),
            host,
            boot,
            pid_namespace: 1,
            pid: Some(pid),
            started: 7,
            ..Session::default()
        }
    }

    fn process(pid: u32) -> ProcessRef {
        ProcessRef { pid, started: 7 }
    }

    fn owners(texts: &[&str]) -> Caller {
        Caller::Agents(texts.iter().map(|text| text.parse().unwrap()).collect())
    }

    #[test]
    fn the_nearest_registered_ancestor_counts() {
        let sessions = [session("claude:1", 10), session("claude:1:a", 10), session("codex:2", 20)];
        let find = |ancestors: &[u32], marks: &'static [(&'static str, &'static str)]| {
            let ancestors: Vec<ProcessRef> = ancestors.iter().map(|pid| process(*pid)).collect();
            let variable = |name: &str| {
                marks.iter().find(|(mark, _)| *mark == name).map(|(_, value)| (*value).to_owned())
            };
            Caller::find(&sessions, None, &ancestors, &here(), &variable)
        };
        assert_eq!(find(&[1, 20, 10], &[]), owners(&["codex:2"]));
        assert_eq!(find(&[1, 10, 20], &[]), owners(&["claude:1", "claude:1:a"]));
        assert_eq!(find(&[1], &[]), Caller::Other(None));
        assert_eq!(find(&[1], &[("CLAUDE_CODE_SESSION_ID", "9")]), owners(&["claude:9"]));
        let both = &[("CLAUDE_CODE_SESSION_ID", "9"), ("CODEX_SESSION_ID", "8")];
        assert_eq!(find(&[1], both), Caller::Other(None));
        assert_eq!(find(&[20], both), owners(&["codex:2"]));
    }

    #[test]
    fn a_name_is_an_agent_only_if_a_hook_has_registered_it() {
        let sessions = [session("claude:1", 10)];
        let find = |name: &str| {
            Caller::find(&sessions, Some(name.parse().unwrap()), &[process(10)], &here(), &|_| None)
        };
        assert_eq!(find("claude:1"), owners(&["claude:1"]));
        assert_eq!(find("person:ann"), Caller::Other(Some("person:ann".parse().unwrap())));
    }

    #[test]
    fn a_family_is_one_session() {
        let owner = |text: &str| text.parse::<Owner>().unwrap();
        assert!(owners(&["claude:1:a"]).is_family_of(&owner("claude:1")));
        assert!(owners(&["claude:1"]).is_family_of(&owner("claude:1:a")));
        assert!(owners(&["claude:1:a"]).is_family_of(&owner("claude:1:b")));
        assert!(!owners(&["claude:1"]).is_family_of(&owner("claude:10")));
        assert!(!Caller::Other(None).is_family_of(&owner("claude:1")));
        assert!(Caller::Other(Some(owner("person:ann"))).is_family_of(&owner("person:ann")));
    }
}
