//! The groups to predict for: from flags, or from the leases that are held.

use std::collections::BTreeMap;

use lockkeeper_core::pattern::Pattern;
use lockkeeper_core::resource::Target;
use lockkeeper_engine::predict::Group;
use lockkeeper_engine::report::Report;

use crate::cli::args::path_target;
use crate::cli::context::Context;
use crate::cli::locks;

/// The name of the group of `--paths`.
pub(super) const UNNAMED: &str = "paths";

/// Reads all groups. Each has a unique name and at least one pattern.
pub(super) fn groups(
    context: &Context,
    paths: &[String],
    named: &[String],
    held: bool,
) -> Result<Vec<Group>, Report> {
    let mut groups: Vec<Group> = Vec::new();
    if !paths.is_empty() {
        groups.push(Group { name: UNNAMED.to_owned(), patterns: patterns(context, paths)? });
    }
    for text in named {
        let malformed = || {
            Report::usage(format!("`{text}` is not a group with its paths"))
                .with_hint("write NAME=GLOB[,GLOB…], such as 'backend=src/api/**,src/db/**'")
        };
        let (name, globs) = text.split_once('=').ok_or_else(malformed)?;
        let globs = split(globs);
        if name.trim().is_empty() || globs.iter().any(String::is_empty) {
            return Err(malformed());
        }
        groups.push(Group { name: name.trim().to_owned(), patterns: patterns(context, &globs)? });
    }
    if held {
        groups.extend(holders(context)?);
    }
    for (index, group) in groups.iter().enumerate() {
        if groups[..index].iter().any(|other| other.name == group.name) {
            return Err(Report::usage(format!("there are two groups named `{}`", group.name))
                .with_hint("give each group a name of its own"));
        }
    }
    Ok(groups)
}

fn patterns(context: &Context, globs: &[String]) -> Result<Vec<Pattern>, Report> {
    let mut patterns: Vec<Pattern> = Vec::new();
    for glob in globs {
        if let Target::Path(pattern) = path_target(context, glob)?
            && !patterns.contains(&pattern)
        {
            patterns.push(pattern);
        }
    }
    Ok(patterns)
}

/// One group for each owner that holds paths. Leases of one owner do not conflict.
fn holders(context: &Context) -> Result<Vec<Group>, Report> {
    let mut owners: BTreeMap<String, Vec<Pattern>> = BTreeMap::new();
    for holder in locks::Snapshot::read(context)?.listing.holders {
        if holder.verdict.is_free() {
            continue;
        }
        for target in holder.lease.claim.targets() {
            match target {
                Target::Path(pattern) => owners
                    .entry(holder.lease.claim.owner.as_str().to_owned())
                    .or_default()
                    .push(pattern.clone()),
                Target::Name(_) => {}
            }
        }
    }
    Ok(owners.into_iter().map(|(name, patterns)| Group { name, patterns }).collect())
}

/// Splits at commas, except inside of braces and classes, and after a backslash.
fn split(globs: &str) -> Vec<String> {
    let mut parts = vec![String::new()];
    let (mut depth, mut class, mut escaped) = (0_usize, false, false);
    for character in globs.chars() {
        let separates = character == ',' && depth == 0 && !class && !escaped;
        match character {
            _ if escaped => {}
            '[' => class = true,
            ']' => class = false,
            '{' if !class => depth += 1,
            '}' if !class => depth = depth.saturating_sub(1),
            _ => {}
        }
        escaped = character == '\\' && !escaped;
        if separates {
            parts.push(String::new());
        } else if let Some(part) = parts.last_mut() {
            part.push(character);
        }
    }
    parts.into_iter().map(|part| part.trim().to_owned()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn commas_of_a_pattern_do_not_split_it() {
        assert_eq!(split("a, b/**"), ["a", "b/**"]);
        assert_eq!(split("src/{a,b{c,d}}/*,x"), ["src/{a,b{c,d}}/*", "x"]);
        assert_eq!(split(r"a\,b,[,]x,\\,y"), [r"a\,b", "[,]x", r"\\", "y"]);
        assert_eq!(split("a,,b"), ["a", "", "b"]);
        assert_eq!(split(""), [""]);
    }
}
