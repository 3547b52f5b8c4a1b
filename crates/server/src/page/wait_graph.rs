//! Wait-for graph: waiters on the left, the owners that they wait for to their right.

use std::collections::{BTreeMap, BTreeSet};

/// How many owners are drawn.
const MAX_NODES: usize = 60;
const NODE_WIDTH: usize = 190;
const NODE_HEIGHT: usize = 40;
const COLUMN: usize = 340;
const ROW: usize = 64;
const MARGIN: usize = 16;
/// How many characters fit into a node.
const NODE_TEXT: usize = 22;
/// How many characters fit onto an edge.
const EDGE_TEXT: usize = 20;

/// The graph with its layout.
pub(super) struct WaitGraph {
    pub(super) width: usize,
    pub(super) height: usize,
    pub(super) nodes: Vec<Node>,
    pub(super) edges: Vec<Edge>,
    /// The graph as text, for screen readers.
    pub(super) text: String,
}

/// A node: an owner.
pub(super) struct Node {
    pub(super) owner: String,
    pub(super) label: String,
    pub(super) class: &'static str,
    pub(super) x: usize,
    pub(super) y: usize,
    pub(super) width: usize,
    pub(super) height: usize,
    pub(super) text_x: usize,
    pub(super) text_y: usize,
}

/// An edge: one owner waits for another.
pub(super) struct Edge {
    pub(super) path: String,
    pub(super) label: String,
    pub(super) label_x: usize,
    pub(super) label_y: usize,
    pub(super) title: String,
}

impl WaitGraph {
    /// Lays out waits, each given as waiter, holder and resource; none when nobody waits.
    pub(super) fn new<'w>(waits: impl Iterator<Item = (&'w str, &'w str, &'w str)>) -> Option<Self> {
        let mut edges: BTreeMap<(&str, &str), &str> = BTreeMap::new();
        let mut owners: BTreeSet<&str> = BTreeSet::new();
        for (waiter, holder, wanted) in waits {
            let more = [waiter, holder].iter().filter(|owner| !owners.contains(**owner)).count();
            if owners.len() + more <= MAX_NODES {
                owners.extend([waiter, holder]);
                edges.entry((waiter, holder)).or_insert(wanted);
            }
        }
        if edges.is_empty() {
            return None;
        }
        let depths = depths(&owners, &edges);
        let mut columns = Columns::new(depths.values().copied().max().unwrap_or(0));
        let mut places: BTreeMap<&str, Place> = BTreeMap::new();
        for (owner, depth) in &depths {
            places.insert(owner, columns.take(*depth));
        }
        let waiters: BTreeSet<&str> = edges.keys().map(|(waiter, _)| *waiter).collect();
        let nodes = places.iter().map(|(owner, place)| Node::new(owner, *place, waiters.contains(owner)));
        let nodes: Vec<Node> = nodes.collect();
        let mut drawn = Vec::new();
        for ((waiter, holder), wanted) in &edges {
            // A long edge gets a row of its own in every column that it crosses.
            let crossed = depths[holder] + 1..depths[waiter];
            let between: Vec<Place> = crossed.rev().map(|depth| columns.take(depth)).collect();
            drawn.push(Edge::new(places[waiter], &between, places[holder], (waiter, holder, wanted)));
        }
        let text: Vec<String> = edges
            .iter()
            .map(|((waiter, holder), wanted)| format!("{waiter} → {holder} ({wanted})"))
            .collect();
        let (width, height) = columns.size();
        Some(Self { width, height, nodes, edges: drawn, text: text.join("; ") })
    }
}

/// The upper left corner of a node.
type Place = (usize, usize);

/// The number of occupied rows in each column, by depth.
struct Columns(Vec<usize>);

impl Columns {
    fn new(deepest: usize) -> Self {
        Self(vec![0; deepest + 1])
    }

    /// Takes the next row of a column. Depth 0 is the rightmost column.
    fn take(&mut self, depth: usize) -> Place {
        let place = (MARGIN + (self.0.len() - 1 - depth) * COLUMN, MARGIN + self.0[depth] * ROW);
        self.0[depth] += 1;
        place
    }

    fn size(&self) -> (usize, usize) {
        let rows = self.0.iter().max().copied().unwrap_or(1);
        (2 * MARGIN + (self.0.len() - 1) * COLUMN + NODE_WIDTH, 2 * MARGIN + rows * ROW - (ROW - NODE_HEIGHT))
    }
}

