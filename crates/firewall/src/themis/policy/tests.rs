//! Small policies, one promise each. Whole ones are compared with Themis itself
//! (`tests/themis_real.rs`).
