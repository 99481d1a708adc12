//! A question as it is typed.

use anyhow::{Context, Error, Result, bail};
use namewall_dns::Transport;
use namewall_dns::wire::RecordType;
use namewall_policy::domain::DomainName;
use std::net::{IpAddr, SocketAddr};
use std::str::FromStr;

#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) struct Question {
    kind: u16,
    /// None is the root.
    name: Option<DomainName>,
    pub(super) client: SocketAddr,
    pub(super) server: Option<SocketAddr>,
    pub(super) transport: Transport,
    options: Vec<(u16, Vec<u8>)>,
    /// What is answered, where that is said.
    answer: Option<Answer>,
}

#[derive(Clone, PartialEq, Eq, Debug)]
enum Answer {
    Addresses(Vec<IpAddr>),
    /// No records, and a code.
    Nothing(u8),
}

/// Answers without records, as people call them.
const NOTHING: [(&str, u8); 4] = [("NODATA", 0), ("SERVFAIL", 2), ("NXDOMAIN", 3), ("REFUSED", 5)];
const TTL: u32 = 60;
/// An OPT record without options.
const OPT_HEAD: usize = 11;

impl FromStr for Question {
    type Err = Error;

    /// `A www.example.com from 10.1.2.3 over tcp edns0:0xffed=abc answer 192.0.2.1,192.0.2.2`
    fn from_str(text: &str) -> Result<Self> {
        let mut words = text.split_whitespace();
        let (Some(kind), Some(name)) = (words.next(), words.next()) else {
            bail!("`{text}` is no question; write one like 'A www.example.com from 10.1.2.3'");
        };
        let name = match name {
            "." => None,
            name => Some(name.parse().with_context(|| format!("`{name}` is no name"))?),
        };
        let client = SocketAddr::from(([127, 0, 0, 1], 40_000));
        let mut question = Self {
            kind: kind_of(kind)?,
            name,
            client,
            server: None,
            transport: Transport::Udp,
            options: Vec::new(),
            answer: None,
        };
        while let Some(word) = words.next() {
            let mut value = || words.next().with_context(|| format!("`{word}` needs a value"));
            match word {
                "from" => question.client = address(value()?, 40_000)?,
                "at" => question.server = Some(address(value()?, 53)?),
                "over" => {
                    question.transport = match value()? {
                        "tcp" => Transport::Tcp,
                        "udp" => Transport::Udp,
                        "tls" => Transport::Tls,
                        "https" => Transport::Https,
                        other => bail!("`{other}` is neither udp, tcp, tls nor https"),
                    }
                }
                "answer" => question.answer = Some(answer(value()?)?),
                word => {
                    let option = word.strip_prefix("edns0:").and_then(|rest| rest.split_once('='));
                    let Some((code, value)) = option else {
                        bail!("`{word}` is not understood; there are from, at, over, edns0:CODE=VALUE and answer");
                    };
                    question.options.push((number(code)?, bytes(value)?));
                }
            }
        }
        Ok(question)
    }
}

impl Question {
    /// As it would come in.
    pub(super) fn message(&self) -> Vec<u8> {
        let mut message = vec![0x12, 0x34, 1, 0, 0, 1, 0, 0, 0, 0, 0, 1];
        for label in self.name.iter().flat_map(DomainName::labels) {
            message.push(label.len() as u8);
            message.extend(label.as_bytes());
        }
        message.push(0);
        message.extend(self.kind.to_be_bytes());
        message.extend([0, 1]);
        message.extend([0, 0, 41, 4, 208, 0, 0, 0, 0]);
        message.extend((self.options_length() as u16).to_be_bytes());
        for (code, data) in &self.options {
            message.extend(code.to_be_bytes());
            message.extend((data.len() as u16).to_be_bytes());
            message.extend(data);
        }
        message
    }

    /// What is answered, as an upstream would say it.
    pub(super) fn answer(&self) -> Option<Vec<u8>> {
        let (code, addresses) = match self.answer.as_ref()? {
            Answer::Addresses(addresses) => (0, &addresses[..]),
            Answer::Nothing(code) => (*code, &[][..]),
        };
        let query = self.message();
        let end = query.len() - OPT_HEAD - self.options_length();
        let mut message = query[..end].to_vec();
        message[2..4].copy_from_slice(&[0x81, 0x80 | code]);
        message[6..8].copy_from_slice(&(addresses.len() as u16).to_be_bytes());
        message[10..12].fill(0);
        for address in addresses {
            let (kind, data): (u16, Vec<u8>) = match address {
                IpAddr::V4(v4) => (1, v4.octets().to_vec()),
                IpAddr::V6(v6) => (28, v6.octets().to_vec()),
            };
            // Of the name that was asked for.
            [0xc00c, kind, 1].iter().for_each(|field| message.extend(u16::to_be_bytes(*field)));
            message.extend(TTL.to_be_bytes());
            message.extend((data.len() as u16).to_be_bytes());
            message.extend(data);
        }
        Some(message)
    }

