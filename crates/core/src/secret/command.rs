//! Command lines as others may see them: values that are secrets are hidden. The command that runs keeps them.
//!
//! A secret is known by the name in front of it: `--password=x`, `--token x`, `DB_PASSWORD=x`, `Authorization: Bearer x`,
//! `"api_key": "x"`, `?token=x`; or by its place in an address, `https://user:x@host/`. A script in one argument, as that of
//! `sh -c`, is treated like a command line of its own.

use super::{HIDDEN, is_secret};

/// Flags that have a name and a password in one word, `me:secret`.
const USER_FLAGS: [&str; 4] = ["-u", "--user", "-U", "--proxy-user"];
/// A flag whose name ends with one of these names no secret, but where or whether there is one.
const HARMLESS_ENDS: [&str; 6] = ["FILE", "PATH", "DIR", "NAME", "TYPE", "TTL"];
/// A flag whose name begins with one of these has no value.
const HARMLESS_BEGINS: [&str; 3] = ["NO", "PRINT", "SHOW"];
/// A name of a user in an address that is this long is a token.
const TOKEN_LENGTH: usize = 20;
/// What separates values within one word, such as parts of a query.
const SEPARATORS: [char; 9] = ['?', '&', ',', ';', '{', '}', '(', ')', '|'];

const QUOTES: [char; 2] = ['\'', '"'];

/// The words of a command without its secrets.
pub fn shown_command<W: AsRef<str>>(words: &[W]) -> Vec<String> {
    let mut shown = Vec::with_capacity(words.len());
    let mut before = Before::Nothing;
    for word in words {
        let word = word.as_ref();
        shown.push(before.shown(word));
        before = Before::of(word);
    }
    shown
}

/// A line of text, such as a script, without its secrets.
pub fn shown_line(text: &str) -> String {
    let mut shown = String::with_capacity(text.len());
    let mut before = Before::Nothing;
    let mut rest = text;
    while !rest.is_empty() {
        let gap = rest.len() - rest.trim_start().len();
        let (space, from_word) = rest.split_at(gap);
        let (word, after) = from_word.split_at(word_length(from_word));
        shown.push_str(space);
        if !word.is_empty() {
            shown.push_str(&before.shown(word));
            before = Before::of(word);
        }
        rest = after;
    }
    shown
}

/// What the word before says about the next one.
enum Before {
    Nothing,
    /// The next word is a secret, unless it is a flag.
    Secret,
    /// The next word is a name and a password.
    User,
    /// The next word is a script.
    Script,
}

impl Before {
    fn of(word: &str) -> Self {
        let word = unquoted(word);
        if USER_FLAGS.contains(&word) {
            return Self::User;
        }
        if word.starts_with('-') && !word.starts_with("--") && word.ends_with('c') {
            return Self::Script;
        }
        let is_flag = word.starts_with('-') && !word.contains(['=', ':', ' ']);
        if (is_flag && is_secret_flag(word.trim_start_matches('-'))) || word.eq_ignore_ascii_case("bearer") {
            return Self::Secret;
        }
        Self::Nothing
    }

    /// The next word as others may see it.
    fn shown(&self, word: &str) -> String {
        match self {
            Self::Secret if !word.starts_with('-') => HIDDEN.to_owned(),
            Self::User if !word.starts_with('-') => match word.split_once(':') {
                Some((user, _)) => format!("{user}:{HIDDEN}"),
                None => shown_word(word),
            },
            Self::Script if unquoted(word).contains(char::is_whitespace) => {
                let inner = unquoted(word);
                let begin = word.len() - word.trim_start_matches(QUOTES).len();
                let end = begin + inner.len();
                format!("{}{}{}", &word[..begin], shown_line(inner), &word[end..])
            }
            Self::Nothing | Self::Secret | Self::User | Self::Script => shown_word(word),
        }
    }
}

