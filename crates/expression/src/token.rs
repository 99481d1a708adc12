//! The words of an expression.
//!
//! A bare name begins with a letter or `_` and goes on with letters, digits and `_`. A single `/`, `-`
//! or `.` belongs to it if another of those follows at once: `in-cidr`, `request/client_ip` and
//! `k8s/clientpod.security` are one name each, while `a - b`, `a -b` and `a / b` are two, with an
//! operator between. A backslash takes the next character as it is. Where a value is expected, `>` and
//! a letter begin a name too (`>bufsize`). Everything else goes into brackets: `[any name: at all]`.

use crate::error::{Problem, Span};
use crate::tree::Calculation;
use namewall_policy::addr::{Cidr, parse_address};
use std::net::{IpAddr, Ipv6Addr};

#[derive(Clone, PartialEq, Debug)]
pub(crate) enum Token {
    Text(String),
    Number(f64),
    Bool(bool),
    Address(IpAddr),
    Network(Cidr),
    Name { name: String, bare: bool },
    Mark(Mark),
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Mark {
    Open,
    Close,
    Comma,
    Question,
    Colon,
    Otherwise,
    Or,
    And,
    /// The word, which binds weaker than comparisons.
    Not,
    In,
    Equal,
    NotEqual,
    Less,
    LessOrEqual,
    Greater,
    GreaterOrEqual,
    Matches,
    MatchesNot,
    Plus,
    Calculate(Calculation),
    /// `!`, which binds stronger than anything.
    Bang,
    Tilde,
}

/// The longest first.
const MARKS: [(&str, Mark); 30] = [
    ("&&", Mark::And),
    ("||", Mark::Or),
    ("==", Mark::Equal),
    ("!=", Mark::NotEqual),
    ("<=", Mark::LessOrEqual),
    (">=", Mark::GreaterOrEqual),
    ("=~", Mark::Matches),
    ("~=", Mark::Matches),
    ("!~", Mark::MatchesNot),
    ("??", Mark::Otherwise),
    ("**", Mark::Calculate(Calculation::Power)),
    ("<<", Mark::Calculate(Calculation::ShiftLeft)),
    (">>", Mark::Calculate(Calculation::ShiftRight)),
    ("(", Mark::Open),
    (")", Mark::Close),
    (",", Mark::Comma),
    ("?", Mark::Question),
    (":", Mark::Colon),
    ("<", Mark::Less),
    (">", Mark::Greater),
    ("+", Mark::Plus),
    ("-", Mark::Calculate(Calculation::Minus)),
    ("*", Mark::Calculate(Calculation::Times)),
    ("/", Mark::Calculate(Calculation::Divide)),
    ("%", Mark::Calculate(Calculation::Modulo)),
    ("&", Mark::Calculate(Calculation::BitAnd)),
    ("|", Mark::Calculate(Calculation::BitOr)),
    ("^", Mark::Calculate(Calculation::BitXor)),
    ("!", Mark::Bang),
    ("~", Mark::Tilde),
];

/// All of them, each with its place.
pub(crate) fn tokens(text: &str) -> Result<Vec<(Token, Span)>, Problem> {
    let mut lexer = Lexer { text, at: 0, tokens: Vec::new() };
    while let Some(c) = lexer.peek() {
        let start = lexer.at;
        if c.is_whitespace() {
            lexer.at += c.len_utf8();
            continue;
        }
        let token = lexer.token(c)?;
        lexer.tokens.push((token, Span::new(start, lexer.at)));
    }
    Ok(lexer.tokens)
}

struct Lexer<'t> {
    text: &'t str,
    at: usize,
    tokens: Vec<(Token, Span)>,
}