    fn options_length(&self) -> usize {
        self.options.iter().map(|(_, data)| 4 + data.len()).sum()
    }
}

fn answer(text: &str) -> Result<Answer> {
    let upper = text.to_ascii_uppercase();
    if let Some((_, code)) = NOTHING.iter().find(|(name, _)| *name == upper) {
        return Ok(Answer::Nothing(*code));
    }
    let addresses: Option<Vec<IpAddr>> = text.split(',').map(|one| one.parse().ok()).collect();
    let addresses = addresses.with_context(|| {
        format!("`{text}` is no answer; write 192.0.2.1,192.0.2.2, or NODATA, NXDOMAIN, SERVFAIL or REFUSED")
    })?;
    Ok(Answer::Addresses(addresses))
}

fn kind_of(text: &str) -> Result<u16> {
    let upper = text.to_ascii_uppercase();
    let kind = RecordType::named(&upper).map(|RecordType(number)| number);
    kind.with_context(|| format!("`{text}` is no type of records; write A, AAAA, TXT …, or TYPE65"))
}

fn address(text: &str, port: u16) -> Result<SocketAddr> {
    let whole = text.parse::<SocketAddr>().ok();
    let bare = || text.parse::<IpAddr>().ok().map(|address| SocketAddr::new(address, port));
    whole.or_else(bare).with_context(|| format!("`{text}` is no address"))
}

fn number(text: &str) -> Result<u16> {
    let number = match text.strip_prefix("0x") {
        Some(hex) => u16::from_str_radix(hex, 16),
        None => text.parse(),
    };
    number.with_context(|| format!("`{text}` is not the code of an EDNS0 option; write 0xffed"))
}

fn bytes(text: &str) -> Result<Vec<u8>> {
    let Some(hex) = text.strip_prefix("0x") else { return Ok(text.as_bytes().to_vec()) };
    let digit = |at: usize| hex.get(at..at + 2).and_then(|pair| u8::from_str_radix(pair, 16).ok());
    let all: Option<Vec<u8>> = (0..hex.len()).step_by(2).map(digit).collect();
    all.with_context(|| format!("`{text}` is not hexadecimal"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_question_is_read_with_all_that_can_be_said() {
        let question: Question =
            "aaaa www.Example.com. from 10.1.2.3 at 127.0.0.1:5300 over tcp edns0:0xffed=abc edns0:65=0x0aff"
                .parse()
                .unwrap();
        assert_eq!((question.kind, question.transport), (28, Transport::Tcp));
        assert_eq!(question.client.to_string(), "10.1.2.3:40000");
        assert_eq!(question.server.map(|at| at.to_string()).as_deref(), Some("127.0.0.1:5300"));
        assert_eq!(question.options, [(0xffed, b"abc".to_vec()), (65, vec![0x0a, 0xff])]);
        let message = question.message();
        assert!(message.ends_with(&[0xff, 0xed, 0, 3, b'a', b'b', b'c', 0, 65, 0, 2, 0x0a, 0xff]));
    }

    #[test]
    fn an_answer_is_the_question_and_what_is_said_to_it() {
        let asked = "A www.example from 10.1.2.3 edns0:1=abc answer ";
        let answer = |said: &str| format!("{asked}{said}").parse::<Question>().unwrap().answer().unwrap();
        let two = answer("192.0.2.1,2001:db8::1");
        assert_eq!(two[..12], [0x12, 0x34, 0x81, 0x80, 0, 1, 0, 2, 0, 0, 0, 0]);
        assert_eq!(two[12..29], *b"\x03www\x07example\0\0\x01\0\x01");
        assert_eq!(two[29..45], [0xc0, 12, 0, 1, 0, 1, 0, 0, 0, 60, 0, 4, 192, 0, 2, 1]);
        assert_eq!(two.len(), 45 + 28);
        let none = answer("nxdomain");
        assert_eq!((none[3], none.len()), (0x83, 29));
        assert!("A www.example".parse::<Question>().unwrap().answer().is_none());
    }

    #[test]
    fn what_is_no_question_says_so() {
        for text in [
            "",
            "A",
            "B x.example",
            "A x.example from",
            "A x.example from y",
            "A x.example edns0:0xfffff=a",
            "A x.example edns0:1=0xa",
            "A x.example please",
            "A x.example answer",
            "A x.example answer 192.0.2",
            "A x.example answer 192.0.2.1,",
        ] {
            assert!(text.parse::<Question>().is_err(), "{text}");
        }
        assert!("NS .".parse::<Question>().is_ok());
    }
}
