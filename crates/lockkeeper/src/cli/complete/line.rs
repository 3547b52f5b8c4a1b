//! Reads a command line that is being written: which command it names, and what is expected at its end.

use clap::{Arg, ArgAction, Command};

/// What is expected in the place of the last word.
pub(super) enum Expected<'c> {
    /// An option.
    Option,
    /// The value of an option.
    Value(&'c Arg),
    /// The name of a command, or the value of this argument.
    Word(Option<&'c Arg>),
    /// A command line of its own, behind `--`. It begins at this word, counted from 1.
    CommandLine(usize),
}

/// A command line that is being written.
pub(super) struct Line<'c> {
    /// The command that it names.
    pub(super) command: &'c Command,
    /// The names of that command and of those above it.
    pub(super) path: Vec<&'c str>,
    /// The arguments that are no options.
    pub(super) operands: Vec<&'c str>,
    /// Values of options, by their long names.
    pub(super) values: Vec<(&'c str, &'c str)>,
    /// What is expected.
    pub(super) expected: Expected<'c>,
    /// The part of the last word before the value, such as `--lang=`.
    pub(super) before: &'c str,
    /// The part of the value that is already typed.
    pub(super) typed: &'c str,
}

impl<'c> Line<'c> {
    /// Reads the words behind the name of the program. The last one is being written.
    pub(super) fn read(root: &'c Command, words: &'c [String]) -> Self {
        let (typed, before) =
            words.split_last().map_or(("", &[][..]), |(last, before)| (last.as_str(), before));
        let mut line = Self {
            command: root,
            path: Vec::new(),
            operands: Vec::new(),
            values: Vec::new(),
            expected: Expected::Word(None),
            before: "",
            typed,
        };
        let (mut open, mut only_operands) = (None, false);
        for (place, word) in before.iter().enumerate() {
            if let Some(option) = open.take() {
                line.note(option, word);
            } else if only_operands || !word.starts_with('-') || word == "-" {
                line.word(word);
            } else if word != "--" {
                open = line.option(word);
            } else if line.command.get_positionals().any(Arg::is_last_set) {
                line.expected = Expected::CommandLine(place + 2);
                return line;
            } else {
                only_operands = true;
            }
        }
        line.expect(open, only_operands);
        line
    }

    /// Finds out what the last word can be. `open` is an option before it that has no value yet.
    fn expect(&mut self, open: Option<&'c Arg>, only_operands: bool) {
        let joined = self.typed.strip_prefix("--").and_then(|rest| rest.split_once('='));
        self.expected = match (open, joined) {
            (Some(option), _) => Expected::Value(option),
            (None, Some((name, value))) if !only_operands => {
                self.before = &self.typed[..self.typed.len() - value.len()];
                self.typed = value;
                let option = long(self.command, name);
                option.map_or(Expected::Word(None), Expected::Value)
            }
            (None, _) if self.typed.starts_with('-') && !only_operands => Expected::Option,
            (None, _) => Expected::Word(self.next_operand()),
        };
    }

    /// Reads an option. Returns it if the next word is its value.
    fn option(&mut self, word: &'c str) -> Option<&'c Arg> {
        if let Some(name) = word.strip_prefix("--") {
            let (name, value) =
                name.split_once('=').map_or((name, None), |(name, value)| (name, Some(value)));
            let option = long(self.command, name)?;
            if let Some(value) = value {
                self.note(option, value);
            }
            return (value.is_none() && takes_next_word(option)).then_some(option);
        }
        // Of `-nw`, only the last letter can have a value in the next word.
        let letters = word.trim_start_matches('-');
        let options = letters
            .char_indices()
            .map(|(place, letter)| (place + letter.len_utf8(), short(self.command, letter)));
        let (end, option) =
            options.filter_map(|(end, option)| Some((end, option?))).find(|(_, one)| takes_next_word(one))?;
        (end == letters.len()).then_some(option)
    }

    fn word(&mut self, word: &'c str) {
        match self.command.find_subcommand(word).filter(|_| self.operands.is_empty()) {
            Some(command) => {
                self.command = command;
                self.path.push(command.get_name());
            }
            None => self.operands.push(word),
        }
    }

    fn note(&mut self, option: &'c Arg, value: &'c str) {
        if let Some(name) = option.get_long() {
            self.values.push((name, value));
        }
    }

    /// The argument that the next word would be.
    fn next_operand(&self) -> Option<&'c Arg> {
        let all: Vec<&Arg> = self.command.get_positionals().filter(|arg| !arg.is_last_set()).collect();
        let last = all.last().copied().filter(|arg| matches!(arg.get_action(), ArgAction::Append));
        all.get(self.operands.len()).copied().or(last)
    }
}

