//! Names for generated owners: people see the command instead of `exec:1039.5f910fbb3c2a7d44`, and `run k3x9f2m7qd`
//! instead of `run:RUN-20260131-120000-k3x9f2m7qd`.

use std::collections::BTreeMap;
use std::path::Path;

use lockkeeper_core::id::Owner;
use lockkeeper_core::liveness::{Origin, ProcessState, Proof};
use lockkeeper_core::record::Claim;
use lockkeeper_core::secret::shown_command;
use lockkeeper_core::waiting::Blocker;
use lockkeeper_platform::origin;
use lockkeeper_platform::process;
use lockkeeper_platform::process_description::{ProcessDescription, describe, user_name};

use crate::Listing;
use crate::evidence::Evidence;
use crate::runs::short_id;

/// How many processes are looked at. In a very long list, the others are shown by their numbers.
const DESCRIBED: usize = 200;
/// The longest command that is shown.
const LONGEST: usize = 24;

/// What people see instead of generated owners.
#[derive(Clone, Debug, Default)]
pub struct OwnerNames {
    names: BTreeMap<String, String>,
}

impl OwnerNames {
    /// Names the owners of a listing, for a user in this project.
    pub fn of(listing: &Listing, root: &Path) -> Self {
        let holders = listing.holders.iter().map(|holder| &*holder.lease.claim);
        let waiters = listing.waiters.iter().map(|waiter| &*waiter.ticket.claim);
        Self::of_claims(holders.chain(waiters), root)
    }

    /// Names the owners of what blocks a claim.
    pub fn of_blockers(blockers: &[Blocker], root: &Path) -> Self {
        let holders = blockers.iter().flat_map(|blocker| &blocker.leases).map(|found| &*found.record.claim);
        let waiters = blockers.iter().flat_map(|blocker| &blocker.tickets).map(|found| &*found.record.claim);
        Self::of_claims(holders.chain(waiters), root)
    }

    /// Names the owners in the evidence about a name or path.
    pub fn of_evidence(evidence: &Evidence, root: &Path) -> Self {
        let holders = evidence.holders.iter().map(|chain| &*chain.holder.lease.claim);
        let waiters = evidence.waiters.iter().map(|waiter| &*waiter.ticket.claim);
        Self::of_claims(holders.chain(waiters), root)
    }

    fn of_claims<'c>(claims: impl Iterator<Item = &'c Claim>, root: &Path) -> Self {
        let here = origin::origin().ok();
        let (mut names, mut described) = (BTreeMap::new(), 0);
        for claim in claims {
            let owner = claim.owner.as_str();
            let name = match short_form(owner) {
                Some(short) => {
                    described += 1;
                    let visible = here.as_ref().filter(|_| described <= DESCRIBED);
                    let name = visible.and_then(|here| named(&claim.proof, here, root));
                    Some(name.unwrap_or_else(|| short.to_owned()))
                }
                None => by_short_id(owner),
            };
            names.extend(name.map(|name| (owner.to_owned(), name)));
        }
        Self { names: told_apart(names) }
    }

    /// What people see for this owner.
    pub fn of_owner(&self, owner: &Owner) -> String {
        self.names.get(owner.as_str()).cloned().unwrap_or_else(|| owner.to_string())
    }

    /// The text with every such owner replaced.
    pub fn in_text(&self, text: &str) -> String {
        replaced(text, |word| self.names.get(word).cloned())
    }
}

/// The text with the last part of each generated id instead of the whole id, also where it names an owner. Nothing is looked up.
pub fn with_short_ids(text: &str) -> String {
    replaced(text, |word| {
        let short = short_id(word);
        let whole = (short.len() < word.len()).then(|| short.to_owned());
        whole.or_else(|| by_short_id(word)).or_else(|| short_form(word).map(str::to_owned))
    })
}

