//! A grid: who (down) may open something to whom (across).

use super::cell::Fill;
use super::layout::{Grid, MARGIN};
use super::{Chart, escape_xml};
use anyhow::{Result, bail};
use std::borrow::Cow;
use std::io::Write;
use std::ops::Range;

/// With more rows nobody can find a label; namespaces are drawn in place of workloads.
const MOST_ROWS: usize = 400;

const STYLE: &str = "\
.paper{fill:#fff}.ink{fill:#1f2933}.soft{fill:#52606d}.none{fill:#eef1f5}.moot{fill:#d5dbe2}\
.some{fill:#2f6fb2}.all{fill:#c8443c}.depends{fill:#e0a100}.sign{fill:#fff;text-anchor:middle}\
.none+.sign{fill:#8a97a6}.moot+.sign{fill:#8a97a6}.lines{stroke:#fff;fill:none}.edges{stroke:#7b8794;fill:none}\
@media(prefers-color-scheme:dark){.paper{fill:#14181f}.ink{fill:#e4e7eb}.soft{fill:#9aa5b1}.none{fill:#222933}\
.moot{fill:#39434f}.some{fill:#4f93d8}.all{fill:#d9605a}.depends{fill:#d19a1b}.lines{stroke:#14181f}\
.edges{stroke:#6b7785}}";

pub(crate) fn print_svg(out: &mut impl Write, chart: &Chart) -> Result<()> {
    let chart = match chart.rows.len() {
        0..=MOST_ROWS => Cow::Borrowed(chart),
        _ => Cow::Owned(chart.by_namespace()),
    };
    if chart.rows.len() > MOST_ROWS {
        let rows = chart.rows.len();
        bail!(
            "the picture would have {rows} rows, one a namespace, and {MOST_ROWS} can be read. Use --focus NS/WORKLOAD, or -o html"
        );
    }
    draw(out, &chart)
}

