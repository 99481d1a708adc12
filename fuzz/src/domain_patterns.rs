//! Lines of text as patterns and as names, under both meanings of `*`.

use namewall_policy::domain::{DomainName, DomainPattern, PatternTable, RulePattern, Wildcard};

pub fn domain_patterns(bytes: &[u8]) {
    let text = String::from_utf8_lossy(bytes);
    let lines: Vec<&str> = text.split('\n').take(24).collect();
    let mut table = PatternTable::default();
    for line in &lines {
        for wildcard in [Wildcard::Subdomains, Wildcard::OneLabel] {
            let Ok(pattern) = DomainPattern::parse(line, wildcard) else { continue };
            reads_back(&pattern, wildcard);
            pattern.covers_public_suffix();
            for pattern in [RulePattern::allow(pattern.clone()), RulePattern::deny(pattern)] {
                let id = table.intern(&pattern);
                assert_eq!(table.get(id), &pattern);
                assert_eq!(table.intern(&pattern), id, "a pattern has one id");
            }
        }
    }
    for name in lines.iter().filter_map(|line| line.parse::<DomainName>().ok()) {
        table_agrees(&table, &name);
        let deeper: Result<DomainName, _> = format!("a.{name}").parse();
        if let Ok(deeper) = deeper {
            assert!(deeper.is_under(&name) && !name.is_under(&deeper), "{deeper} is under {name}");
            table_agrees(&table, &deeper);
        }
    }
}

/// What is stored is canonical: read again it is the same.
fn reads_back(pattern: &DomainPattern, wildcard: Wildcard) {
    let domain = pattern.domain();
    let text = match pattern {
        DomainPattern::Exact(_) => domain.to_string(),
        DomainPattern::Subdomains(_) | DomainPattern::OneLabel(_) => format!("*.{domain}"),
    };
    assert_eq!(DomainPattern::parse(&text, wildcard).as_ref(), Ok(pattern), "`{text}` reads back");
    assert!(domain.as_str().len() <= 253 && domain.labels().all(|label| (1..=63).contains(&label.len())), "{domain}");
    assert!(!domain.as_str().bytes().any(|byte| byte.is_ascii_uppercase()), "{domain}");
}

fn table_agrees(table: &PatternTable, name: &DomainName) {
    let mut fast = table.matching(name);
    fast.sort();
    let slow: Vec<_> = table.iter().filter(|(_, pattern)| pattern.names.matches(name)).map(|(id, _)| id).collect();
    assert_eq!(fast, slow, "patterns for {name}");
    for (wide, narrow) in slow.iter().flat_map(|&a| table.iter().map(move |(b, _)| (a, b))) {
        let (wide, narrow) = (table.get(wide), table.get(narrow));
        assert!(!narrow.covers(wide) || narrow.names.matches(name), "{narrow} covers {wide} but misses {name}");
    }
}