/// Replaces words of a text. A full stop or colon behind a word is no part of it.
fn replaced(text: &str, name: impl Fn(&str) -> Option<String>) -> String {
    let is_part = |c: char| c.is_ascii_alphanumeric() || ":._-".contains(c);
    let (mut replaced, mut rest) = (String::new(), text);
    while let Some(start) = rest.find(is_part) {
        let (before, word) = rest.split_at(start);
        let word = &word[..word.find(|c| !is_part(c)).unwrap_or(word.len())];
        let word = word.trim_end_matches([':', '.']);
        let word = if word.is_empty() { &rest[start..=start] } else { word };
        replaced.push_str(before);
        replaced.push_str(name(word).as_deref().unwrap_or(word));
        rest = &rest[start + word.len()..];
    }
    replaced + rest
}

/// `exec:1039` for `exec:1039.5f910fbb3c2a7d44`; none for an owner that a user chose.
fn short_form(owner: &str) -> Option<&str> {
    let (short, random) = owner.rsplit_once('.')?;
    let (_, pid) = short.split_once(':')?;
    let is_number = !pid.is_empty() && pid.bytes().all(|byte| byte.is_ascii_digit());
    let is_random = random.len() == 16 && random.bytes().all(|byte| byte.is_ascii_hexdigit());
    (is_number && is_random).then_some(short)
}

/// Adds the process number to names that several owners have: `make test[1039]`.
fn told_apart(mut names: BTreeMap<String, String>) -> BTreeMap<String, String> {
    let mut owners: BTreeMap<String, usize> = BTreeMap::new();
    for name in names.values() {
        *owners.entry(name.clone()).or_default() += 1;
    }
    for (owner, name) in &mut names {
        let pid = short_form(owner).and_then(|short| short.split_once(':')).map(|(_, pid)| pid);
        if let Some(pid) = pid.filter(|_| owners.get(name).is_some_and(|count| *count > 1)) {
            name.push_str(&format!("[{pid}]"));
        }
    }
    names
}

/// `run k3x9f2m7qd` for a run, and the same for workers and groups of stages; none for an id that somebody chose.
fn by_short_id(owner: &str) -> Option<String> {
    let (kind, id) = owner.split_once(':')?;
    let short = short_id(id);
    let is_made_here = matches!(kind, "run" | "worker" | "stage") && short.len() < id.len();
    is_made_here.then(|| format!("{kind} {short}"))
}

/// Describes the process of a claim, if it runs where this process can see it.
fn named(proof: &Proof, here: &Origin, root: &Path) -> Option<String> {
    let is_visible = here.boot == proof.origin.boot && here.pid_namespace == proof.origin.pid_namespace;
    let process = proof.made_for().filter(|_| is_visible)?;
    if process::look(process) != ProcessState::Running {
        return None;
    }
    in_words(&describe(process.pid), process::user(), root)
}

/// The command, and what differs from the reader: another user, another work tree.
fn in_words(found: &ProcessDescription, reader: u32, root: &Path) -> Option<String> {
    let command = command(&found.words)?;
    let user = found.user.filter(|user| *user != reader);
    let user = user.map(|user| user_name(user).unwrap_or_else(|| format!("user {user}")));
    let folder = found.folder.as_deref().filter(|folder| !folder.starts_with(root));
    let folder = folder.and_then(Path::file_name).map(|name| format!("in {}", name.to_string_lossy()));
    let differs: Vec<String> = user.into_iter().chain(folder).collect();
    Some(if differs.is_empty() { command } else { format!("{command} ({})", differs.join(", ")) })
}

