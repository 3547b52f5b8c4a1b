//! Names for commands: the table `[agents.commands]` maps patterns of shell commands to names.

use lockkeeper_core::id::Name;

/// A pattern of commands, and the name that is held while such a command runs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CommandName {
    /// The pattern: `*` matches any text, also an empty one and one with blanks. Every other character matches itself.
    pub pattern: String,
    /// The name.
    pub name: Name,
}

impl CommandName {
    /// Whether a simple command, its words joined by blanks, fits.
    pub fn matches(&self, command: &str) -> bool {
        let mut parts = self.pattern.split('*');
        let first = parts.next().unwrap_or_default();
        let Some(mut rest) = command.strip_prefix(first) else { return false };
        let Some(last) = parts.next_back() else { return rest.is_empty() };
        // The earliest place for each part leaves the most for those that follow.
        for part in parts {
            let Some(at) = rest.find(part) else { return false };
            rest = &rest[at + part.len()..];
        }
        rest.ends_with(last)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_star_is_any_text_and_the_rest_is_itself() {
        let fits = |pattern: &str, command: &str| {
            CommandName { pattern: pattern.to_owned(), name: "x".parse().unwrap() }.matches(command)
        };
        for (pattern, command) in [
            ("npm run dev", "npm run dev"),
            ("cargo *", "cargo test -p x"),
            ("*migrate*", "./bin/migrate"),
            ("*migrate*", "rails db:migrate RAILS_ENV=test"),
            ("*", ""),
            ("a*b*c", "a b b c"),
            ("a*a", "aa"),
        ] {
            assert!(fits(pattern, command), "{pattern} {command}");
        }
        for (pattern, command) in [
            ("npm run dev", "npm run dev2"),
            ("cargo *", "cargo"),
            ("cargo *", "xcargo test"),
            ("a*a", "a"),
            ("a?c", "abc"),
            ("*migrate", "migrate all"),
        ] {
            assert!(!fits(pattern, command), "{pattern} {command}");
        }
    }
}
