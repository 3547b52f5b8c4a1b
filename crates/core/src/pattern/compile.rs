//! Compiler: builds the automaton of a pattern.
//!
//! Braces have the meaning of their expanded alternatives, but are never expanded. The elements become a graph whose
//! forks are the alternatives. One walk over the graph carries what is known about the current component. So `a/{,b}/c`
//! drops the doubled slash of its first alternative, `{a,}**/b` knows which `**` stands for folders, and a `..` that only
//! some alternative makes is found.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;

use super::automaton::{Automaton, Edge, Label, State};
use super::error::PatternError;
use super::parse::{Kind, Node};
use super::set::CharSet;

/// The most transitions of one automaton; two automata are compared in at most the square of it.
pub(super) const MAX_EDGES: usize = 8192;

/// Builds the automaton of normalised elements that begin with the characters of `prefix`; `text` is for the
/// errors.
pub(super) fn compile(nodes: &[Node], prefix: &str, text: &str) -> Result<Automaton, PatternError> {
    let mut automaton = Automaton::spelling(prefix);
    let mut graph = vec![Step::End, Step::Folders { next: END }];
    let first = lower(&mut graph, &nodes[automaton.len()..], END);
    let mut walk = Walk { graph, offset: automaton.len(), states: HashMap::new(), pending: Vec::new() };
    walk.state(first, if prefix.is_empty() { Context::Origin } else { Context::Named });
    let mut done = 0;
    while let Some(&(step, context)) = walk.pending.get(done) {
        let (edges, accepting) = walk.expand(step, context)?;
        let open_ended = matches!(walk.graph[step], Step::Folders { next: END });
        automaton.push(edges, accepting, open_ended);
        if automaton.size() > MAX_EDGES {
            return Err(PatternError::TooComplex { pattern: text.to_owned(), limit: MAX_EDGES });
        }
        done += 1;
    }
    Ok(automaton)
}

/// The index of a step in the graph.
type Index = usize;
const END: Index = 0;
/// One or more components below the path that was read.
const BELOW: Index = 1;

/// One node of the graph, with the index of the next one.
enum Step {
    End,
    Char { character: char, column: usize, next: Index },
    Slash { column: usize, next: Index },
    Wild { label: Label, next: Index },
    Star { next: Index },
    Stars { certain: bool, folders: Index, next: Index },
    Folders { next: Index },
    Fork(Vec<Index>),
}

/// What is known about the path where a step begins.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
enum Context {
    /// Nothing was read.
    Origin,
    /// Nothing was written, because a leading `**/` stood for no folder.
    Skipped,
    /// A slash was read but is not written: a second one, or the end, may follow.
    Slash,
    /// As `Slash`, but a `**/` after it stood for no folder.
    SkippedSlash,
    /// A component has begun, and needs its first character.
    Opened,
    /// As `Opened`, but a wildcard that read nothing stands first.
    WildOpened,
    /// The component is `.`, spelt out.
    Dot { column: usize },
    /// The component is `..`, spelt out.
    DotDot { column: usize },
    /// The component is `.`, by way of a wildcard.
    WildDot,
    /// The component is `..`, by way of a wildcard.
    WildDotDot,
    /// The component is a name.
    Named,
    /// A `**` stood for no folder; a slash or the end must follow.
    NoFolder { slash: bool },
    /// A `**` stood for folders; a slash or the end must follow.
    AfterFolders,
}

/// Turns elements into steps that lead to `next`; returns the first.
fn lower(graph: &mut Vec<Step>, nodes: &[Node], mut next: Index) -> Index {
    for node in nodes.iter().rev() {
        let column = node.column;
        let step = match &node.kind {
            Kind::Char(character) => Step::Char { character: *character, column, next },
            Kind::Slash => Step::Slash { column, next },
            Kind::Any => Step::Wild { label: Label::Any, next },
            Kind::Set { set, .. } => Step::Wild { label: Label::Set(Arc::new(set.clone())), next },
            Kind::Star => Step::Star { next },
            Kind::Stars { certain } => {
                graph.push(Step::Folders { next });
                Step::Stars { certain: *certain, folders: graph.len() - 1, next }
            }
            Kind::Alternatives(alternatives) => {
                Step::Fork(alternatives.iter().map(|nodes| lower(graph, nodes, next)).collect())
            }
        };
        graph.push(step);
        next = graph.len() - 1;
    }
    next
}