/// The command of a process. Of `lockkeeper exec db -- make test` that is `make test`.
fn command(words: &[String]) -> Option<String> {
    let words = shown_command(words);
    let program = Path::new(words.first()?).file_name()?.to_string_lossy().into_owned();
    let after = |mark: &str| words.iter().position(|word| word == mark).map(|place| &words[place + 1..]);
    let own = match program.as_str() {
        "lockkeeper" => after("--").or_else(|| after("-c").map(|rest| &rest[..rest.len().min(1)])),
        _ => None,
    };
    let text = match own.filter(|own| !own.is_empty()) {
        Some(own) => own.join(" "),
        None => [&[program][..], &words[1..]].concat().join(" "),
    };
    let mut short: String = text.chars().take(LONGEST).collect();
    if short.len() < text.len() {
        short.push('…');
    }
    Some(short)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_generated_owners_are_renamed() {
        assert_eq!(short_form("exec:1039.5f910fbb3c2a7d44"), Some("exec:1039"));
        for chosen in
            ["worker:1", "worker:1.5", "claude:S1", "exec:me.5f910fbb3c2a7d44", "exec:1039.5f910fbb"]
        {
            assert_eq!(short_form(chosen), None, "{chosen}");
        }
    }

    #[test]
    fn two_owners_with_one_command_are_told_apart() {
        let [first, second, other] = [1, 2, 3].map(|pid| format!("exec:{pid}.5f910fbb3c2a7d4{pid}"));
        let named = [(&first, "make"), (&second, "make"), (&other, "true")];
        let names = told_apart(named.map(|(owner, name)| (owner.clone(), name.to_owned())).into());
        assert_eq!([&names[&first], &names[&second], &names[&other]], ["make[1]", "make[2]", "true"]);
    }

    #[test]
    fn runs_workers_and_groups_have_their_short_ids() {
        let shown = |owner: &str| by_short_id(owner);
        assert_eq!(shown("run:RUN-20260131-120000-k3x9f2m7qd").as_deref(), Some("run k3x9f2m7qd"));
        assert_eq!(shown("worker:W-20260131-120000-k3x9f2m7qd").as_deref(), Some("worker k3x9f2m7qd"));
        assert_eq!(shown("stage:EX-20260131-120000-k3x9f2m7qd.2").as_deref(), Some("stage k3x9f2m7qd.2"));
        for chosen in ["run:tests", "worker:W-1", "claude:RUN-20260131-120000-k3x9f2m7qd", "run"] {
            assert_eq!(shown(chosen), None, "{chosen}");
        }
    }

    #[test]
    fn owners_are_replaced_within_texts() {
        let owner = "exec:1039.5f910fbb3c2a7d44".to_owned();
        let names = OwnerNames { names: [(owner, "make".to_owned())].into() };
        let text = "db, held by exec:1039.5f910fbb3c2a7d44 (数据), behind exec:1039.5f910fbb3c2a7d45";
        assert_eq!(names.in_text(text), "db, held by make (数据), behind exec:1039.5f910fbb3c2a7d45");
        assert_eq!(names.in_text(""), "");
    }

    #[test]
    fn ids_within_texts_are_shortened() {
        for (text, short) in [
            (
                "db is held by run:RUN-20260131-120000-k3x9f2m7qd, position 1",
                "db is held by run k3x9f2m7qd, position 1",
            ),
            ("worker W-20260131-120000-k3x9f2m7qd, attempt 1", "worker k3x9f2m7qd, attempt 1"),
            ("replaced by RUN-20260131-120000-k3x9f2m7qd.", "replaced by k3x9f2m7qd."),
            ("db is held by exec:1039.5f910fbb3c2a7d44", "db is held by exec:1039"),
            ("...: a. worker:1 RUN-2 数据", "...: a. worker:1 RUN-2 数据"),
        ] {
            assert_eq!(with_short_ids(text), short);
        }
    }

    #[test]
    fn a_process_is_its_command_and_what_differs_from_the_reader() {
        let found = |line: &str, user, folder: &str| {
            let words = line.split(' ').map(str::to_owned).collect();
            let found = ProcessDescription { words, user: Some(user), folder: Some(folder.into()) };
            in_words(&found, 7, Path::new("/project")).unwrap()
        };
        assert_eq!(found("/bin/lockkeeper exec db -- make test", 7, "/project/src"), "make test");
        assert_eq!(found("lockkeeper exec db -c ls", 7, "/project"), "ls");
        assert_eq!(found("/bin/sh deploy.sh", 7, "/work/tree"), "sh deploy.sh (in tree)");
        assert_eq!(found("make", u32::MAX - 9, "/project"), format!("make (user {})", u32::MAX - 9));
        assert_eq!(found(&"x".repeat(50), 7, "/project"), format!("{}…", "x".repeat(LONGEST)));
    }
}
