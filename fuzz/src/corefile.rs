//! Any bytes as a Corefile, and what it imports: it is read or refused, and
//! whatever is said of it has a place and one line a part.
//!
//! Parts are separated by lines of `---`: the Corefile first, then the files
//! `1`, `2` and so on.

use namewall_corefile::{FileSpan, Files, Problem, RuleKind, read};
use std::io;
use std::path::Path;

struct Parts<'a>(Vec<&'a str>);

impl Files for Parts<'_> {
    fn read(&self, path: &Path) -> io::Result<String> {
        let number = path.to_str().and_then(|path| path.parse::<usize>().ok());
        let part = number.filter(|number| *number > 0).and_then(|number| self.0.get(number));
        part.map(|part| (*part).to_owned()).ok_or_else(|| io::ErrorKind::NotFound.into())
    }

    fn names(&self, _: &Path) -> io::Result<Vec<String>> {
        Ok((1..self.0.len()).map(|number| number.to_string()).collect())
    }
}

pub fn corefile(bytes: &[u8]) {
    let text = String::from_utf8_lossy(bytes);
    let parts = Parts(text.split("\n---\n").collect());
    let environment = |name: &str| (name != "NONE").then(|| name.to_ascii_lowercase());
    let once = read("Corefile", parts.0[0], &parts, &environment);
    assert_eq!(once, read("Corefile", parts.0[0], &parts, &environment), "it is read the same way twice");
    let lines_of = |place: &FileSpan| {
        let part = place.file.parse::<usize>().ok().and_then(|number| parts.0.get(number)).unwrap_or(&parts.0[0]);
        part.split('\n').count()
    };
    let stands = |place: &FileSpan| place.line > 0 && place.column > 0 && place.line as usize <= lines_of(place);
    let check = |problem: &Problem| {
        assert!(stands(&problem.place), "{problem}");
        assert_eq!(problem.to_string().lines().count(), 3, "{problem}");
    };
    match &once {
        Err(errors) => {
            assert!(!errors.problems.is_empty(), "nothing is refused without a word");
            errors.problems.iter().for_each(check);
        }
        Ok(corefile) => {
            corefile.warnings.iter().for_each(check);
            let lists = corefile.servers.iter().flat_map(|server| &server.firewalls);
            for rule in lists.flat_map(|list| &list.rules) {
                if let RuleKind::Expression { text, .. } = &rule.kind {
                    assert!(stands(&text.place) && !text.text.trim().is_empty(), "{rule:?}");
                }
            }
        }
    }
}
