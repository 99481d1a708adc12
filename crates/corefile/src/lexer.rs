//! Text as words. Words are separated by white space; one that begins with `"` goes to the next `"`, over
//! lines if need be; `#` begins a comment, even within a word. That is all of Caddy's lexer, which is
//! CoreDNS'. Words remember what was written, for the languages inside a Corefile that have lexers of
//! their own.

use crate::problem::Report;
use crate::{FileSpan, Text};
use std::ops::Range;
use std::sync::Arc;

/// Words of a Corefile, with all that is imported.
pub(crate) const MOST_TOKENS: usize = 200_000;

/// What an environment variable says.
pub(crate) type Environment<'a> = &'a dyn Fn(&str) -> Option<String>;

#[derive(Clone, Debug)]
pub(crate) struct Token {
    /// Without quotes, with variables replaced.
    pub(crate) text: Arc<str>,
    pub(crate) place: FileSpan,
    pub(crate) is_quoted: bool,
    /// Whether it may be a brace or `import`: it is neither quoted nor from a variable.
    is_plain: bool,
    /// Whether it is the first of a line, or of what was imported.
    pub(crate) starts_line: bool,
    pub(crate) origin: Option<Arc<Origin>>,
    /// With quotes, with variables replaced.
    written: Arc<str>,
    file: Arc<str>,
    range: Range<usize>,
}

/// What imported a word: a snippet or a file, and what imported that.
#[derive(Debug)]
pub(crate) struct Origin {
    pub(crate) what: Arc<str>,
    pub(crate) parent: Option<Arc<Origin>>,
    pub(crate) depth: usize,
}

impl Token {
    /// Whether it is this brace or keyword.
    pub(crate) fn is(&self, word: &str) -> bool {
        self.is_plain && &*self.text == word
    }

    /// The same word, saying something else: a part of what it says.
    pub(crate) fn saying(&self, text: &str) -> Token {
        Token { text: text.into(), ..self.clone() }
    }

    /// Some words of a line as they were written, quotes included.
    pub(crate) fn as_written(tokens: &[Token]) -> Option<Text> {
        let (first, last) = (tokens.first()?, tokens.last()?);
        let mut text = String::from(&*first.written);
        for pair in tokens.windows(2) {
            text.push_str(pair[0].file.get(pair[0].range.end..pair[1].range.start).unwrap_or(" "));
            text.push_str(&pair[1].written);
        }
        let mut place = first.place.clone();
        if last.place.line == place.line {
            place.length = (last.place.column + last.place.length).saturating_sub(place.column);
        }
        Some(Text { text: text.into(), place })
    }

    /// What it says, without its quotes.
    pub(crate) fn content(&self) -> Text {
        let mut place = self.place.clone();
        if self.is_quoted {
            place.column += 1;
            place.length = place.length.saturating_sub(2);
        }
        Text { text: self.text.clone(), place }
    }
}

/// The words of a file: no more of them than show that there are too many.
pub(crate) fn tokens(
    name: &Arc<str>,
    file: &Arc<str>,
    environment: Environment<'_>,
    report: &mut Report,
) -> Vec<Token> {
    let mut lexer = Lexer { name, file, rest: file, at: 0, line: 1, column: 1 };
    // A byte order mark is no character of the first line.
    if let Some(rest) = file.strip_prefix('\u{feff}') {
        (lexer.rest, lexer.at) = (rest, file.len() - rest.len());
    }
    let mut tokens = Vec::new();
    let mut line_before = 0;
    while tokens.len() <= MOST_TOKENS && lexer.skip_to_word() {
        let mut token = lexer.word(report);
        token.starts_line = token.place.line > line_before;
        line_before = lexer.line;
        replace_variables(&mut token, environment, report);
        tokens.push(token);
    }
    tokens
}

struct Lexer<'a> {
    name: &'a Arc<str>,
    file: &'a Arc<str>,
    rest: &'a str,
    at: usize,
    line: u32,
    column: u32,
}

impl Lexer<'_> {
    fn next(&mut self) -> Option<char> {
        let c = self.rest.chars().next()?;
        self.rest = &self.rest[c.len_utf8()..];
        self.at += c.len_utf8();
        if c == '\n' {
            (self.line, self.column) = (self.line.saturating_add(1), 1);
        } else {
            self.column = self.column.saturating_add(1);
        }
        Some(c)
    }

    fn skip_to_word(&mut self) -> bool {
        while let Some(c) = self.rest.chars().next() {
            match c {
                '#' => while self.rest.chars().next().is_some_and(|c| c != '\n') && self.next().is_some() {},
                c if c.is_whitespace() => {
                    self.next();
                }
                _ => return true,
            }
        }
        false
    }

    fn word(&mut self, report: &mut Report) -> Token {
        let (start, line, column) = (self.at, self.line, self.column);
        let is_quoted = self.rest.starts_with('"');
        let (text, is_closed) = if is_quoted { self.quoted() } else { (self.bare(), true) };
        let written = &self.file[start..self.at];
        let first_line = written.split('\n').next().unwrap_or("");
        let place = FileSpan {
            file: self.name.clone(),
            line,
            column,
            length: u32::try_from(first_line.chars().count()).unwrap_or(u32::MAX),
        };
        if !is_closed {
            report
                .error("unclosed-quote", &FileSpan { length: 1, ..place.clone() }, "this quote is never closed")
                .help("add a `\"` where it ends");
        }
        Token {
            text: text.into(),
            place,
            is_quoted,
            is_plain: !is_quoted,
            starts_line: false,
            origin: None,
            written: written.into(),
            file: self.file.clone(),
            range: start..self.at,
        }
    }

    fn bare(&mut self) -> String {
        let mut text = String::new();
        while self.rest.chars().next().is_some_and(|c| !c.is_whitespace() && c != '#') {
            text.extend(self.next());
        }
        text
    }

    /// The text between quotes, and whether there was an end to it. Only quotes can be escaped.
    fn quoted(&mut self) -> (String, bool) {
        self.next();
        let mut text = String::new();
        while let Some(c) = self.next() {
            match c {
                '"' => return (text, true),
                '\\' if self.rest.starts_with('"') => text.extend(self.next()),
                '\\' if self.rest.starts_with('\\') => {
                    text.push(c);
                    text.extend(self.next());
                }
                _ => text.push(c),
            }
        }
        (text, false)
    }
}

