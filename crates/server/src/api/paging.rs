//! Long lists in pages: how many, and after which.

use serde::Deserialize;
use utoipa::IntoParams;

use lockkeeper_engine::report::Report;

/// A page has this many unless asked otherwise.
const USUAL: usize = 100;
/// A page has no more than this.
const MOST: usize = 1_000;

/// Which page.
#[derive(Debug, Deserialize, IntoParams)]
#[into_params(parameter_in = Query)]
pub(crate) struct Paging {
    /// How many at the most, from 1 to 1000; 100 if not said.
    #[param(minimum = 1, maximum = 1000)]
    limit: Option<usize>,
    /// Go on after this one, as `next` of the page before said.
    after: Option<String>,
}

impl Paging {
    /// How many.
    pub(super) fn limit(&self) -> Result<usize, Report> {
        match self.limit {
            None => Ok(USUAL),
            Some(limit) if (1..=MOST).contains(&limit) => Ok(limit),
            Some(limit) => Err(Report::usage(format!("a page cannot have {limit} entries"))
                .with_hint(format!("ask for 1 to {MOST} with ?limit="))),
        }
    }

    /// After which one, as its id.
    pub(super) fn after_id(&self) -> Option<&str> {
        self.after.as_deref()
    }

    /// After which one, as a number.
    pub(super) fn after(&self) -> Result<u64, Report> {
        let Some(text) = self.after.as_deref() else { return Ok(0) };
        text.parse().map_err(|_| {
            Report::usage(format!("`{}` is no place in a list", text.escape_debug()))
                .with_hint("use the `next` of the page before")
        })
    }
}

/// Cuts a page out of what is there, which has to be in the order of its numbers; and the number to go on after.
pub(super) fn page<T>(
    all: impl Iterator<Item = T>,
    number: impl Fn(&T) -> u64,
    after: u64,
    limit: usize,
) -> (Vec<T>, Option<String>) {
    let mut rest = all.filter(|one| number(one) > after);
    let page: Vec<T> = rest.by_ref().take(limit).collect();
    let more = rest.next().is_some();
    let next = page.last().filter(|_| more).map(|last| number(last).to_string());
    (page, next)
}

/// Cuts off what is beyond the page; and the id to go on after, if there is more.
pub(super) fn beyond<T>(entries: &mut Vec<T>, limit: usize, id: impl Fn(&T) -> String) -> Option<String> {
    let more = entries.len() > limit;
    entries.truncate(limit);
    entries.last().filter(|_| more).map(id)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pages_follow_each_other_without_gap_or_repetition() {
        let all = [2, 3, 5, 7, 11_u64];
        let (mut seen, mut after) = (Vec::new(), 0);
        loop {
            let (part, next) = page(all.into_iter(), |number| *number, after, 2);
            seen.extend(part);
            match next {
                Some(next) => after = next.parse().unwrap(),
                None => break,
            }
        }
        assert_eq!(seen, all);
        assert_eq!(page(all.into_iter(), |number| *number, 0, 5), (all.to_vec(), None));
    }
}