struct Walk {
    graph: Vec<Step>,
    /// The number of the first state.
    offset: usize,
    states: HashMap<(Index, Context), State>,
    /// What each state stands for, in the order of their numbers.
    pending: Vec<(Index, Context)>,
}

impl Walk {
    fn state(&mut self, step: Index, context: Context) -> State {
        *self.states.entry((step, context)).or_insert_with(|| {
            self.pending.push((step, context));
            State::try_from(self.offset + self.pending.len() - 1)
                .expect("states are fewer than transitions, which are bounded")
        })
    }

    /// Follows all steps that are reachable without reading a character. Returns the transitions from there, and whether
    /// the end is reachable.
    fn expand(&mut self, step: Index, context: Context) -> Result<(Vec<Edge>, bool), PatternError> {
        let mut found = Found { reach: vec![(step, context)], edges: Vec::new(), accepting: false };
        let mut seen = HashSet::new();
        while let Some((step, context)) = found.reach.pop() {
            // Steps only lead forward, so without a fork no step is visited twice.
            let no_fork = found.reach.is_empty() && seen.is_empty();
            if no_fork || seen.insert((step, context)) {
                self.follow(step, context, &mut found)?;
            }
        }
        let mut edges: Vec<Edge> = Vec::with_capacity(found.edges.len());
        for (label, step, context) in found.edges {
            let target = self.state(step, context);
            if !edges.iter().any(|edge| edge.target == target && edge.label == label) {
                edges.push(Edge { label, target });
            }
        }
        Ok((edges, found.accepting))
    }

    fn follow(&self, step: Index, context: Context, found: &mut Found) -> Result<(), PatternError> {
        match &self.graph[step] {
            Step::Fork(firsts) => found.reach.extend(firsts.iter().rev().map(|first| (*first, context))),
            Step::Char { character, column, next } => {
                if let Some(after) = spelt(context, *character, *column) {
                    found.edges.push((Label::Char(*character), *next, after));
                } else if context.owes_slash() {
                    found.open(step);
                }
            }
            Step::Wild { label, next } => found.wild(label, context, step, *next),
            Step::Star { next } => found.star(context, step, *next),
            Step::Stars { certain, folders, next } => {
                if context.owes_slash() {
                    found.reach.push((*next, Context::NoFolder { slash: true }));
                    found.open(*folders);
                } else if context.at_origin() {
                    found.reach.push((*next, Context::NoFolder { slash: false }));
                    found.reach.push((*folders, Context::Opened));
                }
                if !certain {
                    found.star(context, step, *next);
                }
            }
            Step::Folders { next } => {
                if context == Context::Named {
                    found.reach.push((*next, Context::AfterFolders));
                    found.open(step);
                }
                found.wild(&Label::Any, context, step, step);
            }
            Step::Slash { column, next } => {
                found.reach.extend(separated(context, *column)?.map(|after| (*next, after)));
            }
            Step::End => match context {
                Context::Named | Context::AfterFolders => found.accepting = true,
                // A trailing slash: the path itself and everything below it.
                Context::Slash => {
                    found.accepting = true;
                    found.open(BELOW);
                }
                Context::SkippedSlash => found.open(BELOW),
                Context::Skipped => found.reach.push((BELOW, Context::Opened)),
                Context::Dot { column } => return Err(PatternError::CurrentFolder { column }),
                Context::DotDot { column } => return Err(PatternError::ParentFolder { column }),
                Context::Origin
                | Context::Opened
                | Context::WildOpened
                | Context::WildDot
                | Context::WildDotDot
                | Context::NoFolder { .. } => {}
            },
        }
        Ok(())
    }
}

/// What one expansion has collected.
struct Found {
    /// Reached, not followed yet.
    reach: Vec<(Index, Context)>,
    edges: Vec<(Label, Index, Context)>,
    accepting: bool,
}

impl Found {
    /// Writes the slash that was read, after which `step` begins a component.
    fn open(&mut self, step: Index) {
        self.edges.push((Label::Char('/'), step, Context::Opened));
    }

