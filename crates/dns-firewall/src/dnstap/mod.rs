//! `dnstap`: messages as they came and went, to whoever collects them.
//!
//! ```text
//!  DNS loop ── encode ──► queue ──► a thread ── frames ──► socket
//!                  full: counted, and left out     gone: again, after a while
//! ```
//! `encode` has dnstap's protobuf, `frames` the protocol it is carried by, `stream` the sockets, `tap` the
//! queue and its thread.

mod encode;
mod frames;
mod stream;
mod tap;

pub(super) use tap::Taps;

use super::log::Format;
use super::message::Message;
use super::report::Report;
use encode::{Event, Kind};
use namewall_corefile as corefile;
use namewall_dns::{Asked, Heard};
use std::fmt::Write;
use std::sync::Arc;
use std::time::{Instant, SystemTime};
use stream::Target;
use tap::Tap;

/// More than this is not put beside a message: readers take 96 KiB for a frame, of which a message may be 64.
const MOST_EXTRA: usize = 4_096;

/// What a block tells a tap.
#[derive(Debug)]
pub(super) struct Tapping {
    tap: Arc<Tap>,
    /// Whether messages are told whole.
    full: bool,
    identity: Vec<u8>,
    version: Vec<u8>,
    extra: Option<Format>,
}

impl Tapping {
    /// Nothing is opened before there is something to tell.
    pub(super) fn new(settings: &corefile::Dnstap, taps: &Taps) -> Result<Self, String> {
        let to = Target::new(settings).map_err(|error| format!("dnstap: {error}"))?;
        let identity = settings.identity.as_deref().map_or_else(host_name, str::to_owned);
        let own = concat!("namewall-", env!("CARGO_PKG_VERSION"));
        Ok(Self {
            tap: taps.open(to),
            full: settings.full,
            identity: identity.into_bytes(),
            version: settings.version.as_deref().unwrap_or(own).as_bytes().to_vec(),
            extra: settings.extra.as_ref().map(|format| Format::new(&format.text)),
        })
    }

    /// A question came in, and was judged.
    pub(super) fn asked(&self, report: &Report<'_>, message: &Message<'_>) {
        let asked = report.exchange.asked();
        let event = Event {
            query_message: self.whole(asked.query),
            ..Event::of_client(Kind::ClientQuery, &asked, asked_at(report))
        };
        self.send(&event, &self.extra(report, message));
    }

    /// Its client gets a reply.
    pub(super) fn answered(&self, report: &Report<'_>, reply: &[u8], message: &Message<'_>) {
        let event = Event {
            response_time: Some(SystemTime::now()),
            response_message: self.whole(reply),
            ..Event::of_client(Kind::ClientResponse, &report.exchange.asked(), asked_at(report))
        };
        self.send(&event, &self.extra(report, message));
    }

    /// An upstream was asked and has answered. Both are told now, as CoreDNS does.
    pub(super) fn forwarded(&self, asked: &Asked<'_>, heard: &Heard<'_>) {
        let since = clock(heard.since);
        let event = |kind| Event {
            server: heard.upstream,
            transport: heard.transport,
            is_v6: heard.upstream.is_ipv6(),
            ..Event::of_client(kind, asked, since)
        };
        self.send(&Event { query_message: self.whole(asked.query), ..event(Kind::ForwarderQuery) }, "");
        let response = Event {
            response_time: Some(SystemTime::now()),
            response_message: self.whole(heard.answer),
            ..event(Kind::ForwarderResponse)
        };
        self.send(&response, "");
    }

    fn whole<'m>(&self, message: &'m [u8]) -> Option<&'m [u8]> {
        self.full.then_some(message)
    }

    fn send(&self, event: &Event<'_>, extra: &str) {
        self.tap.send(encode::encode(event, [&self.identity, &self.version, extra.as_bytes()]));
    }

    /// What is configured, then what the firewall says, then what its engines say besides.
    fn extra(&self, report: &Report<'_>, message: &Message<'_>) -> String {
        let mut extra = String::new();
        if let Some(format) = &self.extra {
            format.write(&mut extra, report, message);
        }
        let mut push = |name: &str, value: &str| {
            let gap = if extra.is_empty() { "" } else { " " };
            // Quotes where a value could be taken for two.
            let is_plain = !value.is_empty() && !value.contains(|c: char| c.is_whitespace() || c == '"');
            let _ =
                if is_plain { write!(extra, "{gap}{name}={value}") } else { write!(extra, "{gap}{name}={value:?}") };
        };
        if let Some(ruling) = report.ruling() {
            push("decision", ruling.outcome);
            push("rule", &ruling.label());
        }
        report.labels.iter().for_each(|(name, value)| push(name, value));
        let most = (0..=MOST_EXTRA.min(extra.len())).rev().find(|at| extra.is_char_boundary(*at));
        extra.truncate(most.unwrap_or(0));
        extra
    }
}

fn asked_at(report: &Report<'_>) -> SystemTime {
    report.exchange.asked_at.unwrap_or_else(|| clock(report.exchange.begun))
}

/// The clock's time of a moment that was.
pub(super) fn clock(moment: Instant) -> SystemTime {
    let now = SystemTime::now();
    now.checked_sub(moment.elapsed()).unwrap_or(now)
}

/// This machine's name, as CoreDNS has it for its identity.
fn host_name() -> String {
    let read = std::fs::read_to_string("/proc/sys/kernel/hostname").unwrap_or_default();
    read.trim_end().to_owned()
}
