//! Redaction of command lines: hides secrets where a command is shown. The command that runs keeps them.
//!
//! A secret is known by the name in front of it: `--password=x`, `--token x`, `DB_PASSWORD=x`, `Authorization: Bearer x`,
//! `"api_key": "x"`, `?token=x`; or by its place in a URL, `https://user:x@host/`. A script in one argument, as that of
//! `sh -c`, is treated like a command line of its own. Tokens of well-known services are known by their prefix, `ghp_…`.

use super::{HIDDEN, is_secret};

/// Flags that have a name and a password in one word, `me:secret`.
const USER_FLAGS: [&str; 4] = ["-u", "--user", "-U", "--proxy-user"];
/// A flag whose name ends with one of these has no secret as its value, but says where or of which kind the secret is.
const HARMLESS_ENDS: [&str; 6] = ["FILE", "PATH", "DIR", "NAME", "TYPE", "TTL"];
/// A flag whose name begins with one of these has no value.
const HARMLESS_BEGINS: [&str; 3] = ["NO", "PRINT", "SHOW"];
/// A user name in a URL with at least this many characters counts as a token.
const TOKEN_LENGTH: usize = 20;
/// What separates values within one word, such as parts of a query.
const SEPARATORS: [char; 9] = ['?', '&', ',', ';', '{', '}', '(', ')', '|'];

/// The prefixes of tokens of well-known services, and how many letters, digits, `-` and `_` follow at least.
const TOKENS: [(&str, usize); 15] = [
    ("ghp_", 20),
    ("gho_", 20),
    ("ghu_", 20),
    ("ghs_", 20),
    ("ghr_", 20),
    ("github_pat_", 20),
    ("glpat-", 20),
    ("npm_", 30),
    ("sk-", 20),
    ("xoxa-", 10),
    ("xoxb-", 10),
    ("xoxp-", 10),
    ("xoxs-", 10),
    ("AKIA", 16),
    ("ASIA", 16),
];
/// Programs with a short flag for a password, by the prefix of their names. The password is in the same word, `-psecret`, or, where the
/// third value is true, also in the next one. `login` is a command of docker, podman, helm, az, oc and others.
const PASSWORD_PROGRAMS: [(&str, &str, bool); 14] = [
    ("mysql", "-p", false),
    ("mariadb", "-p", false),
    ("mycli", "-p", false),
    ("7z", "-p", false),
    ("sshpass", "-p", true),
    ("login", "-p", true),
    ("mongo", "-p", true),
    ("redis-cli", "-a", true),
    ("ldap", "-w", true),
    ("zip", "-P", true),
    ("unzip", "-P", true),
    ("sqlcmd", "-P", true),
    ("bcp", "-P", true),
    ("mosquitto", "-P", true),
];
/// Words between `Authorization:` and the secret.
const SCHEMES: [&str; 6] = ["apikey", "basic", "bearer", "digest", "negotiate", "token"];

const QUOTES: [char; 2] = ['\'', '"'];

/// The words of a command without its secrets.
pub fn shown_command<W: AsRef<str>>(words: &[W]) -> Vec<String> {
    let mut reader = Reader::default();
    words.iter().map(|word| reader.shown(word.as_ref())).collect()
}

/// A line of text, such as a script, without its secrets.
pub fn shown_line(text: &str) -> String {
    let mut shown = String::with_capacity(text.len());
    let mut reader = Reader::default();
    let mut rest = text;
    while !rest.is_empty() {
        let gap = rest.len() - rest.trim_start().len();
        let (space, from_word) = rest.split_at(gap);
        let (word, after) = from_word.split_at(word_length(from_word));
        shown.push_str(space);
        if !word.is_empty() {
            shown.push_str(&reader.shown(word));
        }
        rest = after;
    }
    shown
}

