//! A grid: who (down) may open something to whom (across).

use super::{Fill, Picture, escape_xml};
use anyhow::Result;
use std::io::Write;

const CELL: usize = 22;
const MARGIN: usize = 14;
/// Pixels a character of a label takes, near enough.
const CHARACTER: usize = 7;

pub(crate) fn print_svg(out: &mut impl Write, picture: &Picture) -> Result<()> {
    let labels: Vec<String> = picture.rows.iter().map(super::Row::label).collect();
    let longest = labels.iter().map(|label| label.chars().count()).max().unwrap_or(0) * CHARACTER;
    let count = labels.len();
    let left = MARGIN + longest + 10;
    // Labels across lean at 45 degrees.
    let top = MARGIN + longest * 7 / 10 + 24;
    let width = (left + count * CELL + longest * 7 / 10 + MARGIN).max(520);
    let height = top + count * CELL + 64;
    writeln!(
        out,
        r##"<svg xmlns="http://www.w3.org/2000/svg" width="{width}" height="{height}" viewBox="0 0 {width} {height}" font-family="ui-sans-serif,system-ui,sans-serif" font-size="12">"##
    )?;
    writeln!(out, r##"<rect width="100%" height="100%" fill="#ffffff"/>"##)?;
    for (at, label) in labels.iter().enumerate() {
        let (label, kind) = (escape_xml(label), escape_xml(&picture.rows[at].kind));
        let y = top + at * CELL + CELL / 2 + 4;
        writeln!(
            out,
            r##"<text x="{}" y="{y}" text-anchor="end" fill="#1f2933">{label}<title>{kind}</title></text>"##,
            left - 8
        )?;
        let x = left + at * CELL + CELL / 2 + 4;
        writeln!(
            out,
            r##"<text transform="translate({x},{}) rotate(-45)" fill="#1f2933">{label}<title>{kind}</title></text>"##,
            top - 8
        )?;
    }
    for (from, cells) in picture.cells.iter().enumerate() {
        for (to, cell) in cells.iter().enumerate() {
            let own = from == to && picture.rows[from].is_single_pod();
            let colour = match cell.fill() {
                _ if own => "#e4e7eb",
                Fill::Nothing => "#f5f7fa",
                Fill::Some => "#2f80c2",
                Fill::Everything => "#d9534f",
            };
            let (x, y, side) = (left + to * CELL + 1, top + from * CELL + 1, CELL - 2);
            let title = escape_xml(&format!("{} → {}: {cell}", labels[from], labels[to]));
            writeln!(
                out,
                r##"<rect x="{x}" y="{y}" width="{side}" height="{side}" rx="3" fill="{colour}"><title>{title}</title></rect>"##
            )?;
        }
        // A line between namespaces.
        let next = picture.rows.get(from + 1).map(|row| &row.namespace);
        if next.is_some_and(|next| *next != picture.rows[from].namespace) {
            let (y, x) = (top + (from + 1) * CELL, left + (from + 1) * CELL);
            let (right, bottom) = (left + count * CELL, top + count * CELL);
            writeln!(out, r##"<path d="M{left} {y}H{right}M{x} {top}V{bottom}" stroke="#9aa5b1" stroke-width="1"/>"##)?;
        }
    }
    let y = top + count * CELL + 26;
    let mut x = MARGIN;
    for (colour, text) in [
        ("#d9534f", "everything"),
        ("#2f80c2", "some ports or addresses"),
        ("#f5f7fa", "nothing"),
        ("#e4e7eb", "itself"),
    ] {
        writeln!(out, r##"<rect x="{x}" y="{}" width="14" height="14" rx="3" fill="{colour}" stroke="#cbd2d9"/>"##, y)?;
        writeln!(out, r##"<text x="{}" y="{}" fill="#52606d">{text}</text>"##, x + 20, y + 12)?;
        x += 34 + text.len() * CHARACTER;
    }
    writeln!(out, r##"<text x="{x}" y="{}" fill="#52606d">row opens to column</text>"##, y + 12)?;
    writeln!(out, "</svg>")?;
    Ok(())
}
