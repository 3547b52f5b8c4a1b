//! Arguments that several commands share, parsed into the types of the rules.

use std::ffi::OsString;
use std::num::NonZeroU32;
use std::time::Duration;

use clap::ValueEnum;
use lockkeeper_core::id::{LeaseId, Name, Owner, Token};
use lockkeeper_core::lease::{Caller, NotCurrent};
use lockkeeper_core::liveness::Contract;
use lockkeeper_core::record::Priority;
use lockkeeper_core::resource::{Mode, Resource, Target};
use lockkeeper_core::time::{Ttl, parse_span};
use lockkeeper_engine::report::{Exit, Report};
use lockkeeper_engine::{Engine, LeaseByName};

use super::context::Context;
use super::print;

/// The resources of a lease, and its terms.
#[derive(clap::Args)]
pub(super) struct LeaseArgs {
    /// Names to lock, such as db or git/index
    #[arg(value_name = "NAME")]
    pub(super) names: Vec<String>,
    /// Paths to lock, as a pattern such as 'src/api/**'
    #[arg(long = "path", value_name = "GLOB")]
    pub(super) paths: Vec<String>,
    /// Shared mode: other shared leases are allowed, exclusive ones are not
    #[arg(long)]
    pub(super) shared: bool,
    /// Counted mode: at most N owners hold the names at a time
    #[arg(long, value_name = "N", conflicts_with = "shared", value_parser = clap::value_parser!(u32).range(1..))]
    pub(super) slots: Option<u32>,
    /// The owner, as kind:id; leases of one owner do not conflict
    #[arg(long, value_name = "OWNER")]
    pub(super) owner: Option<String>,
    /// The reason, shown to others
    #[arg(long, value_name = "TEXT")]
    pub(super) reason: Option<String>,
    /// The TTL: how long the lease lives without being renewed
    #[arg(long, value_name = "DUR")]
    pub(super) ttl: Option<String>,
    /// What happens when the TTL ends while the holder lives
    #[arg(long, value_enum, value_name = "CONTRACT")]
    pub(super) contract: Option<ContractArg>,
    /// The priority, from -100 to 100: higher is sooner
    #[arg(long, value_name = "N", default_value = "0", allow_negative_numbers = true)]
    pub(super) priority: String,
}

/// The contracts, by name.
#[derive(Clone, Copy, ValueEnum)]
pub(super) enum ContractArg {
    /// The live holder keeps the lease
    Strict,
    /// Another owner may take it over; the token protects the resource
    Lease,
    /// A waiter stops the holder, then gets the lease
    Kill,
}

impl From<ContractArg> for Contract {
    fn from(arg: ContractArg) -> Self {
        match arg {
            ContractArg::Strict => Self::Strict,
            ContractArg::Lease => Self::Lease,
            ContractArg::Kill => Self::Kill,
        }
    }
}

impl LeaseArgs {
    pub(super) fn resources(&self, context: &Context) -> Result<Vec<Resource>, Report> {
        let mode = match (self.shared, self.slots.and_then(NonZeroU32::new)) {
            (true, _) => Mode::Shared,
            (false, Some(slots)) if slots.get() > 1 => Mode::Slots(slots),
            (false, _) => Mode::Exclusive,
        };
        let mut resources: Vec<Resource> = Vec::new();
        for name in &self.names {
            push(&mut resources, Resource { target: Target::Name(lock_name(name)?), mode });
        }
        if !self.paths.is_empty() && matches!(mode, Mode::Slots(_)) {
            return Err(Report::usage("slots are for names, not for paths").with_hint(
                "lock a name with --slots, and the paths in another lease, exclusive or --shared",
            ));
        }
        for path in &self.paths {
            push(&mut resources, Resource { target: path_target(context, path)?, mode });
        }
        if resources.is_empty() {
            return Err(Report::usage("there is nothing to lock").with_hint("give a NAME, or --path GLOB"));
        }
        Ok(resources)
    }

