//! `log`: a line a question, as CoreDNS writes it.

use super::message::{Message, is_under};
use crate::corefile::{self, Class, Zone};
use crate::{Fact, Facts, Value};
use std::net::IpAddr;
use std::time::Duration;

const COMMON: &str = "{remote}:{port} - {>id} \"{type} {class} {name} {proto} {size} {>do} {>bufsize}\" {rcode} {>rflags} {rsize} {duration}";

#[derive(Debug)]
pub(super) struct Log {
    zones: Vec<Zone>,
    classes: Vec<Class>,
    pieces: Vec<Piece>,
}

#[derive(Debug)]
enum Piece {
    Text(String),
    Fact(Fact),
    /// An address, in brackets if it has colons.
    Address(Fact),
    Duration,
}

impl Log {
    pub(super) fn new(settings: &corefile::Log) -> Self {
        let format = settings.format.as_ref().map_or("{common}", |format| &*format.text);
        let format = format.replace("{common}", COMMON).replace("{combined}", &format!("{COMMON} \"-\""));
        Self { zones: settings.zones.clone(), classes: settings.classes.clone(), pieces: pieces(&format) }
    }

    /// The line, if it is to be written.
    pub(super) fn line(&self, message: &Message<'_>, took: Duration) -> Option<String> {
        let is_meant = self.zones.is_empty() || self.zones.iter().any(|zone| is_under(&message.question.name, zone));
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
        for piece in &self.pieces {
            match piece {
                Piece::Text(text) => line.push_str(text),
                Piece::Duration => line.push_str(&format!("{:.9}s", took.as_secs_f64())),
                Piece::Address(fact) => match message.get(fact) {
                    Value::Address(IpAddr::V6(address)) => line.push_str(&format!("[{address}]")),
                    other => line.push_str(&other.to_string()),
                },
                Piece::Fact(fact) => {
                    let value = message.get(fact).to_string();
                    line.push_str(if value.is_empty() { "-" } else { &value });
                }
            }
        }
        Some(line)
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
            // `{/label}` is a label.
            name => Piece::Fact(Fact::named(name.strip_prefix('/').unwrap_or(name))),
        });
        rest = behind;
    }
    pieces.push(Piece::Text(rest.to_owned()));
    pieces
}
