//! The client and the engine with servers that do as they like: that hang, lie
//! or go away (`hostile`), and that do what they should (`engine`). `fake` is
//! those servers. Themis' own is asked in `themis_real`.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

mod engine;
mod fake;
mod hostile;
