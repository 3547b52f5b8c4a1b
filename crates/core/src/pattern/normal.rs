//! Normal form of a pattern: the form in which it is compared, shown and indexed.

use super::error::PatternError;
use super::parse::{Kind, Node};

/// A pattern in normal form, with all facts about it that need no automaton.
pub(super) struct Normal {
    /// The elements; a literal path ends in a slash, because it covers its subtree.
    pub(super) nodes: Vec<Node>,
    /// The text that reads back to the same elements.
    pub(super) text: String,
    /// The leading components without wildcards, unescaped: every matched path starts with them.
    pub(super) prefix: String,
    /// The components after the prefix that every matched path has, each after a slash: its literal name, or
    /// nothing where it has wildcards.
    pub(super) fixed_components: String,
    /// Whether matched paths may have more components than the prefix and the fixed components.
    pub(super) open: bool,
    /// Literal characters that every matched path ends with.
    pub(super) suffix: String,
    /// The bytes of `text` before its last component.
    pub(super) parent_length: usize,
    /// Whether there is no wildcard at all.
    pub(super) literal: bool,
}

/// Drops empty and `.` components, settles what each `**` means, and refuses what leaves the repository.
///
/// Inside braces nothing is dropped: only the automaton knows which components an alternative makes.
pub(super) fn normalise(mut nodes: Vec<Node>) -> Result<Normal, PatternError> {
    if let Some(Node { column, kind: Kind::Slash }) = nodes.first() {
        return Err(PatternError::Absolute { column: *column });
    }
    settle_stars(&mut nodes, false);
    let mut components: Vec<&[Node]> = nodes.split(|node| matches!(node.kind, Kind::Slash)).collect();
    let mut folder = components.last().is_some_and(|last| last.is_empty() || is_name(last, "."));
    if let Some(parent) = components.iter().find(|component| is_name(component, "..")) {
        return Err(PatternError::ParentFolder { column: parent[0].column });
    }
    components.retain(|component| !component.is_empty() && !is_name(component, "."));
    components.dedup_by(|next, kept| is_folders(next) && is_folders(kept));
    if components.is_empty() {
        return Ok(root());
    }

    let literal = components.iter().all(|component| is_literal(component));
    folder &= !literal && !components.last().is_some_and(|last| is_folders(last));
    let mut text = String::new();
    let mut parent_length = 0;
    for (index, component) in components.iter().enumerate() {
        parent_length = text.len();
        if index > 0 {
            text.push('/');
        }
        write_nodes(component, false, &mut text);
    }
    if folder {
        text.push('/');
    }
    let mut kept: Vec<Node> = Vec::with_capacity(nodes.len() + 1);
    for component in &components {
        if !kept.is_empty() {
            kept.push(Node { column: component[0].column - 1, kind: Kind::Slash });
        }
        kept.extend_from_slice(component);
    }
    if folder || literal {
        kept.push(Node { column: 0, kind: Kind::Slash });
    }
    let prefix = components
        .iter()
        .take_while(|component| is_literal(component))
        .map(|component| component.iter().filter_map(character).collect())
        .collect::<Vec<String>>()
        .join("/");
    let (fixed_components, names) = fixed_components(&components);
    let open = folder || literal || names < components.len();
    let suffix = suffix(&kept);
    Ok(Normal { nodes: kept, text, prefix, fixed_components, open, suffix, parent_length, literal })
}

/// The repository itself, a literal path of no components: `.`.
fn root() -> Normal {
    Normal {
        nodes: vec![Node { column: 0, kind: Kind::Stars { certain: true } }],
        text: ".".to_owned(),
        prefix: String::new(),
        fixed_components: String::new(),
        open: true,
        suffix: String::new(),
        parent_length: 0,
        literal: true,
    }
}

/// Turns a `**` that is certainly within a component into `*`, and marks one that certainly is a component.
fn settle_stars(nodes: &mut [Node], in_braces: bool) {
    for index in 0..nodes.len() {
        let left = index.checked_sub(1).map(|before| boundary(&nodes[before].kind));
        let right = nodes.get(index + 1).map(|after| boundary(&after.kind));
        let edge = if in_braces { None } else { Some(true) };
        match &mut nodes[index].kind {
            Kind::Alternatives(alternatives) => {
                alternatives.iter_mut().for_each(|alternative| settle_stars(alternative, true));
            }
            kind @ Kind::Stars { .. } => {
                *kind = match (left.unwrap_or(edge), right.unwrap_or(edge)) {
                    (Some(false), _) | (_, Some(false)) => Kind::Star,
                    (Some(true), Some(true)) => Kind::Stars { certain: true },
                    (None, _) | (_, None) => Kind::Stars { certain: false },
                };
            }
            Kind::Char(_) | Kind::Slash | Kind::Any | Kind::Set { .. } | Kind::Star => {}
        }
    }
}

