//! The blocks of the documents about Corefiles: what is whole starts as it is pasted, and what is not says so.
#![allow(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

use namewall_corefile::read;
use namewall_dns_firewall::{Disk, Strangers, Surroundings, Teller, build};
use namewall_expression::Expression;
use std::path::{Path, PathBuf};
use std::sync::Arc;

const DOCUMENTS: [&str; 4] = ["corefile.md", "expressions.md", "opa.md", "themis.md"];

/// A block: what stands after its fence, where it begins, and what is in it.
struct Fenced {
    info: String,
    line: usize,
    text: String,
}

fn blocks(document: &str) -> Vec<Fenced> {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs").join(document);
    let text = std::fs::read_to_string(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()));
    let mut blocks: Vec<Fenced> = Vec::new();
    let mut is_open = false;
    for (at, line) in text.lines().enumerate() {
        match line.strip_prefix("```") {
            Some(info) if !is_open => {
                blocks.push(Fenced { info: info.trim().to_owned(), line: at + 1, text: String::new() });
            }
            Some(_) => {}
            None if is_open => {
                let block = blocks.last_mut().unwrap();
                block.text.push_str(line);
                block.text.push('\n');
            }
            None => {}
        }
        is_open ^= line.starts_with("```");
    }
    assert!(!is_open, "{document}: a block is not closed");
    blocks
}

/// A folder with the files that a document has.
struct Folder(PathBuf);

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

fn folder(document: &str, blocks: &[Fenced]) -> Folder {
    let path = std::env::temp_dir().join(format!("namewall-docs-{}-{document}", std::process::id()));
    std::fs::create_dir_all(&path).unwrap();
    for block in blocks {
        if let Some(name) = block.info.split_whitespace().find_map(|word| word.strip_prefix("file=")) {
            std::fs::write(path.join(name), &block.text).unwrap();
        }
    }
    Folder(path)
}

#[test]
fn every_whole_corefile_of_the_documents_starts_as_it_is_pasted() {
    let mut whole = 0;
    for document in DOCUMENTS {
        let blocks = blocks(document);
        let folder = folder(document, &blocks);
        // Paths are seen from where the process is started; no other test of this program uses them.
        std::env::set_current_dir(&folder.0).unwrap();
        for block in blocks.iter().filter(|block| block.info == "corefile") {
            let place = format!("docs/{document}:{}", block.line);
            let corefile =
                read("Corefile", &block.text, &Disk, &|_| None).unwrap_or_else(|errors| panic!("{place}\n{errors}"));
            assert_eq!(corefile.warnings.len(), 0, "{place}: {:?}", corefile.warnings);
            let around = Surroundings {
                teller: Arc::new(Teller::start(std::io::sink()).unwrap()),
                identities: Arc::new(Strangers),
                addresses: vec![("lo".to_owned(), "127.0.0.1".parse().unwrap())],
                names: None,
                clusters: None,
            };
            build(&corefile, &around).unwrap_or_else(|errors| panic!("{place}: {errors:?}"));
            whole += 1;
        }
    }
    assert!(whole >= 5, "there are examples: {whole}");
}

#[test]
fn every_expression_of_the_documents_is_read() {
    for document in DOCUMENTS {
        for block in blocks(document).iter().filter(|block| block.info == "expression") {
            for line in block.text.lines() {
                Expression::parse(line).unwrap_or_else(|error| panic!("docs/{document}:{}\n{error}", block.line));
            }
        }
    }
}

#[test]
fn every_block_says_what_it_is() {
    for document in DOCUMENTS {
        for block in blocks(document) {
            let kind = block.info.split_whitespace().next().unwrap_or_default();
            let known = ["corefile", "form", "fragment", "expression", "text", "rego", "json", "yaml"];
            assert!(known.contains(&kind), "docs/{document}:{}: a block is one of {known:?}", block.line);
        }
    }
}
