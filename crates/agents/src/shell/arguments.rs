//! Option parser for the programs that the reader knows: short clusters, long options, operands in any order.

use super::value::Value;

/// The arguments of a program, taken apart.
#[derive(Debug, Default)]
pub(super) struct Arguments {
    /// Options as written, `-i` or `--in-place`, with their values.
    options: Vec<(String, Option<Value>)>,
    pub(super) operands: Vec<Value>,
    /// How many operands come before a `--`, if there is one.
    pub(super) before_dashes: Option<usize>,
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
                let (name, value) = match text.split_once('=') {
                    Some((name, value)) => (name, Some(Value::Text(value.to_owned()))),
                    None if with_value.contains(&text) => {
                        (text, Some(rest.next().cloned().unwrap_or(Value::Unknown)))
                    }
                    None => (text, None),
                };
                parsed.options.push((name.to_owned(), value));
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
                self.options.push((name, Some(value)));
                return;
            }
            self.options.push((name, None));
        }
    }

    pub(super) fn has(&self, names: &[&str]) -> bool {
        self.options.iter().any(|(name, _)| names.contains(&name.as_str()))
    }

    /// The value of the last of these options.
    pub(super) fn value(&self, names: &[&str]) -> Option<&Value> {
        self.values(names).last()
    }

    /// The values of these options, in their order.
    pub(super) fn values(&self, names: &[&str]) -> impl Iterator<Item = &Value> {
        let found = self.options.iter().filter(|(name, _)| names.contains(&name.as_str()));
        found.filter_map(|(_, value)| value.as_ref())
    }
}
