//! The syntax of zone files: entries of words, over several lines within parentheses.

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
    let mut all = Vec::new();
    let (mut entry, mut depth, mut opened) = (begin(1, text), 0u32, 0);
    let (mut line, mut rest) = (1, text.char_indices().peekable());
    while let Some((at, letter)) = rest.next() {
        match letter {
            '\n' => {
                line += 1;
                if depth == 0 {
                    let next = begin(line, &text[at + 1..]);
                    all.extend(Some(std::mem::replace(&mut entry, next)).filter(|entry| !entry.words.is_empty()));
                }
            }
            ';' => while rest.next_if(|(_, letter)| *letter != '\n').is_some() {},
            '(' => {
                opened = line;
                depth += 1;
            }
            ')' if depth == 0 => return Err((line, "a parenthesis is closed that none opens".to_owned())),
            ')' => depth -= 1,
            '"' => {
                let began = line;
                let mut word = String::new();
                loop {
                    match rest.next() {
                        Some((_, '"')) => break,
                        Some((_, '\\')) => {
                            word.push('\\');
                            word.extend(rest.next().map(|(_, letter)| letter));
                        }
                        Some((_, '\n')) | None => return Err((began, "a quote is never closed".to_owned())),
                        Some((_, letter)) => word.push(letter),
                    }
                }
                entry.words.push(Word { text: word, is_quoted: true });
            }
            letter if letter.is_ascii_whitespace() => {}
            letter => {
                let mut word = String::from(letter);
                let mut is_escaped = letter == '\\';
                let ends = |letter: char| letter.is_ascii_whitespace() || matches!(letter, ';' | '(' | ')' | '"');
                while let Some((_, letter)) =
                    rest.next_if(|(_, letter)| is_escaped && *letter != '\n' || !ends(*letter))
                {
                    is_escaped = letter == '\\' && !is_escaped;
                    word.push(letter);
                }
                entry.words.push(Word { text: word, is_quoted: false });
            }
        }
    }
    if depth > 0 {
        return Err((opened, "a parenthesis is never closed".to_owned()));
    }
    all.extend(Some(entry).filter(|entry| !entry.words.is_empty()));
    Ok(all)
}

fn begin(line: u32, rest: &str) -> Entry {
    Entry { line, is_indented: rest.starts_with([' ', '\t']), words: Vec::new() }
}
