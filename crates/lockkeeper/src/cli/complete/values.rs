//! Values of arguments: what the stores and files here have, by the name that the help gives the value.

use std::collections::BTreeSet;
use std::path::Path;

use clap::Arg;
use lockkeeper_core::request::RequestStatus;
use lockkeeper_core::resource::Target;
use lockkeeper_core::run::Status;
use lockkeeper_engine::report::Report;
use lockkeeper_engine::runs::{RequestFilter, RunFilter, short_id};
use lockkeeper_formats::group::Survey;
use lockkeeper_stages::File;

use super::line::Line;
use crate::cli::context::{Context, Globals};
use crate::cli::group;

/// How many runs and requests are offered, the latest first.
const LATEST: usize = 50;

/// A word that can be written.
#[derive(Debug)]
pub(super) struct Candidate {
    pub(super) value: String,
    pub(super) about: String,
}

/// Everything that can be written.
#[derive(Debug, Default)]
pub(super) struct Offer {
    pub(super) candidates: Vec<Candidate>,
    pub(super) files: bool,
    pub(super) folders: bool,
    /// The word at which a command line of its own begins.
    pub(super) command_at: Option<usize>,
    /// The text before each candidate.
    pub(super) before: String,
}

impl Offer {
    pub(super) fn of(all: impl IntoIterator<Item = (String, String)>) -> Self {
        let candidates = all.into_iter().map(|(value, about)| Candidate { value, about }).collect();
        Self { candidates, ..Self::default() }
    }

    fn files() -> Self {
        Self { files: true, ..Self::default() }
    }
}

/// The values of an argument. None if something fails: a shell cannot show an error here.
pub(super) fn of(line: &Line<'_>, arg: &Arg) -> Offer {
    let possible = arg.get_possible_values();
    if !possible.is_empty() {
        let about =
            |one: &clap::builder::PossibleValue| one.get_help().map(ToString::to_string).unwrap_or_default();
        let shown = possible.iter().filter(|one| !one.is_hide_set());
        return Offer::of(shown.map(|one| (one.get_name().to_owned(), about(one))));
    }
    let kind = arg.get_value_names().and_then(|names| names.first()).map_or("", |name| name.as_str());
    let found = match kind {
        "NAME" if line.command.get_name() != "serve" => names(line),
        "NAME|PATH" => names(line).map(|offer| Offer { files: true, ..offer }),
        "LEASE" | "TICKET" => leases(line),
        "OWNER" | "KIND:ID" => owners(line),
        "RUN" => runs(line),
        "REQUEST" => requests(line),
        "STATUS" => Ok(statuses(line, arg)),
        "PHASE" => Ok(phases(line)),
        "GROUP" if line.path.first() == Some(&"stages") => Ok(groups_of_phase(line)),
        "GROUP" => groups(line),
        "FILE" | "STAGES" | "PATH" | "GLOB" | "PATTERN" => Ok(Offer::files()),
        "DIR" => Ok(Offer { folders: true, ..Offer::default() }),
        _ => Ok(Offer::default()),
    };
    found.unwrap_or_default()
}

fn context(line: &Line<'_>) -> Result<Context, Report> {
    let value =
        |name| line.values.iter().find(|(option, _)| *option == name).map(|(_, value)| (*value).to_owned());
    let globals = Globals { dir: value("dir"), store: value("store"), json: false, lang: None, color: None };
    Context::new(&globals)
}

/// Names that are held or waited for, and those that open requests will lock.
fn names(line: &Line<'_>) -> Result<Offer, Report> {
    let context = context(line)?;
    let mut names: Vec<(String, String)> = Vec::new();
    if let Some(engine) = context.engine_to_read()? {
        let listing = engine.listing()?;
        let held = listing.holders.iter().map(|one| (&one.lease.claim, "held by"));
        let waited = listing.waiters.iter().map(|one| (&one.ticket.claim, "waited for by"));
        for (claim, how) in held.chain(waited) {
            let of_claim = claim.resources.iter().filter_map(|resource| name_of(&resource.target));
            names.extend(of_claim.map(|name| (name, format!("{how} {}", claim.owner))));
        }
    }
    if let Some(runs) = context.existing_runs()? {
        let filter = RequestFilter { limit: LATEST, ..RequestFilter::default() };
        for entry in runs.requests(&filter)? {
            let request = &entry.request.request;
            names.extend(
                request.locks.iter().map(|name| (name.to_string(), format!("lock of {}", request.id))),
            );
        }
    }
    Ok(Offer::of(without_repeats(names)))
}