/// `{%NAME%}` and `{$NAME}`. What a variable says is never a brace, a keyword or another variable.
fn replace_variables(token: &mut Token, environment: Environment<'_>, report: &mut Report) {
    if !token.text.contains("{$") && !token.text.contains("{%") {
        return;
    }
    let mut unset = Vec::new();
    let text = replaced(&token.text, environment, &mut unset);
    let written = replaced(&token.written, environment, &mut Vec::new());
    token.is_plain = *text == *token.text && token.is_plain;
    (token.text, token.written) = (text.into(), written.into());
    for name in unset {
        report
            .warning("unset-variable", &token.place, format!("the variable `{name}` is not set"))
            .help("it is read as nothing");
    }
}

fn replaced(text: &str, environment: Environment<'_>, unset: &mut Vec<String>) -> String {
    let mut out = String::with_capacity(text.len());
    let mut rest = text;
    while let Some(at) = rest.find("{$").into_iter().chain(rest.find("{%")).min() {
        let end = if rest[at..].starts_with("{$") { "}" } else { "%}" };
        let name = rest[at + 2..].split_once(end).map(|(name, _)| name).filter(|name| !name.is_empty());
        let Some(name) = name else {
            out.push_str(&rest[..at + 2]);
            rest = &rest[at + 2..];
            continue;
        };
        out.push_str(&rest[..at]);
        match environment(name) {
            Some(value) => out.push_str(&value),
            None => unset.push(name.to_owned()),
        }
        rest = &rest[at + 2 + name.len() + end.len()..];
    }
    out.push_str(rest);
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    fn words(text: &str) -> Vec<String> {
        let environment = |name: &str| match name {
            "PORT" => Some("8080".to_owned()),
            "BRACE" => Some("{".to_owned()),
            _ => None,
        };
        let read = tokens(&"Corefile".into(), &text.into(), &environment, &mut Report::default());
        let shown = |token: &Token| {
            let line = if token.starts_line { "/" } else { "" };
            format!("{line}{}@{}:{}+{}", token.text, token.place.line, token.place.column, token.place.length)
        };
        read.iter().map(shown).collect()
    }

    #[test]
    fn words_as_caddy_has_them() {
        let cases: &[(&str, &[&str])] = &[
            ("", &[]),
            ("\u{feff}a b\n c", &["/a@1:1+1", "b@1:3+1", "/c@2:2+1"]),
            ("a # b\nc#d\n", &["/a@1:1+1", "/c@2:1+1"]),
            ("a\r\nb\r\n", &["/a@1:1+1", "/b@2:1+1"]),
            (r#"a "b c" d"#, &["/a@1:1+1", "b c@1:3+5", "d@1:9+1"]),
            (r#""a"b"#, &["/a@1:1+3", "b@1:4+1"]),
            (r#"a"b c"#, &[r#"/a"b@1:1+3"#, "c@1:5+1"]),
            (r#""a\"b\n\\""#, &[r#"/a"b\n\\@1:1+10"#]),
            (r#""a # b" """#, &["/a # b@1:1+7", "@1:9+2"]),
            ("a \"b\nc\" d\ne", &["/a@1:1+1", "b\nc@1:3+2", "d@2:4+1", "/e@3:1+1"]),
            ("ä ö", &["/ä@1:1+1", "ö@1:3+1"]),
        ];
        for (text, expected) in cases {
            assert_eq!(&words(text), expected, "{text:?}");
        }
    }

    #[test]
    fn variables_are_replaced_once_and_are_no_syntax() {
        let cases: &[(&str, &str)] = &[
            (":{$PORT}", "/:8080@1:1+8"),
            ("{%PORT%}:{$PORT}", "/8080:8080@1:1+16"),
            ("{$NONE}a", "/a@1:1+8"),
            ("{$}", "/{$}@1:1+3"),
            ("{%PORT}", "/{%PORT}@1:1+7"),
            ("\"{$PORT} x\"", "/8080 x@1:1+11"),
        ];
        for (text, expected) in cases {
            assert_eq!(words(text), [*expected], "{text:?}");
        }
        let environment = |_: &str| Some("{".to_owned());
        let read = tokens(&"Corefile".into(), &"{ \"{\" {$X}".into(), &environment, &mut Report::default());
        assert_eq!(read.iter().map(|token| token.is("{")).collect::<Vec<_>>(), [true, false, false]);
    }

    #[test]
    fn what_was_written_is_kept_with_its_quotes() {
        let environment = |_: &str| Some("10.0.0.1".to_owned());
        let text = "  allow  name == \"a  b\"   && 'c' != '{$IP}' # never";
        let read = tokens(&"Corefile".into(), &text.into(), &environment, &mut Report::default());
        let written = Token::as_written(&read[1..]).unwrap();
        assert_eq!(&*written.text, "name == \"a  b\"   && 'c' != '10.0.0.1'");
        assert_eq!((written.place.line, written.place.column, written.place.length), (1, 10, 34));
    }
}
