//! Plans as pictures: for Graphviz, and as SVG that needs nothing else.

mod dot;
mod layout;
mod svg;

pub use dot::dot;
pub use svg::svg;
