//! The promises of the semantics, one test or more each, named after them.
//!
//! A test gives manifests and says what follows, one line a connection:
//! `shop/web -> shop/db:5432/TCP: deny by NetworkPolicy/shop/db`. The line goes
//! through everything that answers it (`check.rs`), and all must agree.
//! `world.rs` has the small cluster most tests play in, and short ways to write
//! a policy of each kind.

// clippy.toml allows it in tests, and does not see that their helpers are tests.
#![allow(clippy::unwrap_used)]

mod check;
mod question;
mod s1;
mod s10;
mod s10_depends;
mod s10_names;
mod s10_pieces;
mod s10_slips;
mod s10_text;
mod s11;
mod s1_9;
mod s1_exempt;
mod s2;
mod s2_ports;
mod s2_templates;
mod s3;
mod s4;
mod s4_names;
mod s5;
mod s7;
mod s7_services;
mod s8;
mod world;
