//! Arguments that several commands share, read into the words of the rules.

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

/// What is wanted, and how.
#[derive(clap::Args)]
pub(super) struct Wanted {
    /// Names to hold, such as db or git/index
    #[arg(value_name = "NAME")]
    pub(super) names: Vec<String>,
    /// Paths to hold, as a pattern such as 'src/api/**'
    #[arg(long = "path", value_name = "GLOB")]
    pub(super) paths: Vec<String>,
    /// Share with others who share
    #[arg(long)]
    pub(super) shared: bool,
    /// Let at most N hold the names at a time
    #[arg(long, value_name = "N", conflicts_with = "shared", value_parser = clap::value_parser!(u32).range(1..))]
    pub(super) slots: Option<u32>,
    /// Who holds it, as kind:id; one owner does not exclude itself
    #[arg(long, value_name = "OWNER")]
    pub(super) owner: Option<String>,
    /// Tell others why
    #[arg(long, value_name = "TEXT")]
    pub(super) reason: Option<String>,
    /// How long the lease lives without being renewed
    #[arg(long, value_name = "DUR")]
    pub(super) ttl: Option<String>,
    /// What becomes of it when its time is up although its holder lives
    #[arg(long, value_enum, value_name = "CONTRACT")]
    pub(super) contract: Option<ContractArg>,
    /// How urgent it is, from -100 to 100: more is sooner
    #[arg(long, value_name = "N", default_value = "0", allow_negative_numbers = true)]
    pub(super) priority: String,
}

/// Contracts by name.
#[derive(Clone, Copy, ValueEnum)]
pub(super) enum ContractArg {
    /// A live holder keeps it
    Strict,
    /// It may be taken over; the token protects
    Lease,
    /// Its holder is stopped first
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

impl Wanted {
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
                "hold a name with --slots, and the paths exclusively or --shared in a lease of their own",
            ));
        }
        for path in &self.paths {
            push(&mut resources, Resource { target: path_target(context, path)?, mode });
        }
        if resources.is_empty() {
            return Err(Report::usage("there is nothing to hold").with_hint("give a NAME, or --path GLOB"));
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
                Err(Report::usage("the reason is too long").with_hint("say it in at most 1000 bytes"))
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

/// A pattern as given on the command line.
pub(super) fn path_target(context: &Context, text: &str) -> Result<Target, Report> {
    let from_root = context.location.from_root(text, &context.cwd)?;
    Ok(Target::Path(from_root.parse()?))
}

/// A TTL as given on the command line.
pub(super) fn ttl(text: &str) -> Result<Ttl, Report> {
    parse_span(text).and_then(Ttl::new).map_err(Report::from)
}

/// Which lease, and under which token.
#[derive(clap::Args)]
pub(super) struct Which {
    /// The lease, such as L42
    #[arg(value_name = "LEASE")]
    lease: String,
    /// Only if this token is current
    #[arg(long, value_name = "N")]
    token: Option<String>,
}

impl Which {
    pub(super) fn id(&self) -> Result<LeaseId, Report> {
        self.lease.parse().map_err(Report::from)
    }

    pub(super) fn token(&self) -> Result<Option<Token>, Report> {
        self.token.as_deref().map(token).transpose()
    }
}

/// A token as given on the command line.
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

/// Reads `--wait`, which may have a span behind `=`.
pub(super) fn wait(flag: Option<&str>) -> Result<Option<Waiting>, Report> {
    match flag {
        None => Ok(None),
        Some("") => Ok(Some(Waiting::Forever)),
        Some(text) => Ok(Some(Waiting::For(parse_span(text)?))),
    }
}