impl Lexer<'_> {
    fn rest(&self) -> &str {
        &self.text[self.at..]
    }

    fn peek(&self) -> Option<char> {
        self.rest().chars().next()
    }

    fn second(&self) -> Option<char> {
        self.rest().chars().nth(1)
    }

    /// Whether a value comes next, and not an operator.
    fn wants_value(&self) -> bool {
        match self.tokens.last() {
            None => true,
            Some((Token::Mark(mark), _)) => *mark != Mark::Close,
            Some(_) => false,
        }
    }

    fn token(&mut self, first: char) -> Result<Token, Problem> {
        if let Some(token) = self.colons()? {
            return Ok(token);
        }
        let begins_fraction = || first == '.' && self.second().is_some_and(|c| c.is_ascii_digit());
        let begins_fact = || first == '>' && self.wants_value() && self.second().is_some_and(char::is_alphabetic);
        match first {
            '\'' | '"' => self.quoted(first),
            '[' => self.bracketed(),
            _ if first.is_ascii_digit() || begins_fraction() => self.number(),
            _ if is_word(first) || first == '\\' || begins_fact() => self.word(),
            _ => self.mark(first),
        }
    }

    fn mark(&mut self, first: char) -> Result<Token, Problem> {
        // Before a value, `!~x` and `!=` are no comparisons: there is nothing to compare.
        let is_prefix = self.wants_value() && matches!(first, '!' | '~');
        let fits = |written: &str| self.rest().starts_with(written) && !(is_prefix && written.len() > 1);
        if let Some(&(written, mark)) = MARKS.iter().find(|(written, _)| fits(written)) {
            self.at += written.len();
            return Ok(Token::Mark(mark));
        }
        let problem =
            Problem::new(Span::new(self.at, self.at + first.len_utf8()), format!("`{first}` means nothing here"));
        Err(match first {
            '=' => problem.suggest("write `==` to compare"),
            '‘' | '’' | '“' | '”' | '`' => problem.suggest("write text in ' or \""),
            '{' | '}' | ']' => problem.suggest("lists are written in parentheses, like ('A', 'AAAA')"),
            _ => problem,
        })
    }

    /// A backslash before a quote or a backslash makes it text; before anything else it is text itself, so
    /// that patterns need no second one.
    fn quoted(&mut self, quote: char) -> Result<Token, Problem> {
        let start = self.at;
        let mut text = String::new();
        let mut chars = self.text[start + 1..].char_indices();
        while let Some((at, c)) = chars.next() {
            if c == quote {
                self.at = start + 1 + at + 1;
                return Ok(Token::Text(text));
            }
            let escaped = chars.clone().next().map(|(_, c)| c).filter(|c| matches!(c, '\'' | '"' | '\\'));
            match escaped {
                Some(escaped) if c == '\\' => {
                    text.push(escaped);
                    chars.next();
                }
                _ => text.push(c),
            }
        }
        Err(Problem::new(Span::new(start, self.text.len()), format!("the text has no {quote} at its end")))
    }

    fn bracketed(&mut self) -> Result<Token, Problem> {
        let start = self.at;
        let mut name = String::new();
        let mut chars = self.text[start + 1..].char_indices();
        while let Some((at, c)) = chars.next() {
            match c {
                ']' => {
                    self.at = start + 1 + at + 1;
                    let span = Span::new(start, self.at);
                    let name = name.trim();
                    let problem = |message: &str| Err(Problem::new(span, message));
                    return match name {
                        "" => problem("there is no name between the brackets"),
                        _ if name.starts_with(['\'', '"']) => problem("brackets hold a name")
                            .map_err(|problem| problem.suggest("a list is written in parentheses, like ('A', 'AAAA')")),
                        _ => Ok(Token::Name { name: name.to_owned(), bare: false }),
                    };
                }
                '\\' => name.extend(chars.next().map(|(_, c)| c)),
                _ => name.push(c),
            }
        }
        Err(Problem::new(Span::new(start, self.text.len()), "the name has no ] at its end"))
    }

    fn word(&mut self) -> Result<Token, Problem> {
        let start = self.at;
        let mut name = String::new();
        if self.peek() == Some('>') {
            name.push('>');
            self.at += 1;
        }
        while let Some(c) = self.peek() {
            let next = self.second();
            let is_joined = || matches!(c, '/' | '-' | '.') && next.is_some_and(|c| is_word(c) || c == '\\');
            match (c, next) {
                ('\\', Some(escaped)) => {
                    name.push(escaped);
                    self.at += 1 + escaped.len_utf8();
                }
                _ if is_word(c) || is_joined() => {
                    name.push(c);
                    self.at += c.len_utf8();
                }
                _ => break,
            }
        }
        if name.is_empty() {
            return Err(Problem::new(Span::new(start, start + 1), "there is nothing after the backslash"));
        }
        Ok(match name.to_ascii_lowercase().as_str() {
            "and" => Token::Mark(Mark::And),
            "or" => Token::Mark(Mark::Or),
            "not" => Token::Mark(Mark::Not),
            "in" => Token::Mark(Mark::In),
            "true" => Token::Bool(true),
            "false" => Token::Bool(false),
            _ => Token::Name { name, bare: true },
        })
    }

    /// A number, an IPv4 address or a network of them.
    fn number(&mut self) -> Result<Token, Problem> {
        let start = self.at;
        let digits = self.run(|c| c.is_ascii_digit() || c == '.');
        let is_hex = digits == "0" && self.text[start + 1..].starts_with(['x', 'X']);
        if digits.matches('.').count() == 3 {
            return self.address(start + digits.len());
        }
        let mut end = start + digits.len();
        if is_hex {
            end += 1 + prefix_length(&self.text[end + 1..], |c| c.is_ascii_hexdigit());
        } else if let Some(exponent) = self.text[end..].strip_prefix(['e', 'E']) {
            let sign = usize::from(exponent.starts_with(['+', '-']));
            let length = prefix_length(&exponent[sign..], |c| c.is_ascii_digit());
            end += if length > 0 { 1 + sign + length } else { 0 };
        }
        let stray = prefix_length(&self.text[end..], is_word);
        self.at = end + stray;
        let written = &self.text[start..self.at];
        match read_number(written) {
            Some(number) if stray == 0 => Ok(Token::Number(number)),
            _ => Err(Problem::new(Span::new(start, self.at), format!("`{written}` is not a number"))
                .suggest("a name that begins with a digit goes into brackets, and text into quotes")),
        }
    }

    /// IPv6 has no other beginning than a value may have, so it is tried first.
    fn colons(&mut self) -> Result<Option<Token>, Problem> {
        if !self.wants_value() {
            return Ok(None);
        }
        let run = self.run(|c| c.is_ascii_hexdigit() || c == ':' || c == '.').to_owned();
        // The last one may be of a `? :` around it.
        let candidates = [run.as_str(), run.strip_suffix(':').unwrap_or_default()];
        let is_whole = |text: &str| !self.rest()[text.len()..].starts_with(is_word);
        let found = candidates.into_iter().find(|text| text.parse::<Ipv6Addr>().is_ok() && is_whole(text));
        match found {
            Some(text) => self.address(self.at + text.len()).map(Some),
            None if run.contains("::") => {
                let span = Span::new(self.at, self.at + run.len());
                Err(Problem::new(span, format!("`{run}` is not an address")))
            }
            None => Ok(None),
        }
    }

    /// The address that ends there, or the network if a prefix length follows.
    fn address(&mut self, end: usize) -> Result<Token, Problem> {
        let start = self.at;
        let prefix = self.text[end..].strip_prefix('/').map(|rest| prefix_length(rest, |c| c.is_ascii_digit()));
        self.at = match prefix {
            Some(length @ 1..) => end + 1 + length,
            _ => end,
        };
        self.at += prefix_length(&self.text[self.at..], is_word);
        let written = &self.text[start..self.at];
        let span = Span::new(start, self.at);
        if self.at == end {
            let none = || Problem::new(span, format!("`{written}` is not an address"));
            return parse_address(written).map(Token::Address).ok_or_else(none);
        }
        written.parse().map(Token::Network).map_err(|error| Problem::new(span, format!("{error}")))
    }

    fn run(&self, belongs: impl Fn(char) -> bool) -> &str {
        let rest = self.rest();
        &rest[..prefix_length(rest, belongs)]
    }
}

fn prefix_length(text: &str, belongs: impl Fn(char) -> bool) -> usize {
    text.find(|c| !belongs(c)).unwrap_or(text.len())
}

fn is_word(c: char) -> bool {
    c.is_alphanumeric() || c == '_'
}

/// A number as expressions and labels write it: decimal with a fraction and an exponent, or 0x and
/// hexadecimal. What Rust would take besides (`inf`, `nan`) is none.
pub(crate) fn read_number(text: &str) -> Option<f64> {
    let (sign, digits) = match text.strip_prefix('-') {
        Some(rest) => (-1.0, rest),
        None => (1.0, text),
    };
    if let Some(hex) = digits.strip_prefix("0x").or_else(|| digits.strip_prefix("0X")) {
        let is_hex = hex.bytes().all(|byte| byte.is_ascii_hexdigit());
        return is_hex.then(|| u64::from_str_radix(hex, 16).ok()).flatten().map(|number| sign * number as f64);
    }
    let first = digits.bytes().find(|&byte| byte != b'.')?;
    (first.is_ascii_digit())
        .then(|| digits.parse().ok())
        .flatten()
        .map(|number: f64| sign * number)
        .filter(|n| n.is_finite())
}
