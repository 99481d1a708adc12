//! `rewrite edns0 …`: options of EDNS0 that a query gets, changes or loses on its way to upstreams.

use super::super::edns0::read_code;
use crate::lexer::Token;
use crate::problem::Report;
use std::sync::Arc;

const NSID: u16 = 3;
const SUBNET: u16 = 8;

/// A change of the EDNS0 options of a query.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct OptionRewrite {
    pub code: u16,
    pub action: OptionAction,
}

#[derive(Clone, PartialEq, Eq, Debug)]
pub enum OptionAction {
    /// Replaces the option, or adds it.
    Set(OptionData),
    Append(OptionData),
    /// Only if the query has the option.
    Replace(OptionData),
    Unset,
}

/// What an option is made of.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum OptionData {
    Bytes(Arc<[u8]>),
    /// The name of the question, as it is asked.
    Name,
    Type,
    ClientIp,
    ClientPort,
    Protocol,
    ServerIp,
    ServerPort,
    /// A fact under this name.
    Label(Arc<str>),
    /// The network of the client, by the length of its prefix (RFC 7871).
    Subnet {
        v4: u8,
        v6: u8,
    },
}

const USAGE: &str = "write `rewrite edns0 local set|append|replace CODE DATA [revert]`, `… local unset CODE`, \
                     `… nsid set|append|replace|unset` or `… subnet set|append|replace V4-LENGTH V6-LENGTH`";

pub(super) fn read(field: &Token, args: &[&Token], report: &mut Report) -> Option<OptionRewrite> {
    let [kind, action, rest @ ..] = args else {
        report.error("missing-argument", &field.place, "`rewrite edns0` needs more words").help(USAGE);
        return None;
    };
    let kind_read = report.word(kind, &[("local", 0), ("nsid", NSID), ("subnet", SUBNET)])?;
    type Make = fn(OptionData) -> OptionAction;
    let make = report.word::<Option<Make>>(
        action,
        &[
            ("set", Some(OptionAction::Set)),
            ("append", Some(OptionAction::Append)),
            ("replace", Some(OptionAction::Replace)),
            ("unset", None),
        ],
    )?;
    // Options of ours never reach the client, so that there is nothing to revert.
    let rest = match rest {
        [before @ .., last] if &*last.text == "revert" && make.is_some() => before,
        _ => rest,
    };
    let (code, data) = match (kind_read, make.is_some(), rest) {
        (0, true, [code, data]) => (read_code(code, report)?, read_data(data, report)?),
        (0, false, [code]) => (read_code(code, report)?, OptionData::Bytes([].into())),
        (NSID, _, []) | (SUBNET, false, []) => (kind_read, OptionData::Bytes([].into())),
        (SUBNET, true, [v4, v6]) => {
            let (v4, v6) = (report.number(v4, 0..=32)?, report.number(v6, 0..=128)?);
            (SUBNET, OptionData::Subnet { v4: v4 as u8, v6: v6 as u8 })
        }
        _ => {
            let what = format!("`rewrite edns0 {} {}` has other words behind it", kind.text, action.text);
            report.error("missing-argument", &kind.place, what).help(USAGE);
            return None;
        }
    };
    Some(OptionRewrite { code, action: make.map_or(OptionAction::Unset, |make| make(data)) })
}

fn read_data(word: &Token, report: &mut Report) -> Option<OptionData> {
    if let Some(variable) = word.text.strip_prefix('{').and_then(|text| text.strip_suffix('}')) {
        return Some(match variable {
            "qname" => OptionData::Name,
            "qtype" => OptionData::Type,
            "client_ip" => OptionData::ClientIp,
            "client_port" => OptionData::ClientPort,
            "protocol" => OptionData::Protocol,
            "server_ip" => OptionData::ServerIp,
            "server_port" => OptionData::ServerPort,
            label if label.contains('/') => OptionData::Label(label.strip_prefix("request/").unwrap_or(label).into()),
            _ => {
                report.error("bad-word", &word.place, format!("`{}` is no variable", word.text)).help(
                    "there are `{qname}`, `{qtype}`, `{client_ip}`, `{client_port}`, `{protocol}`, `{server_ip}`, \
                     `{server_port}`, and facts like `{request/LABEL}`",
                );
                return None;
            }
        });
    }
    let Some(digits) = word.text.strip_prefix("0x") else {
        return Some(OptionData::Bytes(word.text.as_bytes().into()));
    };
    let pairs = digits.as_bytes().chunks(2).map(|pair| {
        let pair = std::str::from_utf8(pair).ok().filter(|pair| pair.len() == 2)?;
        u8::from_str_radix(pair, 16).ok().filter(|_| pair.bytes().all(|digit| digit.is_ascii_hexdigit()))
    });
    let Some(bytes) = pairs.collect::<Option<Vec<u8>>>() else {
        report
            .error("bad-word", &word.place, format!("`{}` is not hexadecimal", word.text))
            .help("write two digits for each byte, like `0x0aff`, or text that does not begin with `0x`");
        return None;
    };
    Some(OptionData::Bytes(bytes.into()))
}
