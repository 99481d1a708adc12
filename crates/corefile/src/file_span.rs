//! Where something stands, and text that knows where it stood.

use namewall_policy::Source;
use std::fmt;
use std::sync::Arc;

/// Words of a file: where they begin, and how many characters they are. Lines and columns count from 1,
/// columns in characters.
#[derive(Clone, PartialEq, Eq, Hash)]
pub struct FileSpan {
    pub file: Arc<str>,
    pub line: u32,
    pub column: u32,
    pub length: u32,
}

impl FileSpan {
    pub fn source(&self) -> Source {
        Source { file: self.file.clone(), line: self.line, column: self.column }
    }
}

impl fmt::Display for FileSpan {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}:{}", self.file, self.line, self.column)
    }
}

impl fmt::Debug for FileSpan {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{self}")
    }
}

/// A piece of a Corefile in another language, as it was written: an expression, a regular expression, a
/// template. Whoever reads it counts its own columns from the place's.
#[derive(Clone, PartialEq, Eq, Hash)]
pub struct Text {
    pub text: Arc<str>,
    pub place: FileSpan,
}

impl fmt::Debug for Text {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:?} at {}", self.text, self.place)
    }
}
