//! The moves of a run, drawn.

use lockkeeper_core::run::{MOVES, Status};

const WIDTH: i32 = 130;
const HEIGHT: i32 = 40;
const COLUMN: i32 = 230;
const ROW: i32 = 80;
const MARGIN: i32 = 30;

/// Where a state's box is: those on the way from left to right, the ends below each other at the right.
fn place(status: Status) -> (i32, i32) {
    let cell = |column: i32, half_rows: i32| (MARGIN + column * COLUMN, MARGIN + half_rows * ROW / 2);
    match status {
        Status::Queued => cell(0, 3),
        Status::Running => cell(1, 5),
        Status::Cancelling => cell(2, 2),
        Status::Succeeded => cell(3, 2),
        Status::Failed => cell(3, 4),
        Status::Canceled => cell(3, 0),
        Status::TimedOut => cell(3, 6),
        Status::Rejected => cell(3, 8),
    }
}

fn color(by: &str) -> &'static str {
    match by {
        "worker" => "#1f6feb",
        "user" => "#bf8700",
        "timeout" => "#cf222e",
        other => panic!("no colour for {other}"),
    }
}

/// The whole picture as SVG.
pub(crate) fn draw() -> String {
    let (width, height) = (2 * MARGIN + 3 * COLUMN + WIDTH, 2 * MARGIN + 4 * ROW + HEIGHT + 30);
    let mut svg = format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {width} {height}\" width=\"{width}\" \
         height=\"{height}\" font-family=\"sans-serif\" font-size=\"15\" role=\"img\">\n\
         <title>The states of a run and the moves between them</title>\n\
         <rect width=\"{width}\" height=\"{height}\" fill=\"#ffffff\"/>\n<defs>\n"
    );
    let mut movers: Vec<&str> = Vec::new();
    for one in &MOVES {
        if !movers.contains(&one.by) {
            movers.push(one.by);
        }
    }
    for by in &movers {
        svg.push_str(&format!(
            "<marker id=\"{by}\" viewBox=\"0 0 10 10\" refX=\"9\" refY=\"5\" markerWidth=\"7\" markerHeight=\"7\" \
             orient=\"auto\"><path d=\"M0 0 L10 5 L0 10 z\" fill=\"{}\"/></marker>\n",
            color(by)
        ));
    }
    svg.push_str("</defs>\n");
    for one in &MOVES {
        svg.push_str(&arrow(one.from, one.to, one.by));
    }
    for status in Status::ALL {
        svg.push_str(&state(status));
    }
    for (place, by) in movers.iter().enumerate() {
        let x = MARGIN + 110 * i32::try_from(place).unwrap();
        svg.push_str(&format!(
            "<text x=\"{x}\" y=\"{}\" fill=\"{}\">— {by}</text>\n",
            height - MARGIN / 2,
            color(by)
        ));
    }
    svg + "</svg>\n"
}

fn state(status: Status) -> String {
    let (x, y) = place(status);
    let (fill, radius) = if status.is_terminal() { ("#eaeef2", 4) } else { ("#ddf4ff", 20) };
    let (middle, line) = (x + WIDTH / 2, y + HEIGHT / 2 + 5);
    format!(
        "<rect x=\"{x}\" y=\"{y}\" width=\"{WIDTH}\" height=\"{HEIGHT}\" rx=\"{radius}\" fill=\"{fill}\" \
         stroke=\"#24292f\"/>\n<text x=\"{middle}\" y=\"{line}\" text-anchor=\"middle\">{status}</text>\n"
    )
}

/// From the right side of one box to the left side of the other, each move at a height of its own.
fn arrow(from: Status, to: Status, by: &str) -> String {
    let side = |status: Status,
                of_others: fn(&lockkeeper_core::run::Move) -> (Status, Status),
                other: Status| {
        let mut others: Vec<Status> =
            MOVES.iter().map(of_others).filter(|(own, _)| *own == status).map(|(_, other)| other).collect();
        others.sort_by_key(|status| place(*status).1);
        let count = i32::try_from(others.len()).unwrap();
        let index = i32::try_from(others.iter().position(|one| *one == other).unwrap()).unwrap();
        place(status).1 + HEIGHT * (index + 1) / (count + 1)
    };
    let (x1, x2) = (place(from).0 + WIDTH, place(to).0);
    let y1 = side(from, |one| (one.from, one.to), to);
    let y2 = side(to, |one| (one.to, one.from), from);
    let bend = (x2 - x1) / 2;
    format!(
        "<path d=\"M{x1} {y1} C{} {y1} {} {y2} {x2} {y2}\" fill=\"none\" stroke=\"{}\" stroke-width=\"1.6\" \
         marker-end=\"url(#{by})\"/>\n",
        x1 + bend,
        x2 - bend,
        color(by)
    )
}