fn long<'c>(command: &'c Command, name: &str) -> Option<&'c Arg> {
    let is_named = |arg: &&Arg| {
        arg.get_long() == Some(name) || arg.get_all_aliases().is_some_and(|all| all.contains(&name))
    };
    command.get_arguments().find(is_named)
}

fn short(command: &Command, letter: char) -> Option<&Arg> {
    command.get_arguments().find(|arg| arg.get_short() == Some(letter))
}

/// Whether the word behind an option is its value.
fn takes_next_word(option: &Arg) -> bool {
    option.get_action().takes_values() && !option.is_require_equals_set()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cli::command_line;

    /// What is expected at the end of a line: the kind, the typed part, and the words that are no options.
    fn read(line: &str) -> String {
        let mut root = command_line();
        root.build();
        let words: Vec<String> = line.split(' ').map(str::to_owned).collect();
        let line = Line::read(&root, &words);
        let name = |arg: &Arg| arg.get_value_names().map(|all| all[0].to_string()).unwrap_or_default();
        let expected = match line.expected {
            Expected::Option => "option".to_owned(),
            Expected::Value(arg) => format!("value {}", name(arg)),
            Expected::Word(arg) => format!("word {}", arg.map(name).unwrap_or_default()),
            Expected::CommandLine(first) => format!("command at {first}"),
        };
        format!("{}: {expected} `{}{}`", line.path.join(" "), line.before, line.typed)
    }

    #[test]
    fn the_end_of_a_line_is_understood() {
        for (line, expected) in [
            ("", ": word  ``"),
            ("ex", ": word  `ex`"),
            ("exec ", "exec: word NAME ``"),
            ("exec db ca", "exec: word NAME `ca`"),
            ("exec --rea", "exec: option `--rea`"),
            ("exec --owner ", "exec: value OWNER ``"),
            ("exec --owner=a", "exec: value OWNER `--owner=a`"),
            ("exec --wait db", "exec: word NAME `db`"),
            ("exec -w 5 d", "exec: word NAME `d`"),
            ("exec -w5 d", "exec: word NAME `d`"),
            ("exec -qw 5 d", "exec: word NAME `d`"),
            ("exec -q d", "exec: word NAME `d`"),
            ("exec db -- ma", "exec: command at 4 `ma`"),
            ("exec db -- make -", "exec: command at 4 `-`"),
            ("--dir x exec ", "exec: word NAME ``"),
            ("exec --dir exec -n ", "exec: word NAME ``"),
            ("run show ", "run show: word RUN ``"),
            ("run show a b", "run show: word  `b`"),
            ("run ", "run: word  ``"),
            ("stages run STAGES.yml ", "stages run: word PHASE ``"),
            ("stages run STAGES.yml P3 a ", "stages run: word GROUP ``"),
            ("submit --after a --after ", "submit: value REQUEST ``"),
            ("submit --chdir ", "submit: value DIR ``"),
            ("why -- -", "why: word NAME|PATH `-`"),
            ("exec --none ", "exec: word NAME ``"),
        ] {
            assert_eq!(read(line), expected, "{line}");
        }
    }
}