/// Leases and tickets by their ids, and the names that are held.
fn leases(line: &Line<'_>) -> Result<Offer, Report> {
    let Some(engine) = context(line)?.engine_to_read()? else { return Ok(Offer::default()) };
    let listing = engine.listing()?;
    let about = |claim: &lockkeeper_core::record::Claim| {
        let targets: Vec<String> = claim.resources.iter().map(|one| one.target.to_string()).collect();
        format!("{}, {}", targets.join(" "), claim.owner)
    };
    let held = listing.holders.iter().map(|one| (one.lease.id.to_string(), about(&one.lease.claim)));
    let waiting = listing.waiters.iter().map(|one| (one.ticket.id.as_ticket(), about(&one.ticket.claim)));
    let names = listing.holders.iter().flat_map(|one| {
        let names = one.lease.claim.resources.iter().filter_map(|resource| name_of(&resource.target));
        names.map(|name| (name, about(&one.lease.claim)))
    });
    Ok(Offer::of(without_repeats(held.chain(waiting).chain(names))))
}

fn name_of(target: &Target) -> Option<String> {
    match target {
        Target::Name(name) => Some(name.to_string()),
        Target::Path(_) => None,
    }
}

fn owners(line: &Line<'_>) -> Result<Offer, Report> {
    let Some(engine) = context(line)?.engine_to_read()? else { return Ok(Offer::default()) };
    let listing = engine.listing()?;
    let held = listing.holders.iter().map(|one| (one.lease.claim.owner.to_string(), "holds".to_owned()));
    let waiting = listing.waiters.iter().map(|one| (one.ticket.claim.owner.to_string(), "waits".to_owned()));
    Ok(Offer::of(without_repeats(held.chain(waiting))))
}

/// The latest runs by the ids of their requests and by their own; the whole ids if the user writes one.
fn runs(line: &Line<'_>) -> Result<Offer, Report> {
    let Some(runs) = context(line)?.existing_runs()? else { return Ok(Offer::default()) };
    let filter = RunFilter { limit: LATEST, ..RunFilter::default() };
    let entries = runs.entries(&filter)?;
    let about = |entry: &lockkeeper_engine::runs::RunEntry| {
        format!("{} {}", entry.run.status(), entry.request.request.title)
    };
    let shown = |id: &str| if line.typed.starts_with("R") { id.to_owned() } else { short_id(id).to_owned() };
    let requests = entries.iter().map(|entry| (shown(entry.run.request.as_str()), about(entry)));
    let runs = entries.iter().map(|entry| (shown(entry.run.id.as_str()), about(entry)));
    Ok(Offer::of(without_repeats(requests.chain(runs))))
}

fn requests(line: &Line<'_>) -> Result<Offer, Report> {
    let Some(runs) = context(line)?.existing_runs()? else { return Ok(Offer::default()) };
    let filter = RequestFilter { limit: LATEST, ..RequestFilter::default() };
    let entries = runs.requests(&filter)?;
    let all = entries.iter().map(|entry| &entry.request);
    Ok(Offer::of(
        all.map(|one| (one.request.id.to_string(), format!("{} {}", one.status, one.request.title))),
    ))
}

/// The statuses of requests for `requests` and `--request-status`, else those of runs.
fn statuses(line: &Line<'_>, arg: &Arg) -> Offer {
    let of_requests = line.path.first() == Some(&"requests") || arg.get_long() == Some("request-status");
    let words: Vec<&str> = if of_requests {
        RequestStatus::ALL.map(RequestStatus::as_str).to_vec()
    } else {
        Status::ALL.map(Status::as_str).to_vec()
    };
    Offer::of(words.into_iter().map(|word| (word.to_owned(), String::new())))
}

/// The phases of the file that the line names.
fn phases(line: &Line<'_>) -> Offer {
    let Some(file) = stages(line) else { return Offer::default() };
    Offer::of(
        file.stages
            .phases
            .iter()
            .map(|phase| (phase.name.value.clone(), format!("{} groups", phase.groups.len()))),
    )
}

/// The groups of the phase that the line names.
fn groups_of_phase(line: &Line<'_>) -> Offer {
    let Some(file) = stages(line) else { return Offer::default() };
    let Some(phase) = line.operands.get(1).and_then(|name| file.stages.phase(name)) else {
        return Offer::default();
    };
    let given = &line.operands[2..];
    let left = phase.groups.iter().filter(|group| !given.contains(&group.id.value.as_str()));
    Offer::of(left.map(|group| (group.id.value.clone(), group.name.clone().unwrap_or_default())))
}

fn stages(line: &Line<'_>) -> Option<File> {
    File::load(Path::new(line.operands.first()?)).ok()
}

/// Groups that have a lock file.
fn groups(line: &Line<'_>) -> Result<Offer, Report> {
    let survey = Survey::take(&group::folders(&context(line)?), 0)?;
    Ok(Offer::of(survey.groups.into_iter().map(|group| (group.id, String::new()))))
}

fn without_repeats(all: impl IntoIterator<Item = (String, String)>) -> Vec<(String, String)> {
    let mut seen = BTreeSet::new();
    all.into_iter().filter(|(value, _)| seen.insert(value.clone())).collect()
}
