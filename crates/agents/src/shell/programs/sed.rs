//! `sed`: files that it edits in place, and those that its script writes with `w`.

use super::Call;
use crate::shell::arguments::{Arguments, long_name};
use crate::shell::reader::{Extent, Reader};
use crate::shell::state::State;
use crate::shell::value::Value;

/// What a command of a sed script does besides printing.
#[derive(Debug, PartialEq, Eq)]
enum Effect<'s> {
    /// `w FILE`, and `s/…/…/w FILE`.
    Writes(&'s str),
    /// `e COMMAND`. None: the command is a line of the input.
    Runs(Option<&'s str>),
}

impl Reader<'_> {
    pub(super) fn sed(&mut self, call: &Call<'_>, state: &State) {
        // `-i` and `--in-place` have a suffix at most, so they are taken out before the other options are read.
        let suffix = call.arguments.iter().filter_map(Value::text).find_map(in_place_suffix);
        let in_place = |value: &&Value| value.text().and_then(in_place_suffix).is_some();
        let rest: Vec<Value> = call.arguments.iter().filter(|value| !in_place(value)).cloned().collect();
        let with_value = ["-e", "--expression", "-f", "--file", "-l", "--line-length"];
        let arguments = Arguments::parse(&rest, &with_value);
        let operand = usize::from(!arguments.has(&["-e", "--expression", "-f", "--file"]));
        let files = arguments.operands.get(operand..).unwrap_or_default();
        if let Some(suffix) = suffix {
            self.write_names(files, state, Extent::File);
            self.write_backups(files, suffix, state);
        }
        if arguments.has(&["-f", "--file"]) {
            self.writes.not_known("a sed script in a file");
        }
        let options = arguments.values(&["-e", "--expression"]);
        let scripts: Option<Vec<&str>> =
            arguments.operands.iter().take(operand).chain(options).map(Value::text).collect();
        // Each part ends a line: `-e 'w a' -e p`.
        match scripts.map(|scripts| scripts.join("\n")) {
            Some(script) => self.sed_script(&script, state),
            None => self.writes.not_known("a sed script that only the shell knows"),
        }
    }

    fn sed_script(&mut self, script: &str, state: &State) {
        let Some(effects) = (Script { rest: script }).effects() else {
            self.writes.not_known("a sed script that is not understood");
            return;
        };
        for effect in effects {
            match effect {
                Effect::Writes(file) => self.write(&Value::Text(file.to_owned()), state, Extent::File),
                Effect::Runs(Some(command)) => self.run_elsewhere(command, state),
                Effect::Runs(None) => self.writes.not_known("commands that sed reads from its input"),
            }
        }
    }
}

/// The suffix of `sed -i`, empty if there is none. `None`: the option is another one.
fn in_place_suffix(option: &str) -> Option<&str> {
    if option.starts_with("--") {
        let (name, suffix) = option.split_once('=').unwrap_or((option, ""));
        return long_name(name, &["--in-place"]).map(|_| suffix);
    }
    let letters = option.strip_prefix('-')?;
    // The rest of a cluster is the value of the first letter that takes one.
    let at = letters.find(['i', 'e', 'f', 'l'])?;
    letters[at..].strip_prefix('i')
}

/// Scanner for a sed script.
struct Script<'s> {
    rest: &'s str,
}

