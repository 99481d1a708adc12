//! Lists of names, as people publish them: a name a line.
//!
//! ```text
//! ads.example            the name and all names below it
//! =ads.example           the name alone
//! *.ads.example          all names below it, and not itself
//! 0.0.0.0 ads.example    as in a hosts file: the name alone
//! # a comment
//! ```
//!
//! Everything else is refused with its line: a list with a line that is left out would deny, or allow, something else
//! than its author wrote.

use crate::name_table::{LONGEST, NameTable};
use namewall_policy::addr::parse_address;
use namewall_policy::domain::DomainName;
use rustc_hash::FxHashMap;
use std::fmt;
use std::io::{self, BufRead, Read};

/// Names that a list may have.
pub const MOST_LISTED: usize = 10_000_000;
/// The longest line.
const MOST_LINE: usize = 64 * 1024;
/// Findings that are kept with their lines; the others are counted.
const MOST_FINDINGS: usize = 20;
/// Names of the machine itself that hosts files begin with: they are not of a list.
const OF_THE_MACHINE: [&str; 12] = [
    "localhost",
    "localhost.localdomain",
    "local",
    "broadcasthost",
    "ip6-localhost",
    "ip6-loopback",
    "ip6-localnet",
    "ip6-mcastprefix",
    "ip6-allnodes",
    "ip6-allrouters",
    "ip6-allhosts",
    "0.0.0.0",
];

/// Which names an entry covers.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub(crate) enum Coverage {
    /// The name and all names below it.
    Whole,
    /// The name alone.
    Exact,
    /// All names below it, and not itself.
    Below,
}

impl Coverage {
    const ALL: [Self; 3] = [Self::Whole, Self::Exact, Self::Below];

    fn mark(self) -> u8 {
        1 << self as u8
    }

    fn covers(self, is_itself: bool) -> bool {
        match self {
            Self::Whole => true,
            Self::Exact => is_itself,
            Self::Below => !is_itself,
        }
    }
}

/// A line that cannot be read.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct BadLine {
    pub line: u32,
    pub message: String,
}

/// Why a list is not used.
#[derive(Debug, thiserror::Error)]
pub enum ListError {
    #[error("{0}")]
    Unreadable(#[from] io::Error),
    /// The first of them, and how many there are.
    #[error("{}", shown(.0, *.1))]
    BadLines(Vec<BadLine>, usize),
    #[error("it has no names; a list that denies nothing, or allows nothing, is probably not meant")]
    Empty,
    #[error("it has more than {0} names")]
    Long(usize),
}

fn shown(lines: &[BadLine], count: usize) -> String {
    let mut all: Vec<String> = lines.iter().map(|bad| format!("line {}: {}", bad.line, bad.message)).collect();
    if count > lines.len() {
        all.push(format!("and {} lines more", count - lines.len()));
    }
    all.join("; ")
}

/// A list of names that can be asked about any name.
#[derive(Clone, Default)]
pub struct DomainList {
    names: NameTable,
    /// By the number of the name: which coverages it is listed with.
    marks: Vec<u8>,
    /// By the number of the name: the line of its first entry.
    lines: Vec<u32>,
    /// The lines of further entries of a name, with other coverages.
    others: FxHashMap<(u32, u8), u32>,
    entries: usize,
}

impl DomainList {
    /// Reads a list. Nothing of it counts if one line is wrong.
    pub fn read(from: impl BufRead) -> Result<Self, ListError> {
        Self::read_at_most(from, MOST_LISTED)
    }

