//! The server with real sockets on loopback, against upstreams that do what a test says.

mod forwarding;
mod holding;
mod stub;
mod tcp;
