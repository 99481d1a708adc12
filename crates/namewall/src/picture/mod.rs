//! Pictures of a matrix: a graph for Graphviz, a grid as SVG, a page to explore.
//!
//! [`Chart`] is what they show. It is made without I/O and says nothing of how
//! it is drawn; `layout` has the positions. The writers only write.

mod cell;
mod chart;
mod dot;
mod html;
mod layout;
mod svg;

pub(crate) use cell::Cell;
pub(crate) use chart::{Cells, Chart, Line, Row, spans};
pub(crate) use dot::print_dot;
pub(crate) use html::print_html;
pub(crate) use svg::print_svg;

/// Text for XML and HTML, in content and in attributes.
pub(crate) fn escape_xml(text: &str) -> String {
    let mut escaped = String::with_capacity(text.len());
    for c in text.chars() {
        match c {
            '&' => escaped.push_str("&amp;"),
            '<' => escaped.push_str("&lt;"),
            '>' => escaped.push_str("&gt;"),
            '"' => escaped.push_str("&quot;"),
            '\'' => escaped.push_str("&#39;"),
            // XML has no other control characters.
            c if c.is_control() && !matches!(c, '\n' | '\t') => escaped.push('\u{fffd}'),
            c => escaped.push(c),
        }
    }
    escaped
}
