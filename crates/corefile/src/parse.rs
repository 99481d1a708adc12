//! Words as server blocks and lines, with imports in their place. It knows the form of a Corefile, and
//! no directive.

use crate::files::{Files, beside};
use crate::lexer::{Environment, MOST_TOKENS, Origin, Token, tokens};
use crate::problem::Report;
use crate::{FileSpan, Text};
use std::collections::HashMap;
use std::sync::Arc;

/// The most bytes that a Corefile may have, together with all files that it imports.
pub const MAX_BYTES: usize = 4 << 20;
const MOST_IMPORTS: usize = 10_000;
/// Imports within imports, and blocks within blocks.
const DEEPEST: usize = 32;

/// A server block as written.
#[derive(Debug)]
pub(crate) struct Server {
    pub(crate) keys: Vec<Token>,
    pub(crate) lines: Vec<Line>,
    pub(crate) place: FileSpan,
}

/// A directive, or an option of one: a name, what follows it on its line, and its block.
#[derive(Debug)]
pub(crate) struct Line {
    pub(crate) name: Token,
    pub(crate) args: Vec<Token>,
    pub(crate) block: Option<Block>,
}

#[derive(Debug)]
pub(crate) struct Block {
    pub(crate) open: FileSpan,
    pub(crate) lines: Vec<Line>,
}

impl Line {
    pub(crate) fn place(&self) -> &FileSpan {
        &self.name.place
    }

    pub(crate) fn lines(&self) -> &[Line] {
        self.block.as_ref().map_or(&[], |block| &block.lines)
    }

    /// All of its words, as written.
    pub(crate) fn written(&self) -> Arc<str> {
        let words = [std::slice::from_ref(&self.name), &self.args].concat();
        Token::as_written(&words).map_or_else(|| self.name.text.clone(), |written| written.text)
    }

    /// Its words from one of them to the end of the line, as written. Where it is one word in quotes, the
    /// quotes were there to keep it together, and are no part of it.
    pub(crate) fn text_from(&self, at: usize) -> Option<Text> {
        match self.args.get(at..)? {
            [only] if only.is_quoted => Some(only.content()),
            several => Token::as_written(several),
        }
    }
}

/// Everything outside the Corefile itself.
#[derive(Clone, Copy)]
pub(crate) struct World<'a> {
    pub(crate) files: &'a dyn Files,
    pub(crate) environment: Environment<'a>,
}

pub(crate) fn parse(name: &str, text: &str, world: World<'_>, report: &mut Report) -> Vec<Server> {
    let name: Arc<str> = name.into();
    let mut parser = Parser {
        root: name.clone(),
        world,
        report,
        ahead: Vec::new(),
        snippets: HashMap::new(),
        bytes: 0,
        tokens: 0,
        imports: 0,
        is_full: false,
    };
    let start = FileSpan { file: name.clone(), line: 1, column: 1, length: 1 };
    let words = parser.tokens_of(&name, text, &start);
    if parser.has_room(&words, &start) {
        parser.put_back(words);
    }
    parser.servers()
}

struct Parser<'a, 'r> {
    root: Arc<str>,
    world: World<'a>,
    report: &'r mut Report,
    /// What comes next, the next one last: imports are put on top.
    ahead: Vec<Token>,
    snippets: HashMap<Arc<str>, Vec<Token>>,
    bytes: usize,
    tokens: usize,
    imports: usize,
    /// Whether a limit was met: nothing more is imported.
    is_full: bool,
}

impl Parser<'_, '_> {
    fn servers(&mut self) -> Vec<Server> {
        let mut servers = Vec::new();
        while let Some(first) = self.ahead.pop() {
            if first.is("import") {
                self.import(&first);
            } else if first.is("}") {
                self.stray(&first);
            } else if first.is("{") {
                self.report
                    .error("no-zone", &first.place, "a server block needs a zone before its `{`")
                    .help("write `. {` for every name");
                self.lines(Some(&first), 0);
            } else {
                servers.extend(self.server(first));
            }
        }
        servers
    }

    fn server(&mut self, first: Token) -> Option<Server> {
        let place = first.place.clone();
        let keys = self.keys(first);
        let is_open = self.ahead.last().is_some_and(|next| next.is("{"));
        if let [only] = &keys[..]
            && let Some(name) = only.text.strip_prefix('(').and_then(|name| name.strip_suffix(')'))
        {
            self.snippet(name.into(), only);
            return None;
        }
        let lines = if is_open {
            let open = self.ahead.pop();
            self.lines(open.as_ref(), 0)
        } else {
            self.lines(None, 0)
        };
        (!keys.is_empty()).then_some(Server { keys, lines, place })
    }

