//! Wait-for graph in three columns: who waits, for what, and who holds it. Resources have boxes of their own, so that no text
//! lies on a line. Each column is ordered so that few lines cross.

/// How many waiters are drawn: those that wait longest.
const MAX_WAITERS: usize = 12;
/// The width of the drawing. The page scales it to the window.
const WIDTH: usize = 1000;
const BOX_WIDTH: usize = 250;
const BOX_HEIGHT: usize = 40;
const ROW: usize = 54;
const MARGIN: usize = 12;
/// The place of the columns.
const COLUMNS: [usize; 3] = [MARGIN, (WIDTH - BOX_WIDTH) / 2, WIDTH - BOX_WIDTH - MARGIN];
/// How much text fits into a box, in halves of an em.
const TEXT: usize = 29;
/// How often columns are ordered by their neighbours.
const ROUNDS: usize = 8;

/// One wait: a waiter, what it wants, and who is in the way.
pub(super) struct Wait {
    pub(super) waiter: String,
    /// How long it waits, in words.
    pub(super) span: String,
    pub(super) wanted: String,
    /// The owners of the leases that are in the way.
    pub(super) holders: Vec<String>,
    /// Whether a holder is dead.
    pub(super) is_orphaned: bool,
    /// Whether others are before it in line.
    pub(super) is_behind: bool,
    /// Its place in line, from 1.
    pub(super) place: usize,
}

/// The graph with its layout.
pub(super) struct WaitGraph {
    pub(super) width: usize,
    pub(super) height: usize,
    pub(super) nodes: Vec<Node>,
    pub(super) edges: Vec<Edge>,
    /// How many waiters are not drawn.
    pub(super) left_out: usize,
    /// The graph as text, for screen readers.
    pub(super) text: String,
}

/// A box with one or two lines of text.
pub(super) struct Node {
    pub(super) class: &'static str,
    pub(super) x: usize,
    pub(super) y: usize,
    pub(super) width: usize,
    pub(super) height: usize,
    pub(super) label: String,
    pub(super) sub: String,
    pub(super) title: String,
    pub(super) text_x: usize,
    pub(super) text_y: usize,
}

/// A line from a waiter to what it wants, or from there to the holder.
pub(super) struct Edge {
    pub(super) class: &'static str,
    pub(super) path: String,
    pub(super) title: String,
    /// The place in line, beside the arrow.
    pub(super) place: Option<(usize, usize, usize)>,
}

/// Lines between two columns, by the numbers of their nodes.
type Lines = Vec<(usize, usize)>;

impl WaitGraph {
    /// Lays out waits, the longest first; none when nobody waits.
    pub(super) fn new(waits: &[Wait]) -> Option<Self> {
        let mut waiters: Vec<&str> = Vec::new();
        let mut left_out: Vec<&str> = Vec::new();
        for wait in waits {
            let known = waiters.contains(&wait.waiter.as_str()) || left_out.contains(&wait.waiter.as_str());
            match (known, waiters.len() < MAX_WAITERS) {
                (true, _) => {}
                (false, true) => waiters.push(&wait.waiter),
                (false, false) => left_out.push(&wait.waiter),
            }
        }
        let drawn: Vec<&Wait> = waits.iter().filter(|wait| waiters.contains(&wait.waiter.as_str())).collect();
        if drawn.is_empty() {
            return None;
        }
        let wanted = distinct(drawn.iter().map(|wait| wait.wanted.clone()));
        // Holders of one resource, such as readers, share a box.
        let holders = distinct(
            drawn.iter().filter(|wait| !wait.holders.is_empty()).map(|wait| wait.holders.join(", ")),
        );
        let number = |all: &[String], text: &str| all.iter().position(|one| one == text).unwrap_or(0);
        let left: Lines = drawn
            .iter()
            .map(|wait| {
                let waiter = waiters.iter().position(|one| *one == wait.waiter).unwrap_or(0);
                (waiter, number(&wanted, &wait.wanted))
            })
            .collect();
        let mut right: Lines = drawn
            .iter()
            .filter(|wait| !wait.holders.is_empty())
            .map(|wait| (number(&wanted, &wait.wanted), number(&holders, &wait.holders.join(", "))))
            .collect();
        right.sort_unstable();
        right.dedup();
        let places = order([waiters.len(), wanted.len(), holders.len()], &left, &right);
        let rows = [waiters.len(), wanted.len(), holders.len()].into_iter().max().unwrap_or(1);
        let height = 2 * MARGIN + rows * ROW - (ROW - BOX_HEIGHT);
        let counts = [waiters.len(), wanted.len(), holders.len()];
        // Each column is centred.
        let y = |column: usize, node: usize| {
            MARGIN + (rows - counts[column]) * ROW / 2 + places[column][node] * ROW
        };
        let mut nodes = Vec::new();
        for (at, waiter) in waiters.iter().enumerate() {
            let span = drawn.iter().find(|wait| wait.waiter == *waiter).map_or("", |wait| &wait.span);
            nodes.push(Node::new("waits", 0, y(0, at), waiter, span));
        }
        for (at, wanted) in wanted.iter().enumerate() {
            nodes.push(Node::new("wanted", 1, y(1, at), wanted, ""));
        }
        for (at, holder) in holders.iter().enumerate() {
            let orphaned = drawn.iter().any(|wait| wait.is_orphaned && wait.holders.join(", ") == *holder);
            nodes.push(Node::new(if orphaned { "orphaned" } else { "holds" }, 2, y(2, at), holder, ""));
        }
        let mut edges = Vec::new();
        for (wait, (waiter, resource)) in drawn.iter().zip(&left) {
            // Lines to one box end at different heights, in the order of their waiters.
            let mut same: Vec<usize> =
                left.iter().filter(|line| line.1 == *resource).map(|line| line.0).collect();
            same.sort_by_key(|waiter| places[0][*waiter]);
            let at = same.iter().position(|one| one == waiter).unwrap_or(0);
            let end = y(1, *resource) + (at + 1) * BOX_HEIGHT / (same.len() + 1);
            let class = if wait.is_behind { "behind" } else { "" };
            // Every second number is shifted, so that numbers do not overlap.
            let place = (COLUMNS[1] - 26 - at % 2 * 20, end, wait.place);
            let title = format!("{} → {}", wait.waiter, wait.wanted);
            edges.push(Edge {
                place: Some(place),
                ..Edge::new(0, y(0, *waiter) + BOX_HEIGHT / 2, end, class, title)
            });
        }
        for (resource, holder) in &right {
            let title = format!("{} → {}", wanted[*resource], holders[*holder]);
            let (from, to) = (y(1, *resource) + BOX_HEIGHT / 2, y(2, *holder) + BOX_HEIGHT / 2);
            edges.push(Edge::new(1, from, to, "", title));
        }
        let words = drawn
            .iter()
            .map(|wait| format!("{} → {} → {}", wait.waiter, wait.wanted, wait.holders.join(", ")));
        let text = words.collect::<Vec<_>>().join("; ");
        Some(Self { width: WIDTH, height, nodes, edges, left_out: left_out.len(), text })
    }
}

