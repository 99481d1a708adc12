//! What rules can look at.

use std::borrow::Cow;
use std::fmt;
use std::net::IpAddr;
use std::sync::Arc;

/// Something that is known of a question, its client or its answer, by a name. It is looked up once,
/// where a rule is read; rules that are asked carry the result.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub enum Fact {
    /// `name`, `request/qname`, `qname`: in lower case, with the dot at the end, as CoreDNS has it.
    Name,
    /// `type`, `request/qtype`: `A`, or `TYPE65280`.
    Type,
    /// `class`: `IN`.
    Class,
    /// `proto`, `protocol`: `udp` or `tcp`.
    Protocol,
    ClientIp,
    ClientPort,
    ServerIp,
    ServerPort,
    /// Bytes of the question.
    Size,
    /// `>id`
    Id,
    /// `>opcode`
    Opcode,
    /// `>bufsize`
    BufferSize,
    /// `>do`
    Do,
    /// `rcode`: `NOERROR`.
    Rcode,
    /// Bytes of the answer.
    ResponseSize,
    /// `>rflags`: `qr,rd,ra`.
    ResponseFlags,
    /// `response_ip`, `response/ip`, `request/returned_ip`: the address of the answer that is being
    /// judged; each of them is, one after the other (S9.3).
    ResponseIp,
    /// `response_ips`, `response/ips`: all of them.
    ResponseIps,
    /// `label_length`: bytes of the longest label of the name.
    LabelLength,
    /// `label_entropy`: bits per byte of that label, as letters in it differ.
    LabelEntropy,
    /// `client_rate`: questions of the client per second.
    ClientRate,
    /// `client_subdomains`: different names that the client asked for below the domain of the question.
    ClientSubdomains,
    /// Any other name: of a piece of EDNS0, of the client's pod, of what an engine said.
    Label(Arc<str>),
}

impl Fact {
    /// The fact of this name. What nobody knows is a label that is never set, and so the empty text
    /// (S9.4).
    pub fn named(name: &str) -> Self {
        let short = name.strip_prefix("request/").or_else(|| name.strip_prefix("response/")).unwrap_or(name);
        match short {
            "name" | "qname" => Self::Name,
            "type" | "qtype" => Self::Type,
            "class" | "qclass" => Self::Class,
            "proto" | "protocol" => Self::Protocol,
            "client_ip" => Self::ClientIp,
            "port" | "client_port" => Self::ClientPort,
            "server_ip" => Self::ServerIp,
            "server_port" => Self::ServerPort,
            "size" => Self::Size,
            ">id" => Self::Id,
            ">opcode" => Self::Opcode,
            ">bufsize" => Self::BufferSize,
            ">do" => Self::Do,
            "rcode" => Self::Rcode,
            "rsize" => Self::ResponseSize,
            ">rflags" => Self::ResponseFlags,
            "response_ip" | "returned_ip" => Self::ResponseIp,
            "response_ips" => Self::ResponseIps,
            "label_length" => Self::LabelLength,
            "label_entropy" => Self::LabelEntropy,
            "client_rate" => Self::ClientRate,
            "client_subdomains" => Self::ClientSubdomains,
            "ip" if name == "response/ip" => Self::ResponseIp,
            "ips" if name == "response/ips" => Self::ResponseIps,
            // `k8s/clientpod.KEY` is the name of a pod's label in the original form (docs/semantics.md, S9).
            _ => match name.strip_prefix("k8s/clientpod.") {
                Some(key) => Self::Label(format!("kubernetes/client-label/{key}").into()),
                None => Self::Label(name.strip_prefix("request/").unwrap_or(name).into()),
            },
        }
    }

    /// What its value is made of, where it is set.
    pub fn kind(&self) -> Kind {
        match self {
            Self::Name => Kind::Name,
            Self::Type | Self::Class | Self::Protocol | Self::Rcode | Self::ResponseFlags => Kind::Word,
            Self::ClientIp | Self::ServerIp | Self::ResponseIp => Kind::Address,
            Self::ResponseIps => Kind::List,
            Self::ClientPort | Self::ServerPort | Self::Size | Self::ResponseSize => Kind::Number,
            Self::Id | Self::Opcode | Self::BufferSize => Kind::Number,
            Self::LabelLength | Self::LabelEntropy | Self::ClientRate | Self::ClientSubdomains => Kind::Number,
            Self::Do => Kind::Bool,
            Self::Label(_) => Kind::Text,
        }
    }

