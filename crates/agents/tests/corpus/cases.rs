//! The table of commands: blocks that begin with `### ` and what is expected.

/// What a command does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Expect {
    /// It writes nothing.
    Reads,
    /// Exactly what the reader says.
    Writes,
    /// What the reader says, or less: a part runs only under a condition.
    Maybe,
    /// More than can be known before.
    Unknown,
    /// The whole work tree.
    Tree,
    /// The index, HEAD, refs or the stash, and the paths that the reader says.
    Index,
    /// What a formatter finds.
    Formats,
}

/// One command.
pub struct Case {
    pub line: usize,
    pub expect: Expect,
    pub command: String,
}

pub fn parse(text: &str) -> Vec<Case> {
    let mut cases: Vec<Case> = Vec::new();
    for (number, line) in text.lines().enumerate() {
        let Some(header) = line.strip_prefix("### ") else {
            let case = cases.last_mut().expect("the file begins with a header");
            case.command.push_str(line);
            case.command.push('\n');
            continue;
        };
        let expect = match header {
            "reads" => Expect::Reads,
            "writes" => Expect::Writes,
            "maybe" => Expect::Maybe,
            "unknown" => Expect::Unknown,
            "tree" => Expect::Tree,
            "index" => Expect::Index,
            "formats" => Expect::Formats,
            other => panic!("line {}: {other:?}", number + 1),
        };
        cases.push(Case { line: number + 1, expect, command: String::new() });
    }
    for case in &mut cases {
        case.command = case.command.trim_end_matches('\n').to_owned();
    }
    cases
}