/// The texts without repetitions, in their order.
fn distinct(texts: impl Iterator<Item = String>) -> Vec<String> {
    let mut all: Vec<String> = Vec::new();
    for text in texts {
        if !all.contains(&text) {
            all.push(text);
        }
    }
    all
}

/// Orders three columns so that few lines cross: each node goes to the middle of its neighbours (barycentre), several times.
/// Returns the place of each node in its column.
fn order(counts: [usize; 3], left: &Lines, right: &Lines) -> [Vec<usize>; 3] {
    let mut places = counts.map(|count| (0..count).collect::<Vec<usize>>());
    let mut best = places.clone();
    let crossings_of = |places: &[Vec<usize>; 3]| {
        crossings(left, &places[0], &places[1]) + crossings(right, &places[1], &places[2])
    };
    for round in 0..ROUNDS {
        let flipped = |lines: &Lines| lines.iter().map(|(from, to)| (*to, *from)).collect::<Lines>();
        if round % 2 == 0 {
            places[1] = by_middle(counts[1], &flipped(left), &places[0], &places[1]);
            places[2] = by_middle(counts[2], &flipped(right), &places[1], &places[2]);
        } else {
            places[1] = by_middle(counts[1], right, &places[2], &places[1]);
            places[0] = by_middle(counts[0], left, &places[1], &places[0]);
        }
        if crossings_of(&places) < crossings_of(&best) {
            best = places.clone();
        }
    }
    best
}

/// The places of nodes by the middle of their neighbours. Nodes without neighbours stay where they are.
fn by_middle(count: usize, lines: &Lines, neighbours: &[usize], now: &[usize]) -> Vec<usize> {
    let middle = |node: usize| {
        let all: Vec<usize> =
            lines.iter().filter(|line| line.0 == node).map(|line| neighbours[line.1]).collect();
        match all.len() {
            0 => now[node] as f64,
            length => all.iter().sum::<usize>() as f64 / length as f64,
        }
    };
    let mut nodes: Vec<usize> = (0..count).collect();
    nodes.sort_by(|a, b| middle(*a).total_cmp(&middle(*b)).then(now[*a].cmp(&now[*b])));
    let mut places = vec![0; count];
    for (place, node) in nodes.into_iter().enumerate() {
        places[node] = place;
    }
    places
}

/// How many pairs of lines cross.
fn crossings(lines: &Lines, from: &[usize], to: &[usize]) -> usize {
    let at: Vec<(usize, usize)> = lines.iter().map(|line| (from[line.0], to[line.1])).collect();
    let crosses = |(a, b): (&(usize, usize), &(usize, usize))| a.0 < b.0 && a.1 > b.1;
    at.iter().flat_map(|a| at.iter().map(move |b| (a, b))).filter(|pair| crosses(*pair)).count()
}

