//! `lockkeeper` and `lockkeeper status` alone: the overview.

use anstyle::Style;
use lockkeeper_engine::OwnerNames;
use lockkeeper_engine::foreign_locks::ForeignPlaces;
use lockkeeper_engine::messages::{Language, Messages, Phrases};
use lockkeeper_engine::overview::{Overview, RequestSummary, Requests};
use lockkeeper_engine::report::{Exit, Report};
use lockkeeper_engine::runs::short_id;
use lockkeeper_engine::views::{AttentionView, OverviewView};
use lockkeeper_formats::group::Folders;

use super::context::Context;
use super::locks::resources;
use super::obtain::reason;
use super::runs::rows::{age, why};
use super::{print, table, task};

/// How many leases and tickets are shown.
const SHOWN: usize = 10;

/// The first commands to try, and the phrases that say what they do.
const FIRST_STEPS: [(&str, &str); 5] = [
    ("demo", "overview.demo"),
    ("exec db -- ./migrate.sh", "overview.exec"),
    ("submit -- make test", "overview.submit"),
    ("init", "overview.init"),
    ("--help", "overview.help"),
];

pub(super) fn run(context: &Context) -> Result<Exit, Report> {
    let (swarm, groups) = (task::swarm()?, Folders::from_variables(&|name| std::env::var_os(name)));
    let places = ForeignPlaces { root: &context.location.root, swarm: &swarm, groups: &groups };
    let (leases, runs) = (context.engine_to_read()?, context.existing_runs()?);
    let overview = Overview::read(leases.as_ref(), runs.as_ref(), &context.location.state, places)?;
    let messages = Messages::load();
    if context.json {
        // Texts in JSON are English.
        print::json(&OverviewView::new(&overview, Language::En, &messages));
        return Ok(Exit::Done);
    }
    let attention = AttentionView::all(&overview, context.language(), &messages);
    let names = OwnerNames::of(&overview.locks.listing, &context.location.root);
    let shown = Shown { overview: &overview, names: &names, phrases: context.phrases() };
    print::out(&table::fit_terminal(&shown.as_text(&attention)));
    Ok(Exit::Done)
}

/// An overview in the language of the user.
struct Shown<'o> {
    overview: &'o Overview,
    names: &'o OwnerNames,
    phrases: &'o Phrases,
}