    /// Whether it takes memory of what the client asked before.
    pub fn is_of_client_history(&self) -> bool {
        matches!(self, Self::ClientRate | Self::ClientSubdomains)
    }

    /// Whether only an answer has it.
    pub fn is_of_response(&self) -> bool {
        use Fact::{ResponseFlags, ResponseIp, ResponseIps, ResponseSize};
        matches!(self, Self::Rcode | ResponseSize | ResponseFlags | ResponseIp | ResponseIps)
    }
}

impl fmt::Display for Fact {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Name => "name",
            Self::Type => "type",
            Self::Class => "class",
            Self::Protocol => "proto",
            Self::ClientIp => "client_ip",
            Self::ClientPort => "port",
            Self::ServerIp => "server_ip",
            Self::ServerPort => "server_port",
            Self::Size => "size",
            Self::Id => ">id",
            Self::Opcode => ">opcode",
            Self::BufferSize => ">bufsize",
            Self::Do => ">do",
            Self::Rcode => "rcode",
            Self::ResponseSize => "rsize",
            Self::ResponseFlags => ">rflags",
            Self::ResponseIp => "response_ip",
            Self::ResponseIps => "response/ips",
            Self::LabelLength => "label_length",
            Self::LabelEntropy => "label_entropy",
            Self::ClientRate => "client_rate",
            Self::ClientSubdomains => "client_subdomains",
            Self::Label(label) => label,
        })
    }
}

/// What a value is made of.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Kind {
    /// Text in which case matters. A label's value is text, and may spell anything else.
    Text,
    /// Text in which case does not matter: `A`, `udp`, `NOERROR`.
    Word,
    /// A DNS name: neither case nor the dot at the end matters.
    Name,
    Number,
    Bool,
    Address,
    /// No fact is one: expressions have them.
    Network,
    List,
}

impl Kind {
    pub fn is_text(self) -> bool {
        matches!(self, Self::Text | Self::Word | Self::Name)
    }
}

impl fmt::Display for Kind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Text | Self::Word => "text",
            Self::Name => "a name",
            Self::Number => "a number",
            Self::Bool => "true or false",
            Self::Address => "an address",
            Self::Network => "a network",
            Self::List => "a list",
        })
    }
}

/// The value of a fact. It borrows from the message where it can.
#[derive(Clone, PartialEq, Debug)]
pub enum Value<'a> {
    /// The empty text is also what is not set.
    Text(Cow<'a, str>),
    Number(u64),
    /// Never infinite, and always a number.
    Fraction(f64),
    Bool(bool),
    Address(IpAddr),
    Addresses(Cow<'a, [IpAddr]>),
}

impl Value<'_> {
    /// What is not set.
    pub const UNSET: Value<'static> = Value::Text(Cow::Borrowed(""));
}

/// As engines are told it that know only text.
impl fmt::Display for Value<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Text(text) => f.write_str(text),
            Self::Number(number) => write!(f, "{number}"),
            Self::Fraction(number) => write!(f, "{number}"),
            Self::Bool(is) => write!(f, "{is}"),
            Self::Address(address) => write!(f, "{address}"),
            Self::Addresses(addresses) => {
                for (at, address) in addresses.iter().enumerate() {
                    write!(f, "{}{address}", if at > 0 { "," } else { "" })?;
                }
                Ok(())
            }
        }
    }
}

/// Which of the two is being judged.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Phase {
    Query,
    Response,
}

/// Where a name is listed.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct ListedAt {
    /// The line of the list's file that covers the name.
    pub line: u32,
}

/// What is known at one moment of one question.
pub trait Facts {
    /// [`Value::UNSET`] where it is not known (S9.4).
    fn get(&self, fact: &Fact) -> Value<'_>;

    /// Whether a list of names, which is called by its file, covers a name. An error is that there is no such list.
    fn listed(&self, list: &str, name: &str) -> Result<Option<ListedAt>, String> {
        let _ = name;
        Err(format!("the list `{list}` is not read here"))
    }

    /// Every answer has an rcode, and no question; whoever knows better says so.
    fn phase(&self) -> Phase {
        if self.get(&Fact::Rcode) == Value::UNSET { Phase::Query } else { Phase::Response }
    }
}