/// Whether a flag of this name takes a secret as its next word.
fn is_secret_flag(name: &str) -> bool {
    let upper = name.to_ascii_uppercase();
    let mut parts = upper.split(['-', '_', '.']);
    let begin = parts.next().unwrap_or_default();
    let end = parts.next_back().unwrap_or(begin);
    is_secret(name) && !HARMLESS_BEGINS.contains(&begin) && !HARMLESS_ENDS.contains(&end)
}

/// One word without its secrets.
fn shown_word(word: &str) -> String {
    if let Some(quote) = word.chars().next().filter(|first| QUOTES.contains(first))
        && word.len() > 1
        && word[1..].find(quote) == Some(word.len() - 2)
    {
        return format!("{quote}{}{quote}", shown_word(&word[1..word.len() - 1]));
    }
    if let Some((before, value)) = word.split_once('=')
        && !value.is_empty()
        && before.trim_start_matches('-') == name_at_end(before)
        && is_secret(name_at_end(before))
    {
        return format!("{before}={HIDDEN}");
    }
    if let Some(end) = header_end(word) {
        return format!("{} {HIDDEN}", &word[..end]);
    }
    if word_length(word) < word.len() {
        return shown_line(word);
    }
    within_quotes(&without_values(&without_passwords(word)))
}

/// Hides the value of `NAME=VALUE` and of `"NAME": VALUE`, wherever the name is that of a secret.
fn without_values(word: &str) -> String {
    let mut shown = String::with_capacity(word.len());
    let (mut copied, mut at) = (0, 0);
    while let Some(found) = word[at..].find(['=', ':']) {
        let separator = at + found;
        at = separator + 1;
        let before = &word[copied..separator];
        // A colon is too common between other words.
        let is_pair = word[separator..].starts_with('=') || before.ends_with(QUOTES);
        if !is_pair || !is_secret(name_at_end(before)) {
            continue;
        }
        let length = value_length(&word[at..]);
        if length > 0 {
            shown.push_str(&word[copied..at]);
            shown.push_str(HIDDEN);
            at += length;
            copied = at;
        }
    }
    shown.push_str(&word[copied..]);
    shown
}

/// The length of a value at the beginning of a text: up to its closing quote, or to the next separator.
fn value_length(text: &str) -> usize {
    let value = text.trim_start();
    // Within a quoted script, quotes have a backslash.
    let bare = value.strip_prefix('\\').unwrap_or(value);
    let begin = text.len() - bare.len();
    match bare.chars().next().filter(|first| QUOTES.contains(first)) {
        Some(quote) => begin + bare[1..].find(quote).map_or(bare.len(), |end| end + 2),
        None => {
            let is_end = |c: char| SEPARATORS.contains(&c) || QUOTES.contains(&c) || c.is_whitespace();
            begin + bare.find(is_end).unwrap_or(bare.len())
        }
    }
}

/// Hides secrets in what is quoted, which may be a command line: `x="--token y"`.
fn within_quotes(word: &str) -> String {
    let mut shown = String::with_capacity(word.len());
    let mut rest = word;
    while let Some(begin) = rest.find(QUOTES) {
        let quote = &rest[begin..=begin];
        let Some(length) = rest[begin + 1..].find(quote) else { break };
        let inner = &rest[begin + 1..begin + 1 + length];
        shown.push_str(&rest[..=begin]);
        shown.push_str(&if inner.contains(char::is_whitespace) {
            shown_line(inner)
        } else {
            inner.to_owned()
        });
        shown.push_str(quote);
        rest = &rest[begin + length + 2..];
    }
    shown.push_str(rest);
    shown
}

/// Where the name of a header ends whose value is a secret: behind the colon of `Authorization: Bearer x`.
fn header_end(word: &str) -> Option<usize> {
    let (before, after) = word.split_once(": ")?;
    let name = name_at_end(before);
    let is_header = !name.is_empty() && !before.contains(char::is_whitespace) && !after.trim().is_empty();
    (is_header && is_secret(name)).then_some(before.len() + 1)
}