/// Reads the words of a command one after the other.
#[derive(Default)]
struct Reader {
    before: Before,
    /// The flag with which the program takes a password, and whether the password may be the next word.
    password_flag: Option<(&'static str, bool)>,
}

impl Reader {
    /// The next word as others may see it.
    fn shown(&mut self, word: &str) -> String {
        // The next command of a script has flags of its own.
        let (argument, end) = word.split_at(word.trim_end_matches([';', '|', '&']).len());
        let flag = self.password_flag.filter(|(flag, _)| argument.starts_with(flag));
        let shown = match flag {
            Some((flag, _)) if argument.len() > flag.len() => {
                self.before = Before::Nothing;
                format!("{flag}{HIDDEN}{end}")
            }
            _ => {
                let shown = self.before.shown(word);
                self.before = match (&self.before, flag) {
                    (Before::Authorization, _) if is_scheme(word) => Before::Secret,
                    (_, Some((_, true))) => Before::Secret,
                    _ => Before::of(word),
                };
                shown
            }
        };
        let program = word.rsplit('/').next().unwrap_or(word);
        let known = PASSWORD_PROGRAMS.iter().find(|(begin, ..)| program.starts_with(begin));
        let flag = known
            .map(|(_, flag, may_be_next)| (*flag, *may_be_next))
            .or(self.password_flag.filter(|_| flag.is_none()));
        self.password_flag = flag.filter(|_| end.is_empty());
        shown
    }
}

/// What the word before says about the next one.
#[derive(Default)]
enum Before {
    #[default]
    Nothing,
    /// The next word is a secret, unless it is a flag.
    Secret,
    /// The next word is a name and a password.
    User,
    /// The next word is a secret, or the scheme before it.
    Authorization,
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
        if word.to_ascii_lowercase().ends_with("authorization:") {
            return Self::Authorization;
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
            Self::Authorization if !is_scheme(word) => HIDDEN.to_owned(),
            Self::User if !word.starts_with('-') => match word.split_once(':') {
                Some((user, _)) => format!("{user}:{HIDDEN}"),
                None => shown_word(word),
            },
            Self::Script if word.contains(char::is_whitespace) => match quoted(word) {
                Some((quote, inner)) => format!("{quote}{}{quote}", shown_line(inner)),
                None => shown_line(word),
            },
            Self::Nothing | Self::Secret | Self::User | Self::Authorization | Self::Script => {
                shown_word(word)
            }
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

/// The length of a flag that has a name and a password in the same word: `-ume:secret`, `--user=me:secret`.
fn user_flag_length(word: &str) -> Option<usize> {
    USER_FLAGS.iter().find_map(|flag| {
        let rest = word.strip_prefix(flag)?;
        if flag.starts_with("--") { rest.strip_prefix('=').map(|_| flag.len() + 1) } else { Some(flag.len()) }
    })
}

/// One word without its secrets.
fn shown_word(word: &str) -> String {
    if let Some((quote, inner)) = quoted(word) {
        return format!("{quote}{}{quote}", shown_word(inner));
    }
    if let Some((before, value)) = word.split_once('=')
        && !value.is_empty()
        && before.trim_start_matches('-') == name_at_end(before)
        && is_secret(name_at_end(before))
    {
        return format!("{before}={HIDDEN}");
    }
    if let Some(begin) = user_flag_length(word)
        && let Some(colon) = word[begin..].find(':')
    {
        return format!("{}:{HIDDEN}", &word[..begin + colon]);
    }
    if let Some(end) = header_end(word) {
        return format!("{} {HIDDEN}", &word[..end]);
    }
    if word_length(word) < word.len() {
        return shown_line(word);
    }
    without_tokens(&within_quotes(&without_values(&without_passwords(word))))
}

/// Hides the tokens of well-known services, wherever they begin. Their prefixes stay, to tell them apart.
pub(super) fn without_tokens(text: &str) -> String {
    let is_part = |c: char| c.is_ascii_alphanumeric() || matches!(c, '-' | '_');
    let mut shown = String::with_capacity(text.len());
    for run in text.split_inclusive(|c: char| !is_part(c)) {
        let word = run.trim_end_matches(|c: char| !is_part(c));
        let token = TOKENS.iter().find(|(begin, least)| {
            // A name such as `sk-learn-with-many-words` has no digits.
            word.strip_prefix(begin)
                .is_some_and(|rest| rest.len() >= *least && rest.contains(|c: char| c.is_ascii_digit()))
        });
        match token {
            Some((begin, _)) => {
                shown.push_str(begin);
                shown.push_str(HIDDEN);
                shown.push_str(&run[word.len()..]);
            }
            None => shown.push_str(run),
        }
    }
    shown
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

/// The position after the colon of a header whose value is a secret: `Authorization: Bearer x`.
fn header_end(word: &str) -> Option<usize> {
    let (before, after) = word.split_once(": ").or_else(|| header_without_blank(word))?;
    let name = name_at_end(before);
    let is_header = !name.is_empty() && !before.contains(char::is_whitespace) && !after.trim().is_empty();
    (is_header && is_secret(name)).then_some(before.len() + 1)
}

/// Splits `X-Api-Key:x`. Only well-known kinds of headers: `my-secret:latest` is an image, and `token-host:80` an address.
fn header_without_blank(word: &str) -> Option<(&str, &str)> {
    let (before, after) = word.split_once(':')?;
    let name = before.rsplit('=').next()?.to_ascii_lowercase();
    let is_known = ["authorization", "proxy-authorization", "cookie"].contains(&name.as_str());
    (is_known || name.starts_with("x-")).then_some((before, after))
}

/// The name at the end of a text, without its quotes.
fn name_at_end(text: &str) -> &str {
    let text = text.trim_end_matches(['"', '\'', '\\']);
    let begin = text.rfind(|c: char| !(c.is_ascii_alphanumeric() || matches!(c, '_' | '-' | '.')));
    let name =
        begin.map_or(text, |begin| &text[begin + text[begin..].chars().next().map_or(1, char::len_utf8)..]);
    name.trim_start_matches('-')
}

/// Hides the passwords in URLs, wherever a URL begins. A very long user name is a token, as in `https://TOKEN@host/`.
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

/// Splits a word that is quoted as a whole into its quote and the text within.
fn quoted(word: &str) -> Option<(char, &str)> {
    let quote = word.chars().next().filter(|first| QUOTES.contains(first))?;
    let inner = word[1..].strip_suffix(quote)?;
    (!inner.contains(quote)).then_some((quote, inner))
}

/// Says whether a word is the scheme in `Authorization: Basic x`.
fn is_scheme(word: &str) -> bool {
    SCHEMES.iter().any(|scheme| unquoted(word).eq_ignore_ascii_case(scheme))
}

/// A word without the quotes around it.
fn unquoted(word: &str) -> &str {
    word.trim_matches(['"', '\''])
}

#[cfg(test)]
mod tests;
