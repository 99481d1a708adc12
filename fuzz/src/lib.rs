//! What the fuzz targets do with their bytes. There is no libFuzzer here, so
//! the project's tests replay the corpora with the same functions
//! (`crates/namewall/tests/corpora.rs`).
//!
//! Every function panics where a promise is broken, and returns otherwise.

mod answer;
mod cni;
mod corefile;
mod denials;
mod doh;
mod domain_patterns;
mod edns0;
mod exchanges;
mod expression;
mod list;
mod manifests;
mod messages;
mod query;
mod questions;
mod rpz;
mod scenarios;
mod selectors;
mod shaped;
mod state;
mod themis;
mod zone;

pub use answer::answer;
pub use cni::cni;
pub use corefile::corefile;
pub use denials::denials;
pub use doh::doh;
pub use domain_patterns::domain_patterns;
pub use edns0::edns0;
pub use exchanges::exchanges;
pub use expression::expression;
pub use list::list;
pub use manifests::manifests;
pub use messages::messages;
pub use query::query;
pub use questions::questions;
pub use rpz::rpz;
pub use scenarios::scenarios;
pub use selectors::selectors;
pub use shaped::shaped;
pub use state::state;
pub use themis::themis;
pub use zone::zone;

pub type Target = fn(&[u8]);

/// Every target by name: the name of its binary and of its corpus.
pub const TARGETS: [(&str, Target); 21] = [
    ("answer", answer),
    ("cni", cni),
    ("corefile", corefile),
    ("denials", denials),
    ("doh", doh),
    ("domain_patterns", domain_patterns),
    ("edns0", edns0),
    ("exchanges", exchanges),
    ("expression", expression),
    ("list", list),
    ("manifests", manifests),
    ("messages", messages),
    ("query", query),
    ("questions", questions),
    ("rpz", rpz),
    ("scenarios", scenarios),
    ("selectors", selectors),
    ("shaped", shaped),
    ("state", state),
    ("themis", themis),
    ("zone", zone),
];
