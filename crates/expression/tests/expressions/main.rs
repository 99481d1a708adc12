//! What expressions mean, held to S9, to govaluate where it is followed, and to a second evaluator.

mod agreement;
mod errors;
mod govaluate;
mod lists;
mod meaning;
mod naive;
mod semantics;
mod support;
