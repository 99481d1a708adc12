//! A page that stands alone: it asks for nothing, and opens from a file. It
//! carries the chart as data and draws the cells that are in sight.

use super::Chart;
use super::chart::Line;
use anyhow::Result;
use rustc_hash::FxHashMap;
use serde_json::{Value, json};
use std::io::Write;

const PAGE: &str = include_str!("page.html");
const STYLE: &str = include_str!("page.css");
const MODEL: &str = include_str!("model.js");
const GRID: &str = include_str!("grid.js");

pub(crate) fn print_html(out: &mut impl Write, chart: &Chart) -> Result<()> {
    // A `<` in data could end the script.
    let data = data(chart).to_string().replace('<', "\\u003c");
    for (at, part) in PAGE.split("@@").enumerate() {
        let text = match part {
            "STYLE" => STYLE,
            "DATA" => &data,
            "MODEL" => MODEL,
            "GRID" => GRID,
            part => {
                debug_assert!(at % 2 == 0, "{part} is no part of the page");
                part
            }
        };
        out.write_all(text.as_bytes())?;
    }
    Ok(())
}

fn data(chart: &Chart) -> Value {
    let rows: Vec<Value> = chart.rows.iter().map(|row| json!([row.name, row.kind, row.pods])).collect();
    let spaces: Vec<Value> = chart.namespaces.iter().map(|span| json!([span.name, span.first, span.count])).collect();
    let cells: Vec<Value> = chart
        .cells
        .iter()
        .map(|cell| json!([cell.fill().class(), cell.to_string(), cell.own_node, cell.details]))
        .collect();
    // Many rows have the same line; each is there once.
    let mut known: FxHashMap<&Line, usize> = FxHashMap::default();
    let mut lines: Vec<String> = Vec::new();
    let line_of: Vec<usize> = chart
        .lines
        .iter()
        .map(|line| {
            *known.entry(line).or_insert_with(|| {
                lines.push(encoded(line));
                lines.len() - 1
            })
        })
        .collect();
    json!({ "rows": rows, "spaces": spaces, "names": chart.names, "cells": cells, "lines": lines, "lineOf": line_of })
}

/// `CELL*COUNT` a run, separated by spaces; the count is left out where it is 1.
fn encoded(line: &Line) -> String {
    let mut text = String::new();
    let mut first = 0;
    for run in line.runs() {
        if !text.is_empty() {
            text.push(' ');
        }
        text += &run.cell.to_string();
        let count = run.end - first;
        if count > 1 {
            text += &format!("*{count}");
        }
        first = run.end;
    }
    text
}
