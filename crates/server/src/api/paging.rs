//! Pagination: `limit` and `after` of lists.

use lockkeeper_engine::report::Report;
use serde::Deserialize;
use utoipa::IntoParams;

/// The default length of a page.
const DEFAULT_LIMIT: usize = 100;
/// The largest length of a page.
const MAX_LIMIT: usize = 1_000;

/// A page of a list.
#[derive(Debug, Deserialize, IntoParams)]
#[into_params(parameter_in = Query)]
pub(crate) struct Paging {
    /// The largest number of entries, from 1 to 1000; 100 by default.
    #[param(minimum = 1, maximum = 1000)]
    limit: Option<usize>,
    /// Continue after this entry: the `next` of the previous page.
    after: Option<String>,
}

impl Paging {
    /// The checked length of the page.
    pub(super) fn limit(&self) -> Result<usize, Report> {
        match self.limit {
            None => Ok(DEFAULT_LIMIT),
            Some(limit) if (1..=MAX_LIMIT).contains(&limit) => Ok(limit),
            Some(limit) => Err(Report::usage(format!("a page cannot have {limit} entries"))
                .with_hint(format!("ask for 1 to {MAX_LIMIT} with ?limit="))),
        }
    }

    /// The id to continue after.
    pub(super) fn after_id(&self) -> Option<&str> {
        self.after.as_deref()
    }

    /// The number to continue after; 0 for the first page.
    pub(super) fn after(&self) -> Result<u64, Report> {
        let Some(text) = self.after.as_deref() else { return Ok(0) };
        text.parse().map_err(|_| {
            Report::usage(format!("`{}` is no place in a list", text.escape_debug()))
                .with_hint("use the `next` of the page before")
        })
    }
}

/// Takes a page out of entries that are sorted by number. Returns the page and the `next` of the response.
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

/// Truncates a list that was read with one entry more than a page. Returns the `next` of the response.
pub(super) fn truncate_page<T>(
    entries: &mut Vec<T>,
    limit: usize,
    id: impl Fn(&T) -> String,
) -> Option<String> {
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