    /// The keys of a server block: to the end of the line, and on where it ends with a comma.
    fn keys(&mut self, first: Token) -> Vec<Token> {
        let mut keys: Vec<Token> = Vec::new();
        let mut next = Some(first);
        let mut comma: Option<FileSpan> = None;
        while let Some(mut key) = next.take() {
            comma = None;
            if let Some(text) = key.text.strip_suffix(',') {
                key.text = text.into();
                comma = Some(key.place.clone());
            }
            if !key.text.is_empty() {
                keys.push(key);
            }
            while comma.is_some() && self.ahead.last().is_some_and(|next| next.is("import") && next.starts_line) {
                if let Some(import) = self.ahead.pop() {
                    self.import(&import);
                }
            }
            match self.ahead.last() {
                Some(ahead) if ahead.is("{") => break,
                Some(ahead) if ahead.starts_line && comma.is_none() => break,
                Some(_) => next = self.ahead.pop(),
                None => break,
            }
        }
        if let Some(place) = comma {
            self.report.error("extra-comma", &place, "another zone must follow the comma").help("remove the comma");
        }
        keys
    }

    /// The lines of a block, to its `}`; without braces to the end.
    fn lines(&mut self, open: Option<&Token>, depth: usize) -> Vec<Line> {
        let mut lines = Vec::new();
        loop {
            let Some(next) = self.ahead.pop() else {
                if let Some(open) = open {
                    self.report
                        .error("unclosed-block", &open.place, "this block is never closed")
                        .help("add a `}` where it ends");
                }
                return lines;
            };
            if next.is("}") {
                if open.is_some() {
                    return lines;
                }
                self.stray(&next);
            } else if next.is("{") {
                self.report
                    .error("stray-brace", &next.place, "this `{` belongs to nothing")
                    .help("a block opens on the line of the directive it belongs to");
                self.skip_block(&next);
            } else if next.is("import") {
                self.import(&next);
            } else {
                lines.push(self.line(next, depth));
            }
        }
    }

    fn line(&mut self, name: Token, depth: usize) -> Line {
        let mut line = Line { name, args: Vec::new(), block: None };
        while let Some(next) = self.ahead.pop_if(|next| !next.starts_line && !next.is("}")) {
            if !next.is("{") {
                line.args.push(next);
                continue;
            }
            if depth >= DEEPEST {
                self.report
                    .error("too-deep", &next.place, format!("more than {DEEPEST} blocks within each other"))
                    .help("no directive has that many");
                self.skip_block(&next);
                break;
            }
            line.block = Some(Block { open: next.place.clone(), lines: self.lines(Some(&next), depth + 1) });
            if let Some(after) = self.ahead.last().filter(|after| !after.starts_line && !after.is("}")) {
                self.report
                    .error("after-brace", &after.place, "nothing may follow a `}` on its line")
                    .help("begin a new line");
            }
            break;
        }
        line
    }

    fn stray(&mut self, brace: &Token) {
        self.report.error("stray-brace", &brace.place, "this `}` closes nothing").help("remove it");
    }

    /// Passes over a block, whatever is in it.
    fn skip_block(&mut self, open: &Token) -> Vec<Token> {
        let mut body = Vec::new();
        let mut depth = 1usize;
        while let Some(next) = self.ahead.pop() {
            depth = if next.is("{") {
                depth + 1
            } else if next.is("}") {
                depth - 1
            } else {
                depth
            };
            if depth == 0 {
                return body;
            }
            body.push(next);
        }
        self.report.error("unclosed-block", &open.place, "this block is never closed").help("add a `}` where it ends");
        body
    }

    /// `(name) { … }`: kept as words, until it is imported.
    fn snippet(&mut self, name: Arc<str>, key: &Token) {
        let Some(open) = self.ahead.pop_if(|next| next.is("{")) else {
            self.report
                .error("bad-snippet", &key.place, format!("the snippet `{name}` has no block"))
                .help(format!("write `({name}) {{`, its lines and `}}`"));
            return;
        };
        let mut body = self.skip_block(&open);
        if let Some(first) = body.first_mut() {
            first.starts_line = true;
        }
        if self.snippets.contains_key(&name) {
            self.report
                .error("defined-twice", &key.place, format!("the snippet `{name}` is there already"))
                .help("call one of them otherwise");
            return;
        }
        self.snippets.insert(name, body);
    }

    /// `import NAME|FILE|PATTERN`: what it names is put where it stands.
    fn import(&mut self, import: &Token) {
        let mut args = Vec::new();
        while let Some(next) = self.ahead.pop_if(|next| !next.starts_line && !next.is("}")) {
            args.push(next);
        }
        if self.is_full {
            return;
        }
        let usage = "write `import NAME`, with the name of a snippet, a file or a pattern of files";
        let [target] = &args[..] else {
            match args.get(1) {
                Some(second) => self
                    .report
                    .error("bad-import", &second.place, "`import` takes one argument")
                    .help("arguments for snippets are Caddy 2's, CoreDNS has none: write the snippet once for each"),
                None => self.report.error("bad-import", &import.place, "`import` names nothing").help(usage),
            }
            return;
        };
        if target.text.is_empty() {
            self.report.error("bad-import", &target.place, "`import` names nothing").help(usage);
            return;
        }
        self.imports += 1;
        if self.imports > MOST_IMPORTS {
            self.full(&import.place, format!("more than {MOST_IMPORTS} imports"));
        } else if let Some(body) = self.snippets.get(&target.text).cloned() {
            self.put(format!("({})", target.text), body, import);
        } else {
            self.import_files(target, import);
        }
    }

