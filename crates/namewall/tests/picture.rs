//! The README's picture is what `explain` prints, colours and all. Made anew
//! with `UPDATE_EXPECT=1 cargo test -p namewall --test picture`.

use expect_test::expect_file;
use std::fmt::Write;
use std::process::Command;

const COMMAND: &str =
    "explain --from shop/api --to 198.51.100.7:80 --dns api.payments.example=198.51.100.7 examples/shop";
const LINE: usize = 19;
const CHARACTER: f64 = 8.05;

#[test]
fn the_picture_in_the_readme_is_true() {
    let output = Command::new(env!("CARGO_BIN_EXE_namewall"))
        .args(COMMAND.split(' '))
        .env("CLICOLOR_FORCE", "1")
        .current_dir(concat!(env!("CARGO_MANIFEST_DIR"), "/../.."))
        .output()
        .expect("it runs");
    let text = String::from_utf8(output.stdout).expect("it prints text");
    expect_file!["../../../docs/explain.svg"].assert_eq(&svg(&text));
}

/// A terminal's text as SVG.
fn svg(text: &str) -> String {
    let prompt = format!("\u{1b}[1m$\u{1b}[0m namewall {COMMAND}");
    let lines: Vec<&str> = std::iter::once(prompt.as_str()).chain(text.lines()).collect();
    let longest = lines.iter().map(|line| visible(line)).max().unwrap_or(0);
    let (width, height) = ((longest as f64 * CHARACTER) as usize + 40, lines.len() * LINE + 40);
    let mut svg = format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"{width}\" height=\"{height}\" viewBox=\"0 0 {width} {height}\">\n\
         <rect width=\"100%\" height=\"100%\" rx=\"10\" fill=\"#1b1f27\"/>\n\
         <g font-family=\"ui-monospace,SFMono-Regular,Menlo,Consolas,monospace\" font-size=\"13.4\" fill=\"#d5dae3\" xml:space=\"preserve\">\n"
    );
    for (at, line) in lines.iter().enumerate() {
        let spans = spans(line);
        if !spans.is_empty() {
            writeln!(svg, "<text x=\"20\" y=\"{}\">{spans}</text>", 34 + at * LINE).expect("a string takes all");
        }
    }
    svg + "</g>\n</svg>\n"
}

fn visible(line: &str) -> usize {
    pieces(line).iter().map(|(_, text)| text.chars().count()).sum()
}

/// Text with the escape codes in force before it.
fn pieces(line: &str) -> Vec<(Vec<&str>, &str)> {
    let mut pieces = Vec::new();
    let mut codes: Vec<&str> = Vec::new();
    for (at, part) in line.split("\u{1b}[").enumerate() {
        let text = match part.split_once('m') {
            Some((code, text)) if at > 0 => {
                if code == "0" {
                    codes.clear()
                } else {
                    codes.push(code)
                }
                text
            }
            _ => part,
        };
        if !text.is_empty() {
            pieces.push((codes.clone(), text));
        }
    }
    pieces
}

fn spans(line: &str) -> String {
    let mut spans = String::new();
    for (codes, text) in pieces(line) {
        let mut style = String::new();
        for code in codes.iter().flat_map(|code| code.split(';')) {
            style += match code {
                "1" => "font-weight:bold;",
                "2" => "fill:#8a93a3;",
                "31" => "fill:#ff6b68;",
                "32" => "fill:#7bd88f;",
                "33" => "fill:#f5c451;",
                _ => "",
            };
        }
        let text = text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;");
        write!(spans, "<tspan style=\"{style}\">{text}</tspan>").expect("a string takes all");
    }
    spans
}
