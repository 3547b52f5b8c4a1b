//! Option parser for the programs that the reader knows: short clusters, long options, operands in any order.

use super::value::Value;

/// The arguments of a program, taken apart.
#[derive(Debug, Default)]
pub(super) struct Arguments {
    options: Vec<Given>,
    pub(super) operands: Vec<Value>,
    /// How many operands come before a `--`, if there is one.
    pub(super) before_dashes: Option<usize>,
}

/// An option, `-i` or `--in-place`, with its value.
#[derive(Debug)]
struct Given {
    name: String,
    value: Option<Value>,
    /// The name is complete. Otherwise it may be the beginning of a long one: `--in-pl`.
    is_complete: bool,
}

impl Given {
    fn is(&self, names: &[&str]) -> bool {
        let begins =
            |name: &&str| !self.is_complete && self.name.starts_with("--") && name.starts_with(&self.name);
        names.contains(&self.name.as_str()) || names.iter().any(begins)
    }
}

/// The long option that is written so, also if only its beginning is written.
pub(super) fn long_name<'n>(written: &str, names: &[&'n str]) -> Option<&'n str> {
    let same = names.iter().find(|name| **name == written);
    same.or_else(|| names.iter().find(|name| name.starts_with(written) && written.len() > 2)).copied()
}

impl Arguments {
    /// Takes arguments apart. `with_value` lists the options that take a value.
    pub(super) fn parse(arguments: &[Value], with_value: &[&str]) -> Self {
        let mut parsed = Self::default();
        let mut rest = arguments.iter();
        while let Some(argument) = rest.next() {
            let text = argument.text().unwrap_or_default();
            if parsed.before_dashes.is_some() || !text.starts_with('-') || text == "-" {
                parsed.operands.push(argument.clone());
            } else if text == "--" {
                parsed.before_dashes = Some(parsed.operands.len());
            } else if text.starts_with("--") {
                let (name, attached) = match text.split_once('=') {
                    Some((name, value)) => (name, Some(Value::Text(value.to_owned()))),
                    None => (text, None),
                };
                let known = long_name(name, with_value);
                let takes = || rest.next().cloned().unwrap_or(Value::Unknown);
                let value = attached.or_else(|| known.is_some().then(takes));
                let name = known.unwrap_or(name).to_owned();
                parsed.options.push(Given { name, value, is_complete: known.is_some() });
            } else {
                parsed.cluster(text, with_value, &mut rest);
            }
        }
        parsed
    }

    fn cluster<'a>(&mut self, text: &str, with_value: &[&str], rest: &mut impl Iterator<Item = &'a Value>) {
        for (at, letter) in text[1..].char_indices() {
            let name = format!("-{letter}");
            if with_value.contains(&name.as_str()) {
                let attached = &text[1 + at + letter.len_utf8()..];
                let value = match attached.is_empty() {
                    true => rest.next().cloned().unwrap_or(Value::Unknown),
                    false => Value::Text(attached.to_owned()),
                };
                self.options.push(Given { name, value: Some(value), is_complete: true });
                return;
            }
            self.options.push(Given { name, value: None, is_complete: true });
        }
    }

    pub(super) fn has(&self, names: &[&str]) -> bool {
        self.options.iter().any(|given| given.is(names))
    }

    /// The value of the last of these options.
    pub(super) fn value(&self, names: &[&str]) -> Option<&Value> {
        self.values(names).last()
    }

    /// The values of these options, in their order.
    pub(super) fn values(&self, names: &[&str]) -> impl Iterator<Item = &Value> {
        let found = self.options.iter().filter(|given| given.is(names));
        found.filter_map(|given| given.value.as_ref())
    }
}