    /// The same with another bound on names.
    pub fn read_at_most(mut from: impl BufRead, most: usize) -> Result<Self, ListError> {
        let mut list = Self::default();
        let (mut bad, mut count) = (Vec::new(), 0);
        let (mut bytes, mut line) = (Vec::new(), 0);
        loop {
            bytes.clear();
            line += 1;
            if from.by_ref().take(MOST_LINE as u64 + 1).read_until(b'\n', &mut bytes)? == 0 {
                break;
            }
            if let Err(message) = list.take(&bytes, line) {
                count += 1;
                if bad.len() < MOST_FINDINGS {
                    bad.push(BadLine { line, message });
                }
                // What follows is the rest of this line.
                if bytes.len() > MOST_LINE {
                    break;
                }
            }
            if list.names.len() > most {
                return Err(ListError::Long(most));
            }
        }
        if count > 0 {
            return Err(ListError::BadLines(bad, count));
        }
        if list.names.is_empty() {
            return Err(ListError::Empty);
        }
        list.names.shrink();
        list.marks.shrink_to_fit();
        list.lines.shrink_to_fit();
        Ok(list)
    }

    fn take(&mut self, bytes: &[u8], line: u32) -> Result<(), String> {
        if bytes.len() > MOST_LINE {
            return Err(format!("it is longer than {MOST_LINE} bytes"));
        }
        let text = std::str::from_utf8(bytes).map_err(|_| "it is not UTF-8".to_owned())?;
        // Editors of some systems begin a file with a mark.
        let text = if line == 1 { text.strip_prefix('\u{feff}').unwrap_or(text) } else { text };
        let mut words = text.split('#').next().unwrap_or_default().split_whitespace();
        let Some(first) = words.next() else { return Ok(()) };
        // A zone, like that of `fe80::1%lo0`, is no part of the address.
        if parse_address(first.split('%').next().unwrap_or(first)).is_some() {
            let mut names = words.peekable();
            if names.peek().is_none() {
                return Err(format!("`{first}` is an address without a name; a list has names"));
            }
            for name in names.filter(|name| !OF_THE_MACHINE.iter().any(|own| own.eq_ignore_ascii_case(name))) {
                self.add(name, Coverage::Exact, line)?;
            }
            return Ok(());
        }
        if let Some(second) = words.next() {
            return Err(format!("`{second}` is too much: a line has one name, or an address and names"));
        }
        match (first.strip_prefix('='), first.strip_prefix("*.")) {
            (Some(name), _) => self.add(name, Coverage::Exact, line),
            (_, Some(name)) => self.add(name, Coverage::Below, line),
            _ => self.add(first, Coverage::Whole, line),
        }
    }

    fn add(&mut self, name: &str, coverage: Coverage, line: u32) -> Result<(), String> {
        let mut wire = [0; LONGEST];
        let length = entry(name, &mut wire)?;
        let (id, is_new) = self.names.insert(&wire[..length]).map_err(|full| full.to_string())?;
        if is_new {
            self.marks.push(coverage.mark());
            self.lines.push(line);
            self.entries += 1;
        } else if let Some(marks) = self.marks.get_mut(id as usize).filter(|marks| **marks & coverage.mark() == 0) {
            *marks |= coverage.mark();
            self.others.insert((id, coverage.mark()), line);
            self.entries += 1;
        }
        Ok(())
    }

    /// How many entries there are, without those that stand twice.
    pub fn len(&self) -> usize {
        self.entries
    }

    pub fn is_empty(&self) -> bool {
        self.entries == 0
    }

    /// Bytes of memory that it takes.
    pub fn bytes(&self) -> usize {
        let lines = self.lines.capacity() * size_of::<u32>();
        self.names.bytes() + self.marks.capacity() + lines + self.others.capacity() * size_of::<((u32, u8), u32)>()
    }

    /// The line of the entry that covers a name, which is on the wire and in lower case. Of several it is the one with
    /// the shortest name.
    pub fn line_of(&self, name: &[u8]) -> Option<u32> {
        self.names.above(name).find_map(|above| {
            let marks = self.marks.get(above.id as usize).copied()?;
            let is_itself = self.names.name(above.id).len() == name.len();
            let covers = |one: &&Coverage| marks & one.mark() != 0 && one.covers(is_itself);
            let coverage = Coverage::ALL.iter().find(covers)?;
            let other = self.others.get(&(above.id, coverage.mark())).copied();
            other.or_else(|| self.lines.get(above.id as usize).copied())
        })
    }

