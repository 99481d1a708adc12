//! A service asked as the DNS server asks it, without sockets: what has to be waited for is waited for.

use super::fake::Engines;
use super::message::{Ask, answer, shown};
use super::told::LoggedText;
use namewall_corefile::read;
use namewall_dns::{Chain, Continuation, Heard, Passing, Route, Step, To, Transport};
use namewall_dns_firewall::{Built, Disk, Identities, Service, Strangers, Surroundings, build_with};
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use std::time::Instant;

/// A machine with a loopback interface and another.
pub(crate) fn around(told: &LoggedText) -> Surroundings {
    let address = |name: &str, address: &str| (name.to_owned(), address.parse::<IpAddr>().unwrap());
    Surroundings {
        teller: told.teller(),
        identities: Arc::new(Strangers),
        addresses: vec![address("lo", "127.0.0.1"), address("lo", "::1"), address("eth0", "192.0.2.1")],
        names: None,
        clusters: None,
    }
}

/// What serves a Corefile, or why none does.
pub(crate) fn built(text: &str, around: &Surroundings, engines: &Engines) -> Result<Built, String> {
    let corefile = read("Corefile", text, &Disk, &|_| None).map_err(|errors| errors.to_string())?;
    build_with(&corefile, around, &|settings| engines.get(settings)).map_err(|errors| {
        let lines: Vec<String> = errors.iter().map(ToString::to_string).collect();
        lines.join("\n")
    })
}

/// Why a Corefile is not served.
pub(crate) fn refused(text: &str) -> String {
    let why = built(text, &around(&LoggedText::default()), &Engines::none()).map(|_| "it is served".to_owned());
    why.unwrap_or_else(|why| why)
}

pub(crate) struct Firewall {
    pub(crate) service: Service,
    pub(crate) routes: Vec<Route>,
    pub(crate) listen: Vec<SocketAddr>,
    pub(crate) warnings: Vec<String>,
    pub(crate) told: LoggedText,
}

impl Firewall {
    pub(crate) fn new(text: &str) -> Self {
        Self::with(text, &Engines::none(), Arc::new(Strangers))
    }

    pub(crate) fn with_engines(text: &str, engines: &Engines) -> Self {
        Self::with(text, engines, Arc::new(Strangers))
    }

    pub(crate) fn with(text: &str, engines: &Engines, identities: Arc<dyn Identities>) -> Self {
        let told = LoggedText::default();
        let around = Surroundings { identities, ..around(&told) };
        let Built { service, routes, listen, warnings, .. } =
            built(text, &around, engines).unwrap_or_else(|why| panic!("{why}"));
        Self { service, routes, listen, warnings, told }
    }

    fn step(&self, ask: &Ask) -> Step {
        let mut step = self.service.query(&ask.asked());
        while let Step::Later(judge) | Step::LaterOn(_, judge) = step {
            step = judge();
        }
        step
    }

    /// What becomes of a question: who is asked, or what its client gets.
    pub(crate) fn ask(&self, question: &str) -> String {
        match self.step(&question.into()) {
            Step::Forward(To::Route(route), _) => format!("route {route}"),
            Step::Forward(To::Server(server), _) => format!("asked of {server}"),
            Step::Reply(reply) => shown(&reply),
            Step::Answer(answer) => format!("answer {}", shown(&answer)),
            Step::Renew(answer, ..) => format!("renewed answer {}", shown(&answer)),
            Step::Silence => "silence".to_owned(),
            Step::Later(_) | Step::LaterOn(..) => "later".to_owned(),
        }
    }

    /// The same with the upstream's answer, if one is asked.
    pub(crate) fn exchange(&self, question: &str, lines: &[&str]) -> String {
        let ask = Ask::from(question);
        self.exchange_bytes(&ask, &answer(&ask.query, lines))
    }

    pub(crate) fn exchange_bytes(&self, ask: &Ask, answer: &[u8]) -> String {
        match self.step(ask) {
            Step::Forward(_, continuation) => passing(continuation, answer),
            Step::Reply(reply) => shown(&reply),
            Step::Answer(answer) => format!("answer {}", shown(&answer)),
            Step::Renew(answer, ..) => format!("renewed answer {}", shown(&answer)),
            Step::Silence => "silence".to_owned(),
            Step::Later(_) | Step::LaterOn(..) => "later".to_owned(),
        }
    }
}

/// What becomes of an upstream's answer.
fn passing(continuation: Box<dyn Continuation>, answer: &[u8]) -> String {
    let upstream = SocketAddr::from(([192, 0, 2, 53], 53));
    let mut passing =
        continuation.answer(&Heard { upstream, since: Instant::now(), transport: Transport::Udp, answer });
    while let Passing::Later(judge) | Passing::LaterOn(_, judge) = passing {
        passing = judge();
    }
    match passing {
        Passing::Pass => "pass".to_owned(),
        Passing::Instead(reply) => shown(&reply),
        Passing::Answer(answer) => format!("answer {}", shown(&answer)),
        Passing::Forward(To::Route(route), _) => format!("route {route}"),
        Passing::Forward(To::Server(server), _) => format!("asked of {server}"),
        Passing::Silence => "silence".to_owned(),
        Passing::Later(_) | Passing::LaterOn(..) => "later".to_owned(),
    }
}

/// Asks a Corefile questions, each with what should become of it.
pub(crate) fn check(corefile: &str, expected: &[(&str, &str)]) {
    let firewall = Firewall::new(corefile);
    for (question, becomes) in expected {
        assert_eq!(firewall.ask(question), *becomes, "{question}\n{corefile}");
    }
}
