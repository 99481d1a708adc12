//! What is wrong with an expression, and where in its text.

use std::fmt;
use std::ops::Range;

/// A piece of an expression's text, in bytes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Span {
    pub(crate) start: u32,
    pub(crate) end: u32,
}

impl Span {
    /// Texts are bounded far below 4 GiB before anything has a place in them.
    pub(crate) fn new(start: usize, end: usize) -> Self {
        Self { start: start as u32, end: end as u32 }
    }

    pub(crate) fn to(self, last: Self) -> Self {
        Self { start: self.start, end: last.end }
    }

    pub(crate) fn range(self) -> Range<usize> {
        self.start as usize..self.end as usize
    }
}

/// What stops an expression from being read, before its text is attached.
#[derive(Debug)]
pub(crate) struct Problem {
    pub(crate) span: Span,
    pub(crate) message: String,
    pub(crate) suggestion: Option<String>,
}

impl Problem {
    pub(crate) fn new(span: Span, message: impl Into<String>) -> Self {
        Self { span, message: message.into(), suggestion: None }
    }

    pub(crate) fn suggest(self, suggestion: impl Into<String>) -> Self {
        Self { suggestion: Some(suggestion.into()), ..self }
    }
}

/// An expression that cannot be read, or that can be seen to be wrong whatever is asked. It is shown
/// with the place marked:
///
/// ```text
/// in-cidr(client_ip, 10.0.0.0/33)
///                    ^^^^^^^^^^^ `10.0.0.0/33` has a prefix longer than its address (32 bits)
/// ```
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct ExpressionError {
    text: Box<str>,
    span: Span,
    message: String,
    suggestion: Option<String>,
}

impl ExpressionError {
    pub(crate) fn new(text: &str, problem: Problem) -> Self {
        let Problem { span, message, suggestion } = problem;
        Self { text: text.into(), span, message, suggestion }
    }

    /// What is wrong, in one line.
    pub fn message(&self) -> &str {
        &self.message
    }

    /// What was probably meant.
    pub fn suggestion(&self) -> Option<&str> {
        self.suggestion.as_deref()
    }

    /// The bytes of the text it is about.
    pub fn span(&self) -> Range<usize> {
        self.span.range()
    }
}

impl std::error::Error for ExpressionError {}

impl fmt::Display for ExpressionError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let said = match &self.suggestion {
            Some(suggestion) => &format!("{}; {suggestion}", self.message),
            None => &self.message,
        };
        point(f, &self.text, self.span(), said)
    }
}

/// An expression that has no value for this question: SERVFAIL (S9.4).
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct EvaluationError(Box<Evaluation>);

#[derive(Clone, PartialEq, Eq, Debug)]
struct Evaluation {
    text: Box<str>,
    span: Span,
    message: String,
}

impl EvaluationError {
    pub(crate) fn new(text: &str, fault: Fault) -> Self {
        Self(Box::new(Evaluation { text: text.into(), span: fault.span, message: fault.message }))
    }

    /// What went wrong, in one line.
    pub fn message(&self) -> &str {
        &self.0.message
    }

    /// The piece of the expression that has no value.
    pub fn piece(&self) -> &str {
        self.0.text.get(self.span()).unwrap_or_default()
    }

    /// Where in the text that piece is, in bytes.
    pub fn span(&self) -> Range<usize> {
        self.0.span.range()
    }
}

impl std::error::Error for EvaluationError {}

/// One line, for logs.
impl fmt::Display for EvaluationError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "in `{}`: {}", self.piece(), self.message())
    }
}

/// Why there is no value, before the text is attached.
#[derive(Debug)]
pub(crate) struct Fault {
    pub(crate) span: Span,
    pub(crate) message: String,
}

impl Fault {
    /// Boxed: what is evaluated carries it in every result, and nearly never has one.
    pub(crate) fn new(span: Span, message: impl Into<String>) -> Box<Self> {
        Box::new(Self { span, message: message.into() })
    }
}

/// How much of a line is shown, in characters; of a longer one the piece around the place.
const SHOWN: usize = 160;

/// The line of `text` that has the place, and under it the mark and what is said of it.
fn point(f: &mut fmt::Formatter<'_>, text: &str, place: Range<usize>, said: &str) -> fmt::Result {
    let start = place.start.min(text.len());
    let line_start = text[..start].rfind('\n').map_or(0, |at| at + 1);
    let line_end = text[start..].find('\n').map_or(text.len(), |at| start + at);
    let before = &text[line_start..start];
    let marked = &text[start..place.end.clamp(start, line_end)];
    let line_length = text[line_start..line_end].chars().count();
    let skipped = if line_length > SHOWN { before.chars().count().saturating_sub(SHOWN / 4) } else { 0 };
    let dots = |is: bool| if is { "…" } else { "" };

    let shown = text[line_start..line_end].chars().skip(skipped).take(SHOWN);
    let rest = line_length.saturating_sub(skipped + SHOWN);
    writeln!(f, "{}{}{}", dots(skipped > 0), shown.collect::<String>(), dots(rest > 0))?;
    // A tab is as wide as a tab.
    let blank = before.chars().skip(skipped).map(|c| if c == '\t' { c } else { ' ' });
    let marks = marked.chars().count().clamp(1, SHOWN - SHOWN / 4);
    write!(f, "{}{}{} {said}", if skipped > 0 { " " } else { "" }, blank.collect::<String>(), "^".repeat(marks))
}