    fn import_files(&mut self, target: &Token, import: &Token) {
        let path = beside(&target.place.file, &target.text);
        let pattern = path.file_name().map(|name| name.to_string_lossy().into_owned()).unwrap_or_default();
        if !target.text.contains(['*', '?', '[', ']']) {
            self.import_file(&path.to_string_lossy(), target, import);
            return;
        }
        let folder = path.parent().unwrap_or(&path);
        let many = |c: char| target.text.matches(c).count() > 1;
        if many('*') || many('?') || target.text.contains(['[', ']']) || !pattern.contains(['*', '?']) {
            self.report
                .error("bad-import", &target.place, format!("`{}` is not a pattern of files", target.text))
                .help("one `*` and one `?` are accepted, in the last part of the path");
            return;
        }
        // An empty list is no error, as with CoreDNS: the folder may be there for later.
        let names = self.world.files.like(folder, &pattern).unwrap_or_default();
        if names.is_empty() {
            self.report.warning("empty-import", &target.place, format!("no file is like `{}`", target.text));
        }
        // The last is put first, so that the first is read first.
        for name in names.iter().rev() {
            self.import_file(&folder.join(name).to_string_lossy(), target, import);
        }
    }

    fn import_file(&mut self, path: &str, target: &Token, import: &Token) {
        if self.is_full {
            return;
        }
        match self.world.files.read(path.as_ref()) {
            Ok(text) => {
                let name: Arc<str> = path.into();
                if !self.is_cycle(&name, import) {
                    let words = self.tokens_of(&name, &text, &target.place);
                    self.put(path.to_owned(), words, import);
                }
            }
            Err(error) => {
                let message = format!("`{path}` cannot be imported: {error}");
                let problem = self.report.error("bad-import", &target.place, message);
                let near = crate::suggest::nearest(&target.text, self.snippets.keys().map(|name| &**name));
                if let Some(near) = near {
                    problem.help(format!("did you mean the snippet `{near}`?"));
                } else if error.kind() == std::io::ErrorKind::NotFound {
                    problem.help("a snippet stands before what imports it, a path is seen from the file it is in");
                } else {
                    problem.help("it must be a text file that can be read");
                }
            }
        }
    }

    /// Whether this is imported by itself, which is reported.
    fn is_cycle(&mut self, what: &str, import: &Token) -> bool {
        let mut chain = vec![what.to_owned()];
        let mut origin = import.origin.clone();
        while let Some(importer) = origin {
            chain.push(importer.what.to_string());
            if *importer.what == *what {
                break;
            }
            origin = importer.parent.clone();
        }
        if chain.len() == 1 || chain.last().map(String::as_str) != Some(what) {
            if what != &*self.root {
                return false;
            }
            chain.push(what.to_owned());
        }
        chain.reverse();
        self.report
            .error("import-cycle", &import.place, format!("`{what}` imports itself: {}", chain.join(" imports ")))
            .help("remove one of these imports");
        true
    }

    /// Puts words where an import stood.
    fn put(&mut self, what: String, mut words: Vec<Token>, import: &Token) {
        if what.starts_with('(') && self.is_cycle(&what, import) {
            return;
        }
        let depth = import.origin.as_ref().map_or(1, |origin| origin.depth + 1);
        if depth > DEEPEST {
            self.full(&import.place, format!("more than {DEEPEST} imports within each other"));
            return;
        }
        if !self.has_room(&words, &import.place) {
            return;
        }
        let origin = Arc::new(Origin { what: what.into(), parent: import.origin.clone(), depth });
        words.iter_mut().for_each(|word| word.origin = Some(origin.clone()));
        self.put_back(words);
    }

    fn has_room(&mut self, words: &[Token], place: &FileSpan) -> bool {
        self.tokens += words.len();
        if self.tokens > MOST_TOKENS {
            self.full(place, format!("more than {MOST_TOKENS} words, with all that is imported"));
        }
        self.tokens <= MOST_TOKENS
    }

    fn put_back(&mut self, words: Vec<Token>) {
        self.ahead.extend(words.into_iter().rev());
    }

    fn tokens_of(&mut self, name: &Arc<str>, text: &str, place: &FileSpan) -> Vec<Token> {
        self.bytes += text.len();
        if self.bytes > MAX_BYTES {
            self.full(place, format!("more than {} MiB of text, with all that is imported", MAX_BYTES >> 20));
            return Vec::new();
        }
        let text: Arc<str> = text.into();
        self.report.add_file(name, &text);
        let words = tokens(name, &text, self.world.environment, self.report);
        for word in words.iter().filter(|word| word.text.contains("{args[") || word.text.contains("{args.")) {
            self.report
                .error("bad-import", &word.place, "snippets have no arguments")
                .help("they are Caddy 2's, CoreDNS has none: write the snippet once for each");
        }
        words
    }

    fn full(&mut self, place: &FileSpan, message: String) {
        if !self.is_full {
            self.report.error("too-much", place, message).help("nothing more is read");
        }
        self.is_full = true;
    }
}
