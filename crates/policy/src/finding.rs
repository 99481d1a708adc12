//! Findings: everything the tool has to say about its input. Nothing is
//! skipped silently (S10.2).

use std::fmt;
use std::sync::Arc;

/// Where something was read: a file, a line and a column, counted from 1.
#[derive(Clone, PartialEq, Eq, Hash, PartialOrd, Ord, Debug)]
pub struct Source {
    pub file: Arc<str>,
    pub line: u32,
    pub column: u32,
}

impl fmt::Display for Source {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // An object of a cluster that lives has no lines.
        if self.line == 0 { f.write_str(&self.file) } else { write!(f, "{}:{}", self.file, self.line) }
    }
}

#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Debug)]
pub enum Severity {
    /// Worth knowing; nothing is wrong.
    Hint,
    /// Legal, and probably not what was meant.
    Warning,
    /// Refused: the object, or a part of it, was left out, closed.
    Error,
}

impl fmt::Display for Severity {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Hint => "hint",
            Self::Warning => "warning",
            Self::Error => "error",
        })
    }
}

/// A message about the input: which object, which field, and what would be accepted.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Finding {
    pub severity: Severity,
    /// A stable name for this kind of finding, like `shadowed-rule`.
    pub code: &'static str,
    /// The object, like `NetworkPolicy shop/web`; empty if not even that is known.
    pub object: String,
    /// The field, like `spec.egress[0].ports[1].port`; empty for the object as a whole.
    pub path: String,
    pub source: Option<Source>,
    pub message: String,
}

impl Finding {
    pub fn error(code: &'static str, object: impl fmt::Display, message: impl Into<String>) -> Self {
        Self::new(Severity::Error, code, object, message)
    }

    pub fn warning(code: &'static str, object: impl fmt::Display, message: impl Into<String>) -> Self {
        Self::new(Severity::Warning, code, object, message)
    }

    pub fn hint(code: &'static str, object: impl fmt::Display, message: impl Into<String>) -> Self {
        Self::new(Severity::Hint, code, object, message)
    }

    fn new(severity: Severity, code: &'static str, object: impl fmt::Display, message: impl Into<String>) -> Self {
        let (object, message) = (object.to_string(), message.into());
        Self { severity, code, object, path: String::new(), source: None, message }
    }

    #[must_use]
    pub fn at(mut self, path: impl Into<String>) -> Self {
        self.path = path.into();
        self
    }

    #[must_use]
    pub fn from_source(mut self, source: Option<Source>) -> Self {
        self.source = source;
        self
    }
}

impl fmt::Display for Finding {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let Some(source) = &self.source {
            write!(f, "{}:{}:{}: ", source.file, source.line, source.column)?;
        }
        write!(f, "{}[{}]", self.severity, self.code)?;
        if !self.object.is_empty() {
            write!(f, " {}", self.object)?;
        }
        if !self.path.is_empty() {
            write!(f, " {}", self.path)?;
        }
        write!(f, ": {}", self.message)
    }
}
