//! Patterns of names as users write them, in any number.

use namewall_policy::domain::{DomainPattern, PatternTable, RulePattern, Wildcard};

/// A table of `count` patterns, and the patterns in the order they went in.
pub fn patterns(count: usize) -> (PatternTable, Vec<DomainPattern>) {
    let mut table = PatternTable::default();
    let pattern = |number: usize| {
        let (written, wildcard) = match number % 3 {
            0 => (format!("api{number}.provider.example"), Wildcard::Subdomains),
            1 => (format!("*.team{number}.cdn.example"), Wildcard::Subdomains),
            _ => (format!("*.zone{number}.example"), Wildcard::OneLabel),
        };
        DomainPattern::parse(&written, wildcard).expect("a pattern is written as users do")
    };
    let patterns: Vec<DomainPattern> = (0..count).map(pattern).collect();
    for pattern in &patterns {
        table.intern(&RulePattern::allow(pattern.clone()));
    }
    (table, patterns)
}
