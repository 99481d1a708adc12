//! What is told of questions, over real sockets: a DNS server with a Corefile, clients that ask it, an
//! upstream, and whoever is told: a log, dnstap's own reader, HTTP.

mod dnstap;
mod endpoints;
mod errors;
mod metrics;
mod support;