/// Says whether a neighbour ends the component, or `None` when its alternatives decide.
fn boundary(kind: &Kind) -> Option<bool> {
    match kind {
        Kind::Slash => Some(true),
        Kind::Alternatives(_) => None,
        Kind::Char(_) | Kind::Any | Kind::Set { .. } | Kind::Star | Kind::Stars { .. } => Some(false),
    }
}

/// Collects the components after the literal ones that always match exactly one name. Returns their text, and the number of
/// these and of the literal components.
fn fixed_components(components: &[&[Node]]) -> (String, usize) {
    let mut fixed = String::new();
    let literal = components.iter().take_while(|component| is_literal(component)).count();
    let names =
        components[literal..].iter().take_while(|component| is_one_name(component)).map(|component| {
            fixed.push('/');
            if is_literal(component) {
                fixed.extend(component.iter().filter_map(character));
            }
        });
    let names = names.count();
    (fixed, literal + names)
}

/// Says whether a component always matches exactly one name, whatever its wildcards match.
fn is_one_name(component: &[Node]) -> bool {
    least_length(component).is_some_and(|length| length > 0)
}

/// Returns the least number of elements, or `None` when there may be several components.
fn least_length(nodes: &[Node]) -> Option<usize> {
    nodes.iter().try_fold(0, |length, node| match &node.kind {
        Kind::Alternatives(alternatives) => {
            let lengths = alternatives.iter().map(|nodes| least_length(nodes));
            lengths.reduce(|a, b| Some(a?.min(b?))).flatten().map(|least| length + least)
        }
        Kind::Slash | Kind::Stars { .. } => None,
        // A star alone is a name too, and names are not empty.
        Kind::Char(_) | Kind::Any | Kind::Set { .. } | Kind::Star => Some(length + 1),
    })
}

/// Collects the literal end of a glob. A slash counts only after a component that every matched path has.
fn suffix(nodes: &[Node]) -> String {
    let mut reversed = Vec::new();
    for (index, node) in nodes.iter().enumerate().rev() {
        match node.kind {
            Kind::Char(character) => reversed.push(character),
            Kind::Slash if index + 1 < nodes.len() && index > 0 && is_present(&nodes[index - 1]) => {
                reversed.push('/');
            }
            Kind::Slash
            | Kind::Any
            | Kind::Set { .. }
            | Kind::Star
            | Kind::Stars { .. }
            | Kind::Alternatives(_) => break,
        }
    }
    reversed.iter().rev().collect()
}

fn is_present(node: &Node) -> bool {
    matches!(node.kind, Kind::Char(_) | Kind::Any | Kind::Set { .. } | Kind::Star)
}

fn is_folders(component: &[Node]) -> bool {
    matches!(component, [Node { kind: Kind::Stars { .. }, .. }])
}

fn is_literal(component: &[Node]) -> bool {
    component.iter().all(|node| matches!(node.kind, Kind::Char(_)))
}

fn is_name(component: &[Node], name: &str) -> bool {
    component.len() == name.len() && component.iter().zip(name.chars()).all(|(n, c)| character(n) == Some(c))
}

fn character(node: &Node) -> Option<char> {
    match node.kind {
        Kind::Char(character) => Some(character),
        Kind::Slash
        | Kind::Any
        | Kind::Set { .. }
        | Kind::Star
        | Kind::Stars { .. }
        | Kind::Alternatives(_) => None,
    }
}

fn write_nodes(nodes: &[Node], in_braces: bool, text: &mut String) {
    for node in nodes {
        match &node.kind {
            Kind::Char(character) => {
                if matches!(character, '*' | '?' | '[' | '{' | '\\')
                    || in_braces && matches!(character, ',' | '}')
                {
                    text.push('\\');
                }
                text.push(*character);
            }
            Kind::Slash => text.push('/'),
            Kind::Any => text.push('?'),
            Kind::Set { text: class, .. } => text.push_str(class),
            Kind::Star => text.push('*'),
            Kind::Stars { .. } => text.push_str("**"),
            Kind::Alternatives(alternatives) => {
                for (index, alternative) in alternatives.iter().enumerate() {
                    text.push(if index == 0 { '{' } else { ',' });
                    write_nodes(alternative, true, text);
                }
                text.push('}');
            }
        }
    }
}
