//! `namewall dns` as a user meets it: what `--check` and `--explain` print, and a process that serves real
//! clients, reads its file again and ends when it is told to.
#![allow(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

mod check;
mod explain;
mod moving;
mod ports;
mod process;
mod reload;
mod serving;
mod sources;
