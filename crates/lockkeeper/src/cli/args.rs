//! Arguments that several commands share, parsed into the types of the rules.

use std::num::NonZeroU32;
use std::time::Duration;

use clap::ValueEnum;
use lockkeeper_core::id::{LeaseId, Owner, Token};
use lockkeeper_core::liveness::Contract;
use lockkeeper_core::record::Priority;
use lockkeeper_core::resource::{Mode, Resource, Target};
use lockkeeper_core::time::{Ttl, parse_span};
use lockkeeper_engine::report::Report;

use super::context::Context;

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
            push(&mut resources, Resource { target: Target::Name(name.parse()?), mode });
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

/// Parses a pattern from the command line.
pub(super) fn path_target(context: &Context, text: &str) -> Result<Target, Report> {
    let from_root = context.location.from_root(text, &context.cwd)?;
    Ok(Target::Path(from_root.parse()?))
}

/// Parses a TTL from the command line.
pub(super) fn ttl(text: &str) -> Result<Ttl, Report> {
    parse_span(text).and_then(Ttl::new).map_err(Report::from)
}

/// The id of a lease, and its expected token.
#[derive(clap::Args)]
pub(super) struct LeaseSelector {
    /// The lease, such as L42
    #[arg(value_name = "LEASE")]
    lease: String,
    /// Refuse if this token is not current
    #[arg(long, value_name = "N")]
    token: Option<String>,
}

impl LeaseSelector {
    pub(super) fn id(&self) -> Result<LeaseId, Report> {
        self.lease.parse().map_err(Report::from)
    }

    pub(super) fn token(&self) -> Result<Option<Token>, Report> {
        self.token.as_deref().map(token).transpose()
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

/// Parses `--wait` and `--wait=DUR`.
pub(super) fn wait(flag: Option<&str>) -> Result<Option<Waiting>, Report> {
    match flag {
        None => Ok(None),
        Some("") => Ok(Some(Waiting::Forever)),
        Some(text) => Ok(Some(Waiting::For(parse_span(text)?))),
    }
}
