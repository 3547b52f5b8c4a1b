//! Pictures of plans and executions: Graphviz, self-contained SVG, and inline SVG for a page.

mod dot;
mod drawing;
mod figure;
mod gantt;
mod labels;
mod layout;
mod lines;
mod svg;

pub use dot::dot;
pub use figure::{Figure, Mark};
pub use gantt::{Bar, Chart, gantt};
pub use labels::Labels;
pub use svg::svg;
