//! Case insensitivity.

mod s3_comparison;
mod s4_preservation;