    /// The same for a name as text, in any case, with or without the dot at its end. What is no name is not listed.
    pub fn line_of_text(&self, name: &str) -> Option<u32> {
        let mut wire = [0; LONGEST];
        let length = text_to_wire(name, &mut wire)?;
        self.line_of(&wire[..length])
    }
}

impl fmt::Debug for DomainList {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} names", self.entries)
    }
}

/// The name of an entry on the wire, and its length there.
fn entry(name: &str, wire: &mut [u8; LONGEST]) -> Result<usize, String> {
    if name.contains(['|', '^', '$', '/', '@']) {
        return Err(format!("`{name}` is a filter of a browser; a list has plain names, like ads.example"));
    }
    if !name.is_ascii() {
        // Stored as its A-labels (S5.2).
        let domain: DomainName = name.parse().map_err(|error| format!("{error}"))?;
        return entry(domain.as_str(), wire);
    }
    let bare = name.strip_suffix('.').unwrap_or(name);
    if bare.is_empty() {
        return Err("there is no name after it".to_owned());
    }
    for label in bare.split('.') {
        let bad = label.chars().find(|letter| !(letter.is_ascii_alphanumeric() || matches!(letter, '-' | '_')));
        match (label.len(), bad) {
            (0, _) => return Err(format!("`{name}` has an empty label; labels are separated by single dots")),
            (_, Some('*')) => return Err(format!("`*` stands only as the whole first label, like *.{DOMAIN}")),
            (_, Some(bad)) => {
                return Err(format!("`{name}` has `{bad}` in it; letters, digits, `-` and `_` are accepted"));
            }
            (64.., _) => return Err(format!("the label `{label}` is longer than 63 bytes")),
            _ => {}
        }
    }
    if parse_address(bare).is_some() {
        return Err(format!("`{name}` is an address; a list has names"));
    }
    text_to_wire(bare, wire).ok_or_else(|| format!("the name is {} bytes long; 253 is the most", bare.len()))
}

const DOMAIN: &str = "example.com";

/// A name as text, with `\.` and `\000` as the wire's names are shown, in lower case on the wire. Returns its length
/// there; none if it is no name.
fn text_to_wire(text: &str, wire: &mut [u8; LONGEST]) -> Option<usize> {
    if text == "." {
        wire[0] = 0;
        return Some(1);
    }
    let mut bytes = text.bytes().peekable();
    bytes.peek()?;
    let (mut length_at, mut at) = (0, 1);
    while let Some(byte) = bytes.next() {
        let letter = match byte {
            b'.' => {
                *wire.get_mut(length_at)? = label_length(length_at, at)?;
                (length_at, at) = (at, at + 1);
                continue;
            }
            b'\\' => match bytes.next()? {
                digit @ b'0'..=b'9' => {
                    let digits = [digit, bytes.next()?, bytes.next()?];
                    digits.iter().try_fold(0u8, |number, digit| {
                        let digit = digit.checked_sub(b'0').filter(|digit| *digit < 10)?;
                        number.checked_mul(10)?.checked_add(digit)
                    })?
                }
                letter => letter,
            },
            letter => letter,
        };
        *wire.get_mut(at)? = letter.to_ascii_lowercase();
        at += 1;
    }
    // Without a dot at the end, the last label is still open.
    if at > length_at + 1 {
        *wire.get_mut(length_at)? = label_length(length_at, at)?;
        (length_at, at) = (at, at + 1);
    }
    *wire.get_mut(length_at)? = 0;
    Some(at)
}

fn label_length(length_at: usize, at: usize) -> Option<u8> {
    u8::try_from(at - length_at - 1).ok().filter(|length| (1..64).contains(length))
}