    /// Reads one character of `label` at `step`; `next` follows. A dot gets a transition of its own, because a component
    /// that is `.` or `..` so far is not a name yet.
    fn wild(&mut self, label: &Label, context: Context, step: Index, next: Index) {
        let dotted = match context {
            Context::Slash | Context::SkippedSlash => return self.open(step),
            Context::NoFolder { .. } | Context::AfterFolders => return,
            Context::DotDot { .. } | Context::WildDotDot | Context::Named => {
                self.edges.push((label.clone(), next, Context::Named));
                return;
            }
            Context::Origin | Context::Skipped | Context::Opened | Context::WildOpened => Context::WildDot,
            Context::Dot { .. } | Context::WildDot => Context::WildDotDot,
        };
        let others = match label {
            Label::Any | Label::AnyButDot => Label::AnyButDot,
            Label::Char(_) | Label::Set(_) => Label::Set(Arc::new(label.to_set().without('.'))),
        };
        if !matches!(&others, Label::Set(set) if CharSet::is_empty(set)) {
            self.edges.push((others, next, Context::Named));
        }
        // Last, so that a search prefers a witness that is not hidden.
        if label.contains('.') {
            self.edges.push((Label::Char('.'), next, dotted));
        }
    }

    /// Reads any characters at `step`, then goes on to `next`.
    fn star(&mut self, context: Context, step: Index, next: Index) {
        match context {
            Context::Slash | Context::SkippedSlash => self.open(step),
            // Even a star that reads nothing begins the component: `*/a` is not `a`.
            Context::Origin | Context::Skipped => self.reach.push((step, Context::Opened)),
            Context::NoFolder { .. } | Context::AfterFolders => {}
            Context::Opened
            | Context::WildOpened
            | Context::Dot { .. }
            | Context::DotDot { .. }
            | Context::WildDot
            | Context::WildDotDot
            | Context::Named => {
                let after = match context {
                    Context::Opened => Context::WildOpened,
                    Context::Dot { .. } => Context::WildDot,
                    Context::DotDot { .. } => Context::WildDotDot,
                    other => other,
                };
                self.reach.push((next, after));
                self.wild(&Label::Any, context, step, step);
            }
        }
    }
}

impl Context {
    fn owes_slash(self) -> bool {
        matches!(self, Self::Slash | Self::SkippedSlash)
    }

    fn at_origin(self) -> bool {
        matches!(self, Self::Origin | Self::Skipped)
    }
}

/// Returns what is known after a spelt-out character, or `None` when it cannot be written here.
fn spelt(context: Context, character: char, column: usize) -> Option<Context> {
    match (context, character) {
        (Context::Slash | Context::SkippedSlash | Context::NoFolder { .. } | Context::AfterFolders, _) => {
            None
        }
        (Context::Origin | Context::Skipped | Context::Opened, '.') => Some(Context::Dot { column }),
        (Context::Dot { column }, '.') => Some(Context::DotDot { column }),
        (Context::WildOpened, '.') => Some(Context::WildDot),
        (Context::WildDot, '.') => Some(Context::WildDotDot),
        (
            Context::Origin
            | Context::Skipped
            | Context::Opened
            | Context::WildOpened
            | Context::Dot { .. }
            | Context::DotDot { .. }
            | Context::WildDot
            | Context::WildDotDot
            | Context::Named,
            _,
        ) => Some(Context::Named),
    }
}

/// Returns what is known after a slash, or `None` when no path has one here.
fn separated(context: Context, column: usize) -> Result<Option<Context>, PatternError> {
    Ok(match context {
        Context::Origin => return Err(PatternError::Absolute { column }),
        Context::Dot { column } => return Err(PatternError::CurrentFolder { column }),
        Context::DotDot { column } => return Err(PatternError::ParentFolder { column }),
        Context::Skipped | Context::NoFolder { slash: false } => Some(Context::Skipped),
        Context::SkippedSlash | Context::NoFolder { slash: true } => Some(Context::SkippedSlash),
        Context::Slash | Context::Named | Context::AfterFolders => Some(Context::Slash),
        Context::Opened | Context::WildOpened | Context::WildDot | Context::WildDotDot => None,
    })
}
