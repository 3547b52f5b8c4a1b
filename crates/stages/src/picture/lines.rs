//! Curves between the boxes of a picture, and the positions of their badges.

use super::layout::{BOX_WIDTH, Card};

/// A curve.
pub(super) struct Line {
    /// The SVG path.
    pub(super) path: String,
    /// Its middle.
    pub(super) middle: (usize, usize),
}

/// Returns the curve between two boxes: beside them if they are in the same column, through the gap if they are in
/// neighbouring columns, and otherwise above the boxes between them.
pub(super) fn line(from: &Card, to: &Card, arrow: bool) -> Line {
    let short = usize::from(arrow) * 2;
    match to.wave.abs_diff(from.wave) {
        0 => {
            let (x, y, end_y) = (from.x + BOX_WIDTH, from.middle(), to.middle());
            // A longer curve is wider, so that the curves of one column can be distinguished.
            let bow = (40 + end_y.abs_diff(y) / 4).min(100);
            let path = format!("M{x} {y}C{} {y} {} {end_y} {} {end_y}", x + bow, x + bow, x + short);
            Line { path, middle: (x + bow * 3 / 4, (y + end_y) / 2) }
        }
        1 => {
            let (x, y, end, end_y) =
                (from.x + BOX_WIDTH, from.middle(), to.x.saturating_sub(short), to.middle());
            let half = (x + end) / 2;
            let path = format!("M{x} {y}C{half} {y} {half} {end_y} {end} {end_y}");
            Line { path, middle: (half, (y + end_y) / 2) }
        }
        gap => {
            let (x, end) = (from.x + BOX_WIDTH * 3 / 4, to.x + BOX_WIDTH / 4);
            let (y, end_y) = (from.y, to.y.saturating_sub(short));
            // A Bézier curve rises to three quarters of the height of its handles.
            let handle = y.min(end_y).saturating_sub(rise(gap) * 4 / 3);
            let path = format!("M{x} {y}C{x} {handle} {end} {handle} {end} {end_y}");
            Line { path, middle: ((x + end) / 2, (y + end_y + 6 * handle) / 8) }
        }
    }
}

/// Returns how high a curve over this number of waves rises.
pub(super) fn rise(waves: usize) -> usize {
    12 + 14 * waves.min(8)
}
