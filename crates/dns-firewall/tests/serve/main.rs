//! A Corefile at work (S9): the service asked directly, as the DNS server asks it, and over real sockets on
//! loopback, with upstreams and engines that do what a test says.
#![allow(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

mod agreement;
mod blocks;
mod cache;
mod cache_live;
mod cache_stale;
mod codes;
mod debug;
mod edns0;
mod encrypted;
mod engines;
mod engines_live;
mod examples;
mod facts;
mod file;
mod fixed;
mod forward;
mod forward_health;
mod forward_tls;
mod hosts;
mod kubernetes;
mod lists;
mod loadbalance;
mod log;
mod loops;
mod rewrite;
mod rpz;
mod rpz_transfer;
mod s9_1;
mod s9_2;
mod s9_3;
mod s9_4;
mod s9_5;
mod samples;
mod shaping;
mod smaller;
#[path = "../../../dns/tests/support/stub.rs"]
mod stub;
mod support;
mod targets;
mod template;
mod whoami;