fn draw(out: &mut impl Write, chart: &Chart) -> Result<()> {
    let grid = Grid::new(chart);
    let Grid { width, height, font, .. } = grid;
    writeln!(
        out,
        r#"<svg xmlns="http://www.w3.org/2000/svg" width="{width}" height="{height}" viewBox="0 0 {width} {height}" font-family="ui-sans-serif,system-ui,sans-serif" font-size="{font}">"#
    )?;
    writeln!(out, r#"<style>{STYLE}</style><rect class="paper" width="100%" height="100%"/>"#)?;
    let what = if chart.by_namespace { "Who may reach whom, by namespace" } else { "Who may reach whom" };
    let count = chart.workloads;
    writeln!(
        out,
        r#"<text class="ink" x="{MARGIN}" y="{}" font-size="15" font-weight="600">{what}: {count} workloads</text>"#,
        MARGIN + 14
    )?;
    labels(out, chart, &grid)?;
    cells(out, chart, &grid)?;
    lines(out, chart, &grid)?;
    legend(out, chart, &grid)?;
    writeln!(out, "</svg>")?;
    Ok(())
}

fn labels(out: &mut impl Write, chart: &Chart, grid: &Grid) -> Result<()> {
    let middle = grid.cell / 2 + grid.font / 3;
    for row in 0..grid.rows {
        let (label, about) = (escape_xml(&chart.row_label(row)), escape_xml(&chart.about(row)));
        let (x, y) = (grid.left - 8, grid.y(row) + middle);
        writeln!(out, r#"<text class="ink" x="{x}" y="{y}" text-anchor="end">{label}<title>{about}</title></text>"#)?;
    }
    let angle = if grid.is_roomy { -45 } else { -90 };
    for column in 0..grid.columns {
        let (label, about) = (escape_xml(&chart.column_label(column)), escape_xml(&chart.about(column)));
        let (x, y) = (grid.x(column) + middle, grid.top - 8);
        writeln!(
            out,
            r#"<text class="ink" transform="translate({x},{y}) rotate({angle})">{label}<title>{about}</title></text>"#
        )?;
    }
    Ok(())
}

fn cells(out: &mut impl Write, chart: &Chart, grid: &Grid) -> Result<()> {
    for row in 0..grid.rows {
        if grid.is_roomy {
            for column in 0..grid.columns {
                cell(out, chart, grid, &Strip { row, columns: column..column + 1 })?;
            }
            continue;
        }
        // Equal neighbours are one shape: a sign in each would be too small to read.
        let mut first = 0;
        for run in chart.lines[row].runs() {
            cell(out, chart, grid, &Strip { row, columns: first..run.end as usize })?;
            first = run.end as usize;
        }
    }
    Ok(())
}

/// Equal cells of a row that are drawn as one shape.
struct Strip {
    row: usize,
    columns: Range<usize>,
}

fn cell(out: &mut impl Write, chart: &Chart, grid: &Grid, strip: &Strip) -> Result<()> {
    let Strip { row, ref columns } = *strip;
    let cell = chart.cell(row, columns.start);
    let fill = cell.fill();
    let (x, y) = (grid.x(columns.start), grid.y(row));
    let (width, height) = (columns.len() * grid.cell, grid.cell);
    let class = fill.class();
    let to = match columns.len() {
        1 => chart.column_label(columns.start),
        count => format!("{} … {} ({count})", chart.column_label(columns.start), chart.column_label(columns.end - 1)),
    };
    let title = match fill {
        Fill::Moot => String::new(),
        _ => format!("{} → {to}: {cell}\n{}", chart.row_label(row), cell.details.join("\n")),
    };
    let title = escape_xml(title.trim_end());
    // What part of the pairs is as the colour says, for namespaces.
    let share = match (cell.pairs, fill) {
        (Some(pairs), Fill::Some) => 35 + 65 * pairs.open / pairs.all.max(1),
        (Some(pairs), Fill::Depends) => 35 + 65 * pairs.depends / pairs.all.max(1),
        _ => 100,
    };
    let opacity = if share < 100 { format!(r#" fill-opacity=".{share:02}""#) } else { String::new() };
    write!(out, r#"<rect class="{class}" x="{x}" y="{y}" width="{width}" height="{height}"{opacity}>"#)?;
    writeln!(out, "{}</rect>", if title.is_empty() { String::new() } else { format!("<title>{title}</title>") })?;
    if grid.is_roomy && fill != Fill::Moot {
        let (x, y) = (x + grid.cell / 2, y + grid.cell / 2 + grid.font / 3);
        let star = if cell.own_node { "*" } else { "" };
        writeln!(
            out,
            r#"<text class="sign" x="{x}" y="{y}" pointer-events="none">{}{star}</text>"#,
            cell.sign().text()
        )?;
    }
    Ok(())
}

/// Thin lines between cells, and darker ones between namespaces.
fn lines(out: &mut impl Write, chart: &Chart, grid: &Grid) -> Result<()> {
    let (right, bottom) = (grid.x(grid.columns), grid.y(grid.rows));
    let mut thin = String::new();
    let mut dark = String::new();
    for row in 1..grid.rows {
        let path = if chart.is_same_space(row - 1, row) || chart.by_namespace { &mut thin } else { &mut dark };
        *path += &format!("M{} {}H{right}", grid.left, grid.y(row));
    }
    for column in 1..grid.columns {
        let ends_rows = column >= chart.rows.len() && !chart.is_same_space(column - 1, column);
        let is_thin = chart.is_same_space(column - 1, column) || (chart.by_namespace && !ends_rows);
        let path = if is_thin { &mut thin } else { &mut dark };
        *path += &format!("M{} {}V{bottom}", grid.x(column), grid.top);
    }
    writeln!(out, r#"<path class="lines" stroke-width="1.5" d="{thin}"/><path class="edges" d="{dark}"/>"#)?;
    Ok(())
}

fn legend(out: &mut impl Write, chart: &Chart, grid: &Grid) -> Result<()> {
    let y = grid.y(grid.rows) + 18;
    let mut x = MARGIN;
    let some = if chart.by_namespace { "+ some, the fuller the more pairs" } else { "+ some ports or addresses" };
    for (class, text) in
        [("all", "+ everything"), ("some", some), ("depends", "? depends"), ("none", "· nothing"), ("moot", "itself")]
    {
        writeln!(out, r#"<rect class="{class}" x="{x}" y="{y}" width="14" height="14" rx="3"/>"#)?;
        writeln!(out, r#"<text class="soft" x="{}" y="{}" font-size="12">{text}</text>"#, x + 20, y + 12)?;
        x += 40 + text.chars().count() * 7;
    }
    let mut notes = vec!["A row opens connections to a column.".to_owned()];
    if chart.cells.iter().any(|cell| cell.own_node) {
        notes.push("* everything on its own node.".to_owned());
    }
    if chart.by_namespace {
        notes.push("-o html shows workloads, --focus NS/WORKLOAD one of them.".to_owned());
    }
    let notes = escape_xml(&notes.join(" "));
    writeln!(out, r#"<text class="soft" x="{MARGIN}" y="{}" font-size="12">{notes}</text>"#, y + 36)?;
    Ok(())
}
