//! Secrets in variables and commands: which values are never shown.

mod command;

use std::borrow::Cow;

pub use self::command::{shown_command, shown_line};
use self::command::{without_passwords, without_tokens};

/// The text that replaces a secret.
pub const HIDDEN: &str = "***";

/// A name that contains one of these is secret.
const ANYWHERE: [&str; 10] = [
    "AUTHORIZATION",
    "TOKEN",
    "SECRET",
    "PASSW",
    "PASSPHRASE",
    "CREDENTIAL",
    "COOKIE",
    "PRIVATE",
    "APIKEY",
    "BEARER",
];
/// A name is secret if one of its parts ends with one of these.
const PART_ENDS: [&str; 6] = ["KEY", "KEYS", "AUTH", "PASS", "PWD", "JWT"];
/// Names that are not secret, although they match.
const KNOWN: [&str; 2] = ["PWD", "OLDPWD"];

/// Says whether the value of a variable with this name is a secret. In doubt it is.
pub fn is_secret(name: &str) -> bool {
    let name = name.to_ascii_uppercase();
    if KNOWN.contains(&name.as_str()) {
        return false;
    }
    let mut parts = name.split(|c: char| !c.is_ascii_alphanumeric());
    ANYWHERE.iter().any(|word| name.contains(word))
        || parts.any(|part| PART_ENDS.iter().any(|end| part.ends_with(end)))
}

/// Returns the value of a variable for display: hides a secret, and a password in a URL.
pub fn shown<'v>(name: &str, value: &'v str) -> Cow<'v, str> {
    if is_secret(name) && !value.is_empty() {
        return Cow::Borrowed(HIDDEN);
    }
    Cow::Owned(without_tokens(&without_passwords(value)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn secrets_are_known_by_their_names() {
        for name in [
            "GITHUB_TOKEN",
            "AWS_SECRET_ACCESS_KEY",
            "ANTHROPIC_API_KEY",
            "apikey",
            "DB_PASSWORD",
            "DB_PWD",
            "PGPASS",
            "HTTP_AUTH",
            "SESSION_COOKIE",
            "GOOGLE_APPLICATION_CREDENTIALS",
            "SSH_PRIVATE",
            "DEPLOY_KEYS",
        ] {
            assert!(is_secret(name), "{name}");
        }
        for name in ["PATH", "PWD", "OLDPWD", "GIT_AUTHOR_NAME", "KEYBOARD", "COMPOSE_FILE", "LANG"] {
            assert!(!is_secret(name), "{name}");
        }
    }

    #[test]
    fn values_are_shown_without_what_is_secret() {
        assert_eq!(shown("GITHUB_TOKEN", "abc"), HIDDEN);
        assert_eq!(shown("GITHUB_TOKEN", ""), "");
        assert_eq!(shown("X", "a ghp_0123456789abcdefghij"), "a ghp_***");
        assert_eq!(shown("DATABASE_URL", "postgres://me:pw@host:5432/x"), "postgres://me:***@host:5432/x");
        assert_eq!(shown("DATABASE_URL", "postgres://me:p@w/@host/x"), "postgres://me:***@w/@host/x");
        for harmless in ["", "/usr/bin", "http://host:80/a@b:c", "http://me@host/", "a:b@c"] {
            assert_eq!(shown("X", harmless), harmless);
        }
    }
}