impl Node {
    fn new(class: &'static str, column: usize, y: usize, label: &str, sub: &str) -> Self {
        let x = COLUMNS[column];
        let text_y = y + if sub.is_empty() { BOX_HEIGHT / 2 + 5 } else { 17 };
        Self {
            class,
            x,
            y,
            width: BOX_WIDTH,
            height: BOX_HEIGHT,
            label: short(label, TEXT),
            sub: sub.to_owned(),
            title: label.to_owned(),
            text_x: x + 12,
            text_y,
        }
    }
}

impl Edge {
    /// A curve between a column and the next one.
    fn new(column: usize, from: usize, to: usize, class: &'static str, title: String) -> Self {
        let (start, end) = (COLUMNS[column] + BOX_WIDTH, COLUMNS[column + 1]);
        let bend = (end - start) / 2;
        let path = format!("M{start} {from}C{} {from} {} {to} {end} {to}", start + bend, end - bend);
        Self { class, path, title, place: None }
    }
}

/// Cuts a text that is too long. A full-width character is as wide as two others.
fn short(text: &str, length: usize) -> String {
    let width = |c: char| if u32::from(c) >= 0x1100 { 2 } else { 1 };
    let mut used = 0;
    for (at, c) in text.char_indices() {
        used += width(c);
        if used > length {
            return format!("{}…", &text[..at]);
        }
    }
    text.to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn wait(waiter: &str, wanted: &str, holders: &[&str]) -> Wait {
        Wait {
            waiter: waiter.to_owned(),
            span: "1s".to_owned(),
            wanted: wanted.to_owned(),
            holders: holders.iter().map(|holder| (*holder).to_owned()).collect(),
            is_orphaned: false,
            is_behind: false,
            place: 1,
        }
    }

    #[test]
    fn lines_that_need_not_cross_do_not() {
        // In the order in which they came, every line would cross every other.
        let waits = [wait("a:1", "z", &["h:3"]), wait("a:2", "y", &["h:2"]), wait("a:3", "x", &["h:1"])];
        let reversed: Vec<Wait> = waits.into_iter().rev().collect();
        let graph = WaitGraph::new(&reversed).unwrap();
        let y = |title: &str| graph.nodes.iter().find(|node| node.title == title).unwrap().y;
        assert_eq!([y("a:1"), y("a:2"), y("a:3")], [y("z"), y("y"), y("x")]);
        assert_eq!([y("z"), y("y"), y("x")], [y("h:3"), y("h:2"), y("h:1")]);
        let left: Lines = vec![(0, 1), (1, 0), (2, 2), (0, 2)];
        let right: Lines = vec![(0, 1), (1, 0), (2, 0)];
        let places = order([3, 3, 2], &left, &right);
        assert_eq!(crossings(&left, &places[0], &places[1]) + crossings(&right, &places[1], &places[2]), 0);
    }

    #[test]
    fn boxes_of_a_column_never_overlap_and_fit_into_the_drawing() {
        let waits: Vec<Wait> = (0..9)
            .flat_map(|n| {
                [
                    wait(&format!("w:{n}"), &format!("r{}", n % 4), &["h:1"]),
                    wait(&format!("w:{n}"), "db", &["h:2", "h:3"]),
                ]
            })
            .collect();
        let graph = WaitGraph::new(&waits).unwrap();
        for (at, one) in graph.nodes.iter().enumerate() {
            assert!(one.y + one.height <= graph.height && one.x + one.width <= graph.width);
            let apart = |other: &Node| one.x != other.x || one.y.abs_diff(other.y) >= BOX_HEIGHT;
            assert!(graph.nodes[at + 1..].iter().all(apart), "{}", one.title);
        }
        assert_eq!(graph.edges.len(), 18 + 5);
    }

    #[test]
    fn a_cycle_is_drawn_too() {
        let graph = WaitGraph::new(&[wait("a:1", "x", &["b:1"]), wait("b:1", "y", &["a:1"])]).unwrap();
        assert_eq!((graph.nodes.len(), graph.edges.len()), (6, 4));
    }

    #[test]
    fn nothing_is_drawn_when_nobody_waits_and_not_everything_when_all_do() {
        assert!(WaitGraph::new(&[]).is_none());
        let waits: Vec<Wait> = (0..500).map(|number| wait(&format!("w:{number}"), "db", &["h:1"])).collect();
        let graph = WaitGraph::new(&waits).unwrap();
        assert_eq!((graph.nodes.len(), graph.left_out), (MAX_WAITERS + 2, 500 - MAX_WAITERS));
    }

    #[test]
    fn long_texts_are_cut_by_their_width() {
        assert_eq!(short("数据库数据库", 6), "数据库…");
        assert_eq!(short("数据库", 6), "数据库");
        assert_eq!(short("database", 6), "databa…");
    }
}
