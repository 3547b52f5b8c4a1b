//! Composer: builds the tree from the events of the parser, within the bounds.

use std::collections::HashMap;

use saphyr_parser::{Event, Parser, ScalarStyle, Span};

use super::node::{Node, Value};
use super::place::{Place, Source};
use super::{MAX_DEPTH, MAX_NODES, YamlError, syntax_error};

/// Reads the document of a file; `None` when the file is empty.
///
/// # Errors
///
/// The text is not YAML, has a second document, or exceeds a bound.
pub fn compose(source: &Source) -> Result<Option<Node>, YamlError> {
    let mut composer = Composer::default();
    for event in Parser::new_from_str(source.text()) {
        let (event, span) = event.map_err(|error| syntax_error::explain(&error, source))?;
        composer.take(event, place(span))?;
    }
    Ok(composer.root)
}

fn place(span: Span) -> Place {
    let same_line = span.start.line() == span.end.line();
    let width = if same_line { span.end.col().saturating_sub(span.start.col()) } else { 1 };
    Place { line: span.start.line().max(1), column: span.start.col() + 1, width: width.max(1) }
}

#[derive(Default)]
struct Composer {
    root: Option<Node>,
    open: Vec<Open>,
    anchors: HashMap<usize, Node>,
    nodes: usize,
    documents: usize,
}

/// A list or mapping whose end was not read yet.
struct Open {
    place: Place,
    anchor: usize,
    /// The number of nodes before it.
    before: usize,
    content: Content,
}

enum Content {
    List(Vec<Node>),
    Map { entries: Vec<(Node, Node)>, key: Option<Node> },
}

impl Composer {
    fn take(&mut self, event: Event<'_>, place: Place) -> Result<(), YamlError> {
        match event {
            Event::Scalar(text, style, anchor, _tag) => {
                self.count(1, place)?;
                let plain = matches!(style, ScalarStyle::Plain);
                let value = Value::Scalar { text: text.into_owned(), plain };
                self.put(Node { value, place, size: 1, depth: 1 }, anchor, place)
            }
            Event::Alias(anchor) => {
                // A list that contains itself is not complete yet, so its anchor is unknown.
                let known = self.anchors.get(&anchor).cloned();
                let mut node = known.ok_or_else(|| {
                    YamlError::new(
                        "YAML_ALIAS",
                        place,
                        "this alias repeats a list or mapping that contains it",
                    )
                })?;
                self.count(node.size, place)?;
                self.limit_depth(node.depth, place)?;
                node.place = place;
                self.put(node, 0, place)
            }
            Event::SequenceStart(anchor, _tag) => self.begin(anchor, place, Content::List(Vec::new())),
            Event::MappingStart(anchor, _tag) => {
                self.begin(anchor, place, Content::Map { entries: Vec::new(), key: None })
            }
            Event::SequenceEnd | Event::MappingEnd => self.end(place),
            Event::DocumentStart(_) => {
                self.documents += 1;
                if self.documents > 1 {
                    let error = YamlError::new("YAML_DOCUMENTS", place, "a second document begins here");
                    return Err(error.with_hint("one file holds one document: leave the `---` out"));
                }
                Ok(())
            }
            Event::Nothing | Event::StreamStart | Event::StreamEnd | Event::DocumentEnd => Ok(()),
        }
    }

    fn count(&mut self, nodes: usize, place: Place) -> Result<(), YamlError> {
        self.nodes += nodes;
        if self.nodes > MAX_NODES {
            let message = format!("more than {MAX_NODES} values, with all aliases expanded");
            return Err(YamlError::new("TOO_LARGE", place, message)
                .with_hint("split the file, or repeat less by aliases"));
        }
        Ok(())
    }

    fn begin(&mut self, anchor: usize, place: Place, content: Content) -> Result<(), YamlError> {
        let before = self.nodes;
        self.count(1, place)?;
        self.limit_depth(1, place)?;
        self.open.push(Open { place, anchor, before, content });
        Ok(())
    }

    /// Bounds the depth with aliases expanded, because callers walk the tree by recursion.
    fn limit_depth(&self, more: usize, place: Place) -> Result<(), YamlError> {
        if self.open.len() + more <= MAX_DEPTH {
            return Ok(());
        }
        let message = format!("more than {MAX_DEPTH} nested levels of lists and mappings");
        Err(YamlError::new("TOO_DEEP", place, message))
    }

    fn end(&mut self, place: Place) -> Result<(), YamlError> {
        let Some(open) = self.open.pop() else { return Ok(()) };
        let value = match open.content {
            Content::List(items) => Value::List(items),
            Content::Map { entries, .. } => Value::Map(entries),
        };
        let depth = 1 + match &value {
            Value::Scalar { .. } => 0,
            Value::List(items) => items.iter().map(|item| item.depth).max().unwrap_or(0),
            Value::Map(entries) => {
                entries.iter().map(|(key, value)| key.depth.max(value.depth)).max().unwrap_or(0)
            }
        };
        let size = self.nodes - open.before;
        self.put(Node { value, place: open.place, size, depth }, open.anchor, place)
    }

    fn put(&mut self, node: Node, anchor: usize, place: Place) -> Result<(), YamlError> {
        if anchor != 0 {
            // The copy needs memory too.
            self.count(node.size, place)?;
            self.anchors.insert(anchor, node.clone());
        }
        match self.open.last_mut().map(|open| &mut open.content) {
            Some(Content::List(items)) => items.push(node),
            Some(Content::Map { entries, key }) => match key.take() {
                Some(name) => entries.push((name, node)),
                None => *key = Some(node),
            },
            None => self.root = Some(node),
        }
        Ok(())
    }
}
