//! `log`: a line a question, as CoreDNS writes it. Its formats are dnstap's, too.

use crate::message::{Message, is_under};
use crate::report::Report;
use namewall_corefile::{self as corefile, Class, Zone};
use namewall_expression::{Fact, Facts, Value};
use std::net::IpAddr;

const COMMON: &str = "{remote}:{port} - {>id} \"{type} {class} {name} {proto} {size} {>do} {>bufsize}\" {rcode} {>rflags} {rsize} {duration}";

#[derive(Debug)]
pub(crate) struct Log {
    zones: Vec<Zone>,
    classes: Vec<Class>,
    format: Format,
}

/// Text with `{type}` and the like in it.
#[derive(Debug)]
pub(crate) struct Format(Vec<Piece>);

#[derive(Debug)]
enum Piece {
    Text(String),
    Fact(Fact),
    /// An address, in brackets if it has colons.
    Address(Fact),
    Duration,
    /// What the rules said.
    Decision,
    /// The rule that said so.
    Rule,
}

impl Log {
    pub(crate) fn new(settings: &corefile::Log) -> Self {
        let format = settings.format.as_ref().map_or("{common}", |format| &*format.text);
        Self { zones: settings.zones.clone(), classes: settings.classes.clone(), format: Format::new(format) }
    }

    /// The line, if it is to be written.
    pub(crate) fn line(&self, report: &Report<'_>, message: &Message<'_>) -> Option<String> {
        let is_meant =
            self.zones.is_empty() || self.zones.iter().any(|zone| is_under(&message.exchange.question.name, zone));
        let rcode = message.get(&Fact::Rcode).to_string();
        let of_class = |class: &Class| match class {
            Class::All => true,
            Class::Success => rcode == "NOERROR" && !message.is_without_data(),
            // That there is nothing of the kind is one, too.
            Class::Denial => rcode == "NXDOMAIN" || rcode == "NOERROR" && message.is_without_data(),
            Class::Error => !matches!(&*rcode, "NOERROR" | "NXDOMAIN"),
        };
        if !is_meant || !(self.classes.is_empty() || self.classes.iter().any(of_class)) {
            return None;
        }
        let mut line = String::from("[INFO] ");
        self.format.write(&mut line, report, message);
        Some(line)
    }
}

impl Format {
    pub(crate) fn new(text: &str) -> Self {
        let text = text.replace("{common}", COMMON).replace("{combined}", &format!("{COMMON} \"-\""));
        Self(pieces(&text))
    }

    /// Whether it tells what clients asked before.
    pub(crate) fn is_of_client_history(&self) -> bool {
        self.0.iter().any(|piece| matches!(piece, Piece::Fact(fact) if fact.is_of_client_history()))
    }

    pub(crate) fn write(&self, to: &mut String, report: &Report<'_>, message: &Message<'_>) {
        let mut push = |value: &str| to.push_str(if value.is_empty() { "-" } else { value });
        for piece in &self.0 {
            match piece {
                Piece::Text(text) if text.is_empty() => {}
                Piece::Text(text) => push(text),
                Piece::Duration => push(&format!("{:.9}s", report.exchange.begun.elapsed().as_secs_f64())),
                Piece::Fact(fact) => push(&message.get(fact).to_string()),
                Piece::Address(fact) => match message.get(fact) {
                    Value::Address(IpAddr::V6(address)) => push(&format!("[{address}]")),
                    other => push(&other.to_string()),
                },
                Piece::Decision => push(report.ruling().map_or("", |ruling| ruling.outcome)),
                Piece::Rule => push(&report.ruling().map_or_else(String::new, |ruling| ruling.label())),
            }
        }
    }
}

fn pieces(format: &str) -> Vec<Piece> {
    let mut pieces = Vec::new();
    let mut rest = format;
    while let Some((before, after)) = rest.split_once('{') {
        let Some((name, behind)) = after.split_once('}') else { break };
        pieces.push(Piece::Text(before.to_owned()));
        pieces.push(match name {
            "duration" => Piece::Duration,
            "remote" => Piece::Address(Fact::ClientIp),
            "local" => Piece::Address(Fact::ServerIp),
            "/firewall/decision" => Piece::Decision,
            "/firewall/rule" => Piece::Rule,
            // `{/label}` is a label.
            name => Piece::Fact(Fact::named(name.strip_prefix('/').unwrap_or(name))),
        });
        rest = behind;
    }
    pieces.push(Piece::Text(rest.to_owned()));
    pieces
}
