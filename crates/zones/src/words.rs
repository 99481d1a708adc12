//! The syntax of zone files: entries of words, over several lines within parentheses.

use std::iter::Peekable;
use std::str::CharIndices;

/// Something that cannot be read, at a line.
pub(crate) type Wrong = (u32, String);

/// An entry: what begins with a line, and goes on while a parenthesis is open.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Entry {
    pub(crate) line: u32,
    /// It begins with white space: its owner is that of the entry before.
    pub(crate) is_indented: bool,
    pub(crate) words: Vec<Word>,
}

/// A word as it is written, with its escapes and without its quotes.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Word {
    pub(crate) text: String,
    pub(crate) is_quoted: bool,
}

impl Word {
    /// Whether data in a form for any type follow (RFC 3597 §5).
    pub(crate) fn is_generic_mark(&self) -> bool {
        !self.is_quoted && self.text == "\\#"
    }
}

/// All entries that have words.
pub(crate) fn entries(text: &str) -> Result<Vec<Entry>, Wrong> {
    Entries::new(text).collect()
}

/// The entries of a text, one after the other. An error is the last item.
pub(crate) struct Entries<'t> {
    text: &'t str,
    rest: Peekable<CharIndices<'t>>,
    line: u32,
    entry: Entry,
    /// Parentheses that are open, and the line of the last one.
    depth: u32,
    opened: u32,
    is_over: bool,
}

impl<'t> Entries<'t> {
    pub(crate) fn new(text: &'t str) -> Self {
        let (entry, rest) = (begin(1, text), text.char_indices().peekable());
        Self { text, rest, line: 1, entry, depth: 0, opened: 0, is_over: false }
    }

    /// The next entry that has words; none at the end.
    fn read(&mut self) -> Result<Option<Entry>, Wrong> {
        let Self { text, rest, line, entry, depth, opened, .. } = self;
        while let Some((at, letter)) = rest.next() {
            match letter {
                '\n' => {
                    *line += 1;
                    if *depth == 0 {
                        let done = std::mem::replace(entry, begin(*line, &text[at + 1..]));
                        if !done.words.is_empty() {
                            return Ok(Some(done));
                        }
                    }
                }
                ';' => while rest.next_if(|(_, letter)| *letter != '\n').is_some() {},
                '(' => {
                    *opened = *line;
                    *depth += 1;
                }
                ')' if *depth == 0 => return Err((*line, "a parenthesis is closed that none opens".to_owned())),
                ')' => *depth -= 1,
                '"' => entry.words.push(Word { text: quoted(rest).map_err(|why| (*line, why))?, is_quoted: true }),
                letter if letter.is_ascii_whitespace() => {}
                letter => entry.words.push(Word { text: bare(letter, rest), is_quoted: false }),
            }
        }
        if *depth > 0 {
            return Err((*opened, "a parenthesis is never closed".to_owned()));
        }
        let last = std::mem::replace(entry, begin(*line, ""));
        Ok(Some(last).filter(|last| !last.words.is_empty()))
    }
}

impl Iterator for Entries<'_> {
    type Item = Result<Entry, Wrong>;

    fn next(&mut self) -> Option<Self::Item> {
        if self.is_over {
            return None;
        }
        let read = self.read().transpose();
        self.is_over = !matches!(read, Some(Ok(_)));
        read
    }
}

/// The text up to the next quote.
fn quoted(rest: &mut Peekable<CharIndices<'_>>) -> Result<String, String> {
    let mut word = String::new();
    loop {
        match rest.next() {
            Some((_, '"')) => return Ok(word),
            Some((_, '\\')) => {
                word.push('\\');
                word.extend(rest.next().map(|(_, letter)| letter));
            }
            Some((_, '\n')) | None => return Err("a quote is never closed".to_owned()),
            Some((_, letter)) => word.push(letter),
        }
    }
}

/// The rest of a word without quotes.
fn bare(first: char, rest: &mut Peekable<CharIndices<'_>>) -> String {
    let mut word = String::from(first);
    let mut is_escaped = first == '\\';
    let ends = |letter: char| letter.is_ascii_whitespace() || matches!(letter, ';' | '(' | ')' | '"');
    while let Some((_, letter)) = rest.next_if(|(_, letter)| is_escaped && *letter != '\n' || !ends(*letter)) {
        is_escaped = letter == '\\' && !is_escaped;
        word.push(letter);
    }
    word
}

fn begin(line: u32, rest: &str) -> Entry {
    Entry { line, is_indented: rest.starts_with([' ', '\t']), words: Vec::new() }
}