/// The name at the end of a text, without its quotes.
fn name_at_end(text: &str) -> &str {
    let text = text.trim_end_matches(['"', '\'', '\\']);
    let begin = text.rfind(|c: char| !(c.is_ascii_alphanumeric() || matches!(c, '_' | '-' | '.')));
    let name =
        begin.map_or(text, |begin| &text[begin + text[begin..].chars().next().map_or(1, char::len_utf8)..]);
    name.trim_start_matches('-')
}

/// Addresses without the passwords in them, wherever they begin. A very long name of a user is a token, as in
/// `https://TOKEN@host/`.
pub(super) fn without_passwords(word: &str) -> String {
    let mut shown = String::with_capacity(word.len());
    let mut rest = word;
    while let Some((scheme, after)) = rest.split_once("://") {
        shown.push_str(scheme);
        shown.push_str("://");
        let authority = after.split(['/', '?', '#', '"', '\'']).next().unwrap_or(after);
        rest = match authority.rsplit_once('@') {
            Some((user, _)) => {
                let (name, password) = user.split_once(':').unwrap_or((user, ""));
                let is_token = password.is_empty() && name.len() >= TOKEN_LENGTH;
                shown.push_str(if is_token { HIDDEN } else { name });
                if !password.is_empty() {
                    shown.push_str(&format!(":{HIDDEN}"));
                }
                &after[user.len()..]
            }
            None => after,
        };
    }
    shown.push_str(rest);
    shown
}

/// The length of the word at the beginning of a text. Blanks within quotes belong to it.
fn word_length(text: &str) -> usize {
    let mut characters = text.char_indices();
    while let Some((at, character)) = characters.next() {
        if character.is_whitespace() {
            return at;
        }
        if matches!(character, '\'' | '"')
            && let Some(length) = text[at + 1..].find(character)
        {
            let _ = characters.by_ref().find(|(place, _)| *place == at + 1 + length);
        }
    }
    text.len()
}

