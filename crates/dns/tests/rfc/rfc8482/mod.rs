//! Minimal-sized responses to queries of the type ANY.

mod s4_any;
