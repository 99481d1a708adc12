//! `dns64 [PREFIX] { … }`: IPv6 addresses for names that have only IPv4 addresses (RFC 6147).

use crate::form::{Form, Words, once};
use crate::lexer::Token;
use crate::parse::Line;
use crate::problem::Report;
use namewall_policy::addr::Cidr;
use std::net::{IpAddr, Ipv6Addr};

pub(crate) const DNS64: Form = once("dns64", "[PREFIX] { … }", 0, 1);

/// An option of `dns64`.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Dns64Option {
    Prefix,
    TranslateAll,
    AllowIpv4,
}

const OPTIONS: Words<Dns64Option> = Words {
    served: &[
        (Dns64Option::Prefix, once("prefix", "PREFIX", 1, 1)),
        (Dns64Option::TranslateAll, once("translate_all", "", 0, 0)),
        (Dns64Option::AllowIpv4, once("allow_ipv4", "", 0, 0)),
    ],
    not_served: &[],
};

#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Dns64 {
    pub prefix: Cidr,
    /// Also names that have IPv6 addresses.
    pub translates_all: bool,
    /// Also for clients of IPv4.
    pub for_ipv4: bool,
}

pub(crate) fn read(line: &Line, report: &mut Report) -> Dns64 {
    let well_known = Cidr::new(IpAddr::V6(Ipv6Addr::new(0x64, 0xff9b, 0, 0, 0, 0, 0, 0)), 96);
    let mut dns64 = Dns64 { prefix: well_known, translates_all: false, for_ipv4: false };
    let mut prefix = |word: &Token, report: &mut Report| dns64.prefix = read_prefix(word, report).unwrap_or(well_known);
    if let Some(word) = line.args.first() {
        prefix(word, report);
    }
    for (option, line) in report.options(line, &OPTIONS) {
        match option {
            Dns64Option::Prefix => dns64.prefix = read_prefix(&line.args[0], report).unwrap_or(well_known),
            Dns64Option::TranslateAll => dns64.translates_all = true,
            Dns64Option::AllowIpv4 => dns64.for_ipv4 = true,
        }
    }
    dns64
}

fn read_prefix(word: &Token, report: &mut Report) -> Option<Cidr> {
    let read = word.text.parse::<Cidr>().ok();
    let fits = |cidr: &Cidr| cidr.address().is_ipv6() && matches!(cidr.prefix(), 32 | 40 | 48 | 56 | 64 | 96);
    let fitting = read.filter(fits);
    if fitting.is_none() {
        report
            .error("bad-word", &word.place, format!("`{}` is no prefix for IPv4 addresses (RFC 6052)", word.text))
            .help("write an IPv6 prefix of 32, 40, 48, 56, 64 or 96 bits, like `64:ff9b::/96`");
    }
    fitting
}
