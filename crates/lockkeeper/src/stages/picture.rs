//! Plans and executions as pictures: for Graphviz, and as SVG that needs nothing else.

mod dot;
mod gantt;
mod layout;
mod lines;
mod svg;

pub use dot::dot;
pub use gantt::{Bar, gantt};
pub use svg::svg;