/// The depth of each owner: the longest chain of waits to an owner that does not wait. Cycles are cut off.
fn depths<'w>(
    owners: &BTreeSet<&'w str>,
    edges: &BTreeMap<(&'w str, &'w str), &'w str>,
) -> BTreeMap<&'w str, usize> {
    let mut depths: BTreeMap<&str, usize> = owners.iter().map(|owner| (*owner, 0)).collect();
    // Each round settles owners one step farther from the holders. The number of rounds is bounded, also with cycles.
    for _ in 0..owners.len() {
        let mut settled = true;
        for (waiter, holder) in edges.keys() {
            let wanted = depths[holder] + 1;
            if depths[waiter] < wanted && wanted < owners.len() {
                depths.insert(waiter, wanted);
                settled = false;
            }
        }
        if settled {
            break;
        }
    }
    depths
}

impl Node {
    fn new(owner: &str, (x, y): Place, waits: bool) -> Self {
        Self {
            owner: owner.to_owned(),
            label: short(owner, NODE_TEXT),
            class: if waits { "waits" } else { "holds" },
            x,
            y,
            width: NODE_WIDTH,
            height: NODE_HEIGHT,
            text_x: x + 12,
            text_y: y + NODE_HEIGHT / 2 + 5,
        }
    }
}

impl Edge {
    fn new(from: Place, between: &[Place], to: Place, (waiter, holder, wanted): (&str, &str, &str)) -> Self {
        let middle = |place: Place| place.1 + NODE_HEIGHT / 2;
        let (mut x, mut y) = (from.0 + NODE_WIDTH, middle(from));
        let first = between.first().copied().unwrap_or(to);
        let (label_x, label_y) =
            (usize::midpoint(x, first.0), usize::midpoint(y, middle(first)).saturating_sub(5));
        let mut path = format!("M{x} {y}");
        let bend = (COLUMN - NODE_WIDTH) / 2;
        for place in between.iter().chain([&to]) {
            let (next_x, next_y) = (place.0, middle(*place));
            path.push_str(&format!(
                "C{} {y} {} {next_y} {next_x} {next_y}",
                x + bend,
                next_x.saturating_sub(bend)
            ));
            // Straight across a column, except at the holder.
            (x, y) = (next_x + NODE_WIDTH, next_y);
            if place != &to {
                path.push_str(&format!("H{x}"));
            }
        }
        let title = format!("{waiter} → {holder}: {wanted}");
        Self { path, label: short(wanted, EDGE_TEXT), label_x, label_y, title }
    }
}

/// Cuts a text that is too long.
fn short(text: &str, length: usize) -> String {
    match text.char_indices().nth(length) {
        Some((end, _)) => format!("{}…", &text[..end]),
        None => text.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn columns(graph: &WaitGraph) -> Vec<(&str, usize)> {
        graph.nodes.iter().map(|node| (node.owner.as_str(), node.x)).collect()
    }

    #[test]
    fn an_owner_that_others_wait_for_is_drawn_to_their_right() {
        let waits = [("b:1", "a:1", "db"), ("c:1", "b:1", "x"), ("c:1", "a:1", "db")];
        let graph = WaitGraph::new(waits.into_iter()).unwrap();
        let at: BTreeMap<&str, usize> = columns(&graph).into_iter().collect();
        assert!(at["c:1"] < at["b:1"] && at["b:1"] < at["a:1"]);
        assert_eq!(graph.edges.len(), 3);
        // The edge over two columns has a row of its own.
        assert!(graph.edges.iter().any(|edge| edge.path.contains('H')));
    }

    #[test]
    fn a_cycle_is_drawn_too() {
        let graph = WaitGraph::new([("a:1", "b:1", "x"), ("b:1", "a:1", "y")].into_iter()).unwrap();
        assert_eq!((graph.nodes.len(), graph.edges.len()), (2, 2));
        assert!(graph.width > 0 && graph.height > 0);
    }

    #[test]
    fn nothing_is_drawn_when_nobody_waits_and_not_everything_when_all_do() {
        assert!(WaitGraph::new(std::iter::empty()).is_none());
        let names: Vec<String> = (0..500).map(|number| format!("w:{number}")).collect();
        let graph = WaitGraph::new(names.iter().map(|name| (name.as_str(), "h:1", "db"))).unwrap();
        assert!(graph.nodes.len() <= MAX_NODES);
    }

    #[test]
    fn long_texts_are_cut_at_characters() {
        assert_eq!(short("数据库数据库", 3), "数据库…");
        assert_eq!(short("db", 3), "db");
    }
}