impl Shown<'_> {
    fn as_text(&self, attention: &[AttentionView]) -> String {
        let overview = self.overview;
        if overview.is_quiet() && overview.is_used {
            return self.say("overview.quiet") + "\n";
        }
        if overview.is_quiet() {
            let step = |(words, key): &(&str, &str)| {
                format!("  {:<34}  {}\n", format!("lockkeeper {words}"), self.say(key))
            };
            let steps: String = FIRST_STEPS.iter().map(step).collect();
            return format!("{}\n\n{steps}", self.say("overview.first"));
        }
        let sections = [
            self.held(),
            self.waiting(),
            self.of_others(),
            self.section("overview.running", &overview.running, |one| self.in_progress(one)),
            self.section("overview.queued", &overview.queued, |one| self.in_progress(one)),
            self.section("overview.failed", &overview.failed, |one| self.failed(one)),
            self.needs_a_person(attention),
        ];
        sections.into_iter().flatten().collect::<Vec<_>>().join("\n")
    }

    fn say(&self, key: &str) -> String {
        self.phrases.fill(key, &[])
    }

    /// How long something has lasted, or took.
    fn lasting(&self, key: &str, span: &str) -> String {
        self.phrases.fill(key, &[("span", span)])
    }

    fn held(&self) -> Option<String> {
        let listing = &self.overview.locks.listing;
        let rows = listing.holders.iter().take(SHOWN).map(|holder| {
            let claim = &holder.lease.claim;
            vec![
                holder.lease.id.to_string(),
                table::plain(&resources(claim)),
                table::plain(&self.names.in_text(claim.owner.as_str())),
                self.lasting("overview.for", &print::span(listing.now.since(holder.lease.acquired_at))),
                print::verdict(holder.verdict),
                table::plain(claim.reason.as_deref().unwrap_or("")),
            ]
        });
        self.titled(
            "overview.held",
            listing.holders.len() as u64,
            &rows.collect::<Vec<_>>(),
            "lockkeeper locks",
        )
    }

    fn waiting(&self) -> Option<String> {
        let listing = &self.overview.locks.listing;
        let rows = listing.waiters.iter().take(SHOWN).map(|waiter| {
            let claim = &waiter.ticket.claim;
            let because = if waiter.verdict.is_free() {
                "gone: it will be skipped".to_owned()
            } else {
                format!("waits for {}", reason(&waiter.blockers))
            };
            vec![
                waiter.ticket.id.as_ticket(),
                table::plain(&resources(claim)),
                table::plain(&self.names.in_text(claim.owner.as_str())),
                self.lasting("overview.for", &print::span(listing.now.since(waiter.ticket.enqueued_at))),
                table::plain(&self.names.in_text(&because)),
            ]
        });
        let (count, rows) = (listing.waiters.len() as u64, rows.collect::<Vec<_>>());
        self.titled("overview.waiting", count, &rows, "lockkeeper locks")
    }

    fn of_others(&self) -> Option<String> {
        let locks = &self.overview.locks.foreign.locks;
        let rows = locks.iter().take(SHOWN).map(|lock| {
            let (subject, holder) = (table::plain(&lock.subject), table::plain(&lock.holder));
            vec![lock.format.to_owned(), subject, holder, lock.state.to_owned(), table::plain(&lock.reason)]
        });
        self.titled("overview.foreign", locks.len() as u64, &rows.collect::<Vec<_>>(), "lockkeeper locks")
    }

    /// A section with requests.
    fn section(
        &self,
        title: &str,
        requests: &Requests,
        row: impl Fn(&RequestSummary) -> Vec<String>,
    ) -> Option<String> {
        let rows: Vec<_> = requests.first.iter().map(row).collect();
        self.titled(title, requests.count, &rows, "lockkeeper requests")
    }

    fn in_progress(&self, one: &RequestSummary) -> Vec<String> {
        [self.beginning(one, "overview.for"), vec![self.names.in_text(&self.reason_of(one))]].concat()
    }

    fn failed(&self, one: &RequestSummary) -> Vec<String> {
        let request = &one.entry.request.request;
        let last_line = one.last_line.as_deref().map(|line| format!(": {}", table::plain(line)));
        let why = self.reason_of(one) + &last_line.unwrap_or_default();
        let logs = format!("`lockkeeper run logs {}`", table::plain(short_id(request.id.as_str())));
        [self.beginning(one, "overview.took"), vec![logs, why]].concat()
    }

    /// The first cells of a row: the id, how long the request has been in this state or took, and its title.
    fn beginning(&self, one: &RequestSummary, how: &str) -> Vec<String> {
        let request = &one.entry.request.request;
        let age = one.entry.latest.as_ref().map(|run| self.lasting(how, &age(run, self.overview.now)));
        let title = table::cut(&table::plain(&request.title), 30);
        vec![table::plain(short_id(request.id.as_str())), age.unwrap_or_default(), title]
    }

    fn reason_of(&self, one: &RequestSummary) -> String {
        let entry = &one.entry;
        let leases = Some(&self.overview.locks.listing);
        let run = entry.latest.as_ref();
        run.map_or_else(String::new, |run| {
            why(run, &entry.request.request, entry.blocked.as_ref(), leases, self.overview.now)
        })
    }

    fn needs_a_person(&self, attention: &[AttentionView]) -> Option<String> {
        let lines = attention.iter().flat_map(|one| {
            [vec![table::plain(&one.message)], vec![format!("  {}", table::plain(&one.hint))]]
        });
        let (count, lines) = (attention.len() as u64, lines.collect::<Vec<_>>());
        self.titled("overview.attention", count, &lines, "lockkeeper status --json")
    }

    /// A title with a count, and rows. `all` is the command that shows all of them.
    fn titled(&self, title: &str, count: u64, rows: &[Vec<String>], all: &str) -> Option<String> {
        if count == 0 {
            return None;
        }
        let bold = Style::new().bold();
        let mut text = format!("{bold}{}{bold:#} ({count})\n", self.say(title));
        text.push_str(&table::indented_list(rows));
        if count > rows.len() as u64 && rows.len() >= SHOWN {
            text.push_str(&format!("  {}\n", self.phrases.fill("overview.all", &[("command", all)])));
        }
        Some(text)
    }
}