/// A word without the quotes around it.
fn unquoted(word: &str) -> &str {
    word.trim_matches(['"', '\''])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(words: &[&str], expected: &[&str]) {
        assert_eq!(shown_command(words), expected);
    }

    #[test]
    fn values_of_secret_flags_and_variables_are_hidden() {
        check(&["x", "--password=abc", "--verbose"], &["x", "--password=***", "--verbose"]);
        check(&["x", "--token", "abc", "file"], &["x", "--token", "***", "file"]);
        check(&["x", "-password", "abc"], &["x", "-password", "***"]);
        check(&["env", "FOO_TOKEN=abc", "A=b", "make"], &["env", "FOO_TOKEN=***", "A=b", "make"]);
        check(&["x", "--password=a&b;c d", "A_TOKEN=\"a;b\""], &["x", "--password=***", "A_TOKEN=***"]);
        check(&["x", "--set", "db.password=abc"], &["x", "--set", "db.password=***"]);
        check(&["curl", "-u", "me:abc", "host"], &["curl", "-u", "me:***", "host"]);
    }

    #[test]
    fn headers_are_hidden() {
        check(&["curl", "-H", "Authorization: Bearer abc"], &["curl", "-H", "Authorization: ***"]);
        check(&["curl", "--header=X-Api-Key: abc"], &["curl", "--header=X-Api-Key: ***"]);
        check(&["curl", "-H", "Cookie: a=1; b=2"], &["curl", "-H", "Cookie: ***"]);
        check(&["x", "Bearer", "abc"], &["x", "Bearer", "***"]);
        check(&["x", "Bearer abc"], &["x", "Bearer ***"]);
    }

    #[test]
    fn passwords_in_addresses_and_queries_are_hidden() {
        check(&["git", "clone", "https://me:abc@host/x"], &["git", "clone", "https://me:***@host/x"]);
        check(&["git", "push", "https://ghp_0123456789abcdef@host"], &["git", "push", "https://***@host"]);
        check(&["x", "--db=postgres://me:a@b:c@host/x"], &["x", "--db=postgres://me:***@host/x"]);
        check(&["curl", "https://host/?a=1&token=abc&b=2"], &["curl", "https://host/?a=1&token=***&b=2"]);
        check(
            &["x", "-d", r#"{"user":"me","password":"abc"}"#],
            &["x", "-d", r#"{"user":"me","password":***}"#],
        );
        check(&["x", r#"{"password": "a,b c", "x": 1}"#], &["x", r#"{"password": ***"#]);
        check(
            &["sh", "-c", r#"x -d "{\"password\":\"a;b\"}" y"#],
            &["sh", "-c", r#"x -d "{\"password\":***}" y"#],
        );
    }

    #[test]
    fn scripts_are_commands_as_well() {
        let script = r#"A_TOKEN="a b" x --password 'c d' && curl -H "Authorization: Bearer e" http://f:g@h"#;
        let shown = r#"A_TOKEN=*** x --password *** && curl -H "Authorization: ***" http://f:***@h"#;
        check(&["sh", "-c", script], &["sh", "-c", shown]);
        assert_eq!(shown_line(script), shown);
        check(&["sh", "-c", "ssh h 'x --token=abc  y'"], &["sh", "-c", "ssh h 'x --token=***  y'"]);
        check(&["bash", "-ec", "A_TOKEN=x make"], &["bash", "-ec", "A_TOKEN=*** make"]);
        check(&["sh", "-c", "sh -c 'A_TOKEN=x make' y"], &["sh", "-c", "sh -c 'A_TOKEN=*** make' y"]);
        check(&["env", "A_PASSWORD=correct horse"], &["env", "A_PASSWORD=***"]);
        check(&["sh", "-c", "a='x --token abc' b"], &["sh", "-c", "a='x --token ***' b"]);
        check(&["sh", "-c", "echo don't --token abc"], &["sh", "-c", "echo don't --token ***"]);
    }

    /// The submitter of a request chooses its command, so the input may be hostile.
    #[test]
    fn no_text_is_too_strange_or_too_long() {
        for piece in [
            "'",
            "\"",
            "'\"",
            "'x' ",
            "=",
            "token=",
            "\"token\":",
            "://@",
            "a://b:c@",
            "\\",
            "{'",
            "é=",
            "--token ",
            ": ",
        ] {
            let text = piece.repeat(20_000);
            assert!(
                shown_line(&text).len() <= 4 * text.len() + 3 && shown_command(&[text.as_str()]).len() == 1
            );
        }
    }

    proptest::proptest! {
        #[test]
        fn a_secret_is_hidden_beside_whatever_else(before in "[-a-z'\" =:;&{}é\\\\]{0,12}", after in "[-a-z'\" =:;&{}é]{0,12}") {
            let shown = shown_command(&[before.as_str(), "--password=HUSH&HUSH", "--token", "HUSH'HUSH", after.as_str()]);
            proptest::prop_assert!(!shown.concat().contains("HUSH"), "{shown:?}");
            shown_line(&format!("{before} {after}"));
        }
    }

    #[test]
    fn everything_else_is_shown_as_it_is() {
        for word in [
            "",
            "-",
            "--",
            "a:b@c",
            "http://host:80/a@b:c",
            "http://me@host/",
            "--author=me",
            "--no-token",
            "--keyboard=de",
            "auth:login",
            "/run/secrets:/x",
            "don't",
            "'",
            "a = b  \n c",
            "翻译 README",
            "password",
            "--token=",
        ] {
            check(&["x", word, "y"], &["x", word, "y"]);
        }
        check(&["x", "--token-file", "a", "--no-token", "b"], &["x", "--token-file", "a", "--no-token", "b"]);
        check(&["x", "--token", "--verbose"], &["x", "--token", "--verbose"]);
    }
}