    /// Warns of names that are also paths here: a lease on a name does not protect the path.
    pub(super) fn warn_of_paths(&self, context: &Context) {
        warn_of_paths(context, &self.names);
    }

    pub(super) fn owner(&self) -> Result<Option<Owner>, Report> {
        self.owner.as_ref().map(|text| text.parse()).transpose().map_err(Report::from)
    }

    pub(super) fn ttl(&self) -> Result<Option<Ttl>, Report> {
        self.ttl.as_deref().map(ttl).transpose()
    }

    pub(super) fn priority(&self) -> Result<Priority, Report> {
        self.priority.parse().map_err(Report::from)
    }

    pub(super) fn reason(&self) -> Result<Option<String>, Report> {
        match &self.reason {
            Some(text) if text.len() > 1000 || text.contains('\0') => {
                Err(Report::usage("the reason is too long").with_hint("use at most 1000 bytes"))
            }
            reason => Ok(reason.clone()),
        }
    }
}

fn push(resources: &mut Vec<Resource>, resource: Resource) {
    if !resources.contains(&resource) {
        resources.push(resource);
    }
}

/// Parses a name to lock. A comma is refused: it is meant to separate names, and would be a part of one.
pub(super) fn lock_name(text: &str) -> Result<Name, Report> {
    if text.contains(',') {
        let apart: Vec<&str> = text.split(',').map(str::trim).filter(|part| !part.is_empty()).collect();
        return Err(Report::usage(format!("the name `{}` contains a comma", text.escape_debug()))
            .with_hint(format!("separate names with spaces: {}", apart.join(" ").escape_debug())));
    }
    Ok(text.parse()?)
}

/// Parses a pattern from the command line.
pub(super) fn path_target(context: &Context, text: &str) -> Result<Target, Report> {
    if text.starts_with('!') {
        let message =
            format!("the pattern `{}` begins with `!`, but patterns cannot exclude", text.escape_debug());
        return Err(Report::new(Exit::Usage, "BAD_PATTERN", message).with_hint(
            "give --path once for each part to lock; for a file whose name begins with `!`, write --path '\\!…'",
        ));
    }
    let from_root = context.location.from_root(text, &context.cwd)?;
    Ok(Target::Path(from_root.parse()?))
}

/// Parses a TTL from the command line.
pub(super) fn ttl(text: &str) -> Result<Ttl, Report> {
    parse_span(text).and_then(Ttl::new).map_err(Report::from)
}

/// A lease by its id or by a name that it holds, and its expected token.
#[derive(clap::Args)]
pub(super) struct LeaseSelector {
    /// The lease, such as L42, or a name that you hold, such as db
    #[arg(value_name = "LEASE")]
    pub(super) lease: String,
    /// Refuse if this token is not current
    #[arg(long, value_name = "N")]
    pub(super) token: Option<String>,
}

impl LeaseSelector {
    /// Finds the lease: by its id, or by a name among the leases of the caller.
    pub(super) fn find(&self, context: &Context, owner: Option<Owner>) -> Result<LeaseId, Report> {
        let token = self.token()?;
        find_lease(context, &self.lease, |engine| Some(engine.caller(token, owner)))
    }

    /// Whether it was written as a ticket, such as T42. Its lease has the same number.
    pub(super) fn is_ticket(&self) -> bool {
        self.lease.starts_with('T') && self.lease.parse::<LeaseId>().is_ok()
    }

    pub(super) fn token(&self) -> Result<Option<Token>, Report> {
        self.token.as_deref().map(token).transpose()
    }
}

