//! Suggestions: patterns to declare, so that they cover the predicted paths.

use std::collections::BTreeMap;

/// The fewest predicted files for which a whole folder is suggested.
const FOLDER: usize = 3;

/// Suggests patterns for predicted paths: each by itself, or its folder when most of the folder is predicted.
///
/// `files_in` says how many files lie directly in a folder, which is `""` for the root. The root is never suggested.
pub fn suggest<'p>(
    paths: impl IntoIterator<Item = &'p str>,
    files_in: impl Fn(&str) -> usize,
) -> Vec<String> {
    let mut folders: BTreeMap<&str, Vec<&str>> = BTreeMap::new();
    for path in paths {
        let folder = path.rsplit_once('/').map_or("", |(folder, _)| folder);
        folders.entry(folder).or_default().push(path);
    }
    let mut patterns = Vec::new();
    for (folder, files) in folders {
        if !folder.is_empty() && files.len() >= FOLDER && files.len() * 2 > files_in(folder) {
            patterns.push(format!("{}/*", escape(folder)));
        } else {
            patterns.extend(files.into_iter().map(escape));
        }
    }
    patterns
}

/// Escapes a path: returns a pattern for this very path, without wildcards.
pub fn escape(path: &str) -> String {
    let mut pattern = String::with_capacity(path.len());
    for character in path.chars() {
        if matches!(character, '*' | '?' | '[' | ']' | '{' | '}' | '\\') {
            pattern.push('\\');
        }
        pattern.push(character);
    }
    pattern
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::pattern::Pattern;

    #[test]
    fn most_of_a_folder_is_the_folder() {
        let paths = ["docs/a.md", "docs/b.md", "docs/c.md", "Cargo.lock", "src/x.rs"];
        assert_eq!(suggest(paths, |_| 5), ["Cargo.lock", "docs/*", "src/x.rs"]);
        assert_eq!(suggest(paths, |_| 6), ["Cargo.lock", "docs/a.md", "docs/b.md", "docs/c.md", "src/x.rs"]);
        assert_eq!(suggest(["a", "b", "c"], |_| 3), ["a", "b", "c"]);
    }

    #[test]
    fn a_suggested_pattern_matches_what_it_was_made_of() {
        for path in ["a*b?[c]{d,e}\\f", "src/[id]/page.tsx", "{}", "**"] {
            let pattern: Pattern = escape(path).parse().unwrap();
            assert!(pattern.is_literal() && pattern.matches(path), "{path}");
            assert!(!pattern.matches("axb"), "{path}");
        }
    }
}