impl<'s> Script<'s> {
    /// What the commands do. `None`: the script is not understood.
    fn effects(mut self) -> Option<Vec<Effect<'s>>> {
        let mut effects = Vec::new();
        loop {
            self.skip(|c| c.is_whitespace() || c == ';');
            if self.rest.is_empty() {
                return Some(effects);
            }
            self.addresses()?;
            match self.next()? {
                '#' | 'r' | 'R' => drop(self.line()),
                '{' | '}' | '=' | 'd' | 'D' | 'F' | 'g' | 'G' | 'h' | 'H' | 'n' | 'N' | 'p' | 'P' | 'x'
                | 'z' => {}
                'a' | 'i' | 'c' => self.text(),
                ':' | 'b' | 't' | 'T' | 'v' => self.skip(|c| !matches!(c, ';' | '\n' | '}')),
                'l' | 'L' | 'q' | 'Q' => self.skip(|c| c == ' ' || c.is_ascii_digit()),
                'w' | 'W' => effects.push(Effect::Writes(self.line())),
                'e' => effects.push(Effect::Runs(Some(self.line()).filter(|command| !command.is_empty()))),
                's' => {
                    let delimiter = self.next()?;
                    self.delimited(delimiter, true)?;
                    self.delimited(delimiter, false)?;
                    self.flags(&mut effects);
                }
                'y' => {
                    let delimiter = self.next()?;
                    self.delimited(delimiter, false)?;
                    self.delimited(delimiter, false)?;
                }
                _ => return None,
            }
        }
    }

    fn next(&mut self) -> Option<char> {
        let mut characters = self.rest.chars();
        let next = characters.next();
        self.rest = characters.as_str();
        next
    }

    fn skip(&mut self, skipped: impl Fn(char) -> bool) {
        self.rest = self.rest.trim_start_matches(skipped);
    }

    /// The rest of the line, which is a file, a command or a comment.
    fn line(&mut self) -> &'s str {
        let (line, rest) = self.rest.split_once('\n').unwrap_or((self.rest, ""));
        self.rest = rest;
        line.trim_start()
    }

    /// The text of `a`, `i` and `c`: a line that ends with `\` goes on.
    fn text(&mut self) {
        while self.line().ends_with('\\') {}
    }

    /// The addresses before a command: `1,/x/`, `$!`, `0~4`, `\,a,I`.
    fn addresses(&mut self) -> Option<()> {
        loop {
            self.skip(|c| c.is_ascii_digit() || " \t,$!+~".contains(c));
            if self.rest.starts_with('\\') {
                self.next();
            } else if !self.rest.starts_with('/') {
                return Some(());
            }
            let delimiter = self.next()?;
            self.delimited(delimiter, true)?;
            self.skip(|c| matches!(c, 'I' | 'M'));
        }
    }

    /// Skips past the delimiter. Within the brackets of a pattern the delimiter is an ordinary character.
    fn delimited(&mut self, delimiter: char, is_pattern: bool) -> Option<()> {
        loop {
            match self.next()? {
                '\\' => drop(self.next()?),
                found if found == delimiter => return Some(()),
                '[' if is_pattern => self.brackets()?,
                _ => {}
            }
        }
    }

    fn brackets(&mut self) -> Option<()> {
        self.rest = self.rest.strip_prefix('^').unwrap_or(self.rest);
        self.rest = self.rest.strip_prefix(']').unwrap_or(self.rest);
        // `[[:digit:]]`.
        while let Some(at) = self.rest.find([']', '[']) {
            let inner = &self.rest[at..];
            let class = ["[:", "[.", "[="].iter().find(|class| inner.starts_with(**class));
            let end = match class {
                Some(class) => inner[2..].find(&format!("{}]", &class[1..]))? + 4,
                None => 1,
            };
            let is_end = inner.starts_with(']');
            self.rest = &inner[end..];
            if is_end {
                return Some(());
            }
        }
        None
    }

    fn flags(&mut self, effects: &mut Vec<Effect<'s>>) {
        loop {
            self.skip(|c| c.is_ascii_digit() || matches!(c, 'g' | 'p' | 'i' | 'I' | 'm' | 'M'));
            if let Some(rest) = self.rest.strip_prefix('e') {
                self.rest = rest;
                effects.push(Effect::Runs(None));
            } else if let Some(rest) = self.rest.strip_prefix('w') {
                self.rest = rest;
                effects.push(Effect::Writes(self.line()));
                return;
            } else {
                return;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn effects(script: &str) -> Option<Vec<Effect<'_>>> {
        Script { rest: script }.effects()
    }

    #[test]
    fn scripts_that_only_print_have_no_effects() {
        for script in [
            "p",
            "1,40p",
            "$!d",
            "s/w /e /g",
            "s,/w x,/w y,",
            "s/[/w] x/y/p;s|a|b|2",
            "/start/,/end/{/w x/d;p}",
            r"\,a,I{N;P;D}",
            "0~4d;2q",
            "a w file\nx",
            "i\\\nw file\\\nw file\n",
            "y/abc/wxy/",
            ":a;N;$!ba;s/\\n/ /g",
            "# w file\np",
            "s/[[:space:]/]*$//",
            "s/[^]/]//",
            "r w",
        ] {
            assert_eq!(effects(script), Some(Vec::new()), "{script}");
        }
    }

    #[test]
    fn files_and_commands_of_a_script_are_found() {
        let writes = |file| Some(vec![Effect::Writes(file)]);
        assert_eq!(effects("w out.txt"), writes("out.txt"));
        assert_eq!(effects("/x/w out"), writes("out"));
        assert_eq!(effects("2,3{s/a/b/gw a b; c\n}"), writes("a b; c"));
        assert_eq!(effects("s/[/]/x/w out"), writes("out"));
        assert_eq!(effects("s/[a/w out"), None, "the brackets do not end");
        assert_eq!(effects("1e rm a"), Some(vec![Effect::Runs(Some("rm a"))]));
        assert_eq!(effects("s/x/y/e"), Some(vec![Effect::Runs(None)]));
        assert_eq!(effects("?"), None);
    }
}