/// Finds a lease by its id, or by a name that it holds: a lease of the caller, or without a caller of any owner. Changes
/// nothing.
pub(super) fn find_lease(
    context: &Context,
    text: &str,
    caller: impl FnOnce(&Engine) -> Option<Caller>,
) -> Result<LeaseId, Report> {
    let no_id = match text.parse::<LeaseId>() {
        Ok(id) => return Ok(id),
        Err(error) => error,
    };
    let Ok(name) = lock_name(text) else { return Err(no_id.into()) };
    let found = match context.engine_to_read()? {
        Some(engine) => engine.lease_by_name(&name, caller(&engine).as_ref())?,
        None => LeaseByName::Free,
    };
    match found {
        LeaseByName::One(lease) => Ok(lease.id),
        LeaseByName::NotOwn(lease) => {
            Err(NotCurrent::NotTheOwner { id: lease.id, owner: lease.claim.owner.clone() }.into())
        }
        LeaseByName::Several(leases) => {
            let ids: Vec<String> =
                leases.iter().map(|lease| format!("{} of {}", lease.id, lease.claim.owner)).collect();
            Err(Report::usage(format!("`{name}` is held by several leases: {}", ids.join(", ")))
                .with_hint("name one of them by its id"))
        }
        LeaseByName::Free => Err(Report::usage(format!("{no_id}, and nobody holds that name"))
            .with_hint("`lockkeeper locks` shows what is held")),
    }
}

/// Parses a token from the command line.
pub(super) fn token(text: &str) -> Result<Token, Report> {
    let digits = !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
    let number = text.parse().ok().filter(|number| digits && *number > 0);
    number.map(Token).ok_or_else(|| {
        Report::usage(format!("`{text}` is not a token"))
            .with_hint("tokens are numbers: `lockkeeper locks` shows them")
    })
}

/// How long to wait.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Waiting {
    No,
    For(Duration),
    Forever,
}

/// Warns of names that are also paths here: a lease on a name does not protect the path.
pub(super) fn warn_of_paths(context: &Context, names: &[String]) {
    for name in names.iter().filter(|name| context.cwd.join(name).symlink_metadata().is_ok()) {
        let name = name.escape_debug();
        print::talk(&format!(
            "warning: `{name}` is locked as a name; to lock the path {name}, use --path '{name}'"
        ));
    }
}

/// Joins `--wait 5m` to `--wait=5m`. The value of `--wait` is optional, so the parser would take a word after it for a name.
pub(super) fn join_wait(args: impl IntoIterator<Item = OsString>) -> Vec<OsString> {
    let mut joined: Vec<OsString> = Vec::new();
    let mut args = args.into_iter();
    while let Some(arg) = args.next() {
        let is_span = arg.to_str().is_some_and(|text| parse_span(text).is_ok());
        match joined.last_mut() {
            Some(last) if is_span && last == "--wait" => {
                last.push("=");
                last.push(arg);
            }
            Some(_) if arg == "--" => {
                joined.push(arg);
                joined.extend(args);
                break;
            }
            Some(_) | None => joined.push(arg),
        }
    }
    joined
}

/// What the parser puts in the place of the value of a bare `--wait`. No user can write it: it is not empty, and no duration.
pub(super) const NO_TIME: &str = "\u{0}";

/// Parses `--wait` and `--wait=DUR`.
pub(super) fn wait(flag: Option<&str>) -> Result<Option<Waiting>, Report> {
    match flag {
        None => Ok(None),
        Some(NO_TIME) => Ok(Some(Waiting::Forever)),
        Some(text) => Ok(Some(Waiting::For(parse_span(text)?))),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_time_after_wait_is_its_value() {
        let joined = |line: &str| {
            let words = join_wait(line.split(' ').map(OsString::from));
            words.iter().map(|word| word.to_str().unwrap()).collect::<Vec<_>>().join(" ")
        };
        assert_eq!(joined("x acquire db --wait 5m"), "x acquire db --wait=5m");
        assert_eq!(joined("x exec --wait 300 db -- y"), "x exec --wait=300 db -- y");
        assert_eq!(joined("x exec --wait 1m30s db -- y"), "x exec --wait=1m30s db -- y");
        for same in [
            "x acquire --wait db",
            "x acquire --wait=1s 5m",
            "x acquire 5m --wait",
            "x exec a -- b --wait 5m",
        ] {
            assert_eq!(joined(same), same);
        }
    }
}
