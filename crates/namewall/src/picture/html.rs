//! A page that stands alone: the grid, and a table that can be searched.

use super::{Fill, Picture, escape_xml, print_svg};
use anyhow::Result;
use std::io::Write;

const HEAD: &str = r##"<!doctype html>
<html lang="en"><head><meta charset="utf-8"><meta name="viewport" content="width=device-width,initial-scale=1">
<title>namewall: who may reach whom</title>
<style>
body{font:15px/1.5 system-ui,sans-serif;margin:2rem auto;max-width:1100px;padding:0 1rem;color:#1f2933}
h1{font-size:1.4rem}.grid{overflow:auto;border:1px solid #e4e7eb;border-radius:8px}
input{font:inherit;padding:.4rem .7rem;width:24rem;max-width:100%;border:1px solid #9aa5b1;border-radius:6px;margin:1rem 0}
table{border-collapse:collapse;width:100%}th,td{text-align:left;padding:.35rem .6rem;border-bottom:1px solid #e4e7eb;vertical-align:top}
th{position:sticky;top:0;background:#fff}code{font-size:.92em}.all{color:#b03a36;font-weight:600}
</style></head><body>
<h1>Who may reach whom</h1>
<p>Each row may open what its cell shows to the column. Hover over a cell for the ports.</p>
<div class="grid">
"##;

const TABLE: &str = r##"</div>
<label>Search: <input id="q" placeholder="shop/web, 443, outside …" autocomplete="off"></label>
<table><thead><tr><th>from</th><th>to</th><th>open</th></tr></thead><tbody id="t">
"##;

const TAIL: &str = r##"</tbody></table>
<script>
const q=document.getElementById('q'),rows=[...document.querySelectorAll('#t tr')];
q.addEventListener('input',()=>{const words=q.value.toLowerCase().split(/\s+/).filter(Boolean);
for(const r of rows){const text=r.textContent.toLowerCase();r.hidden=!words.every(w=>text.includes(w));}});
</script></body></html>
"##;

pub(crate) fn print_html(out: &mut impl Write, picture: &Picture) -> Result<()> {
    out.write_all(HEAD.as_bytes())?;
    print_svg(out, picture)?;
    out.write_all(TABLE.as_bytes())?;
    for (from, cells) in picture.cells.iter().enumerate() {
        for (to, cell) in cells.iter().enumerate() {
            if cell.traffic.is_none() || (from == to && picture.rows[from].is_single_pod()) {
                continue;
            }
            let class = if cell.fill() == Fill::Everything { " class=\"all\"" } else { "" };
            writeln!(
                out,
                "<tr><td><code>{}</code></td><td><code>{}</code></td><td{class}>{}</td></tr>",
                escape_xml(&picture.rows[from].label()),
                escape_xml(&picture.rows[to].label()),
                escape_xml(&cell.to_string())
            )?;
        }
    }
    out.write_all(TAIL.as_bytes())?;
    Ok(())
}
