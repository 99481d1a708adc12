//! What tests of a Corefile at work share: `message` writes and reads messages as text, `direct` asks a
//! service as the DNS server does, `live` over sockets, `fake` has engines, `told` what is logged, `tls` upstreams with
//! certificates.

mod direct;
mod fake;
mod live;
mod message;
mod tls;
mod told;

pub(crate) use direct::{Firewall, around, built, check, refused};
pub(crate) use fake::{Engines, Fake, PATIENCE};
pub(crate) use live::{Live, receive, upstream};
pub(crate) use message::{Ask, answer, shown};
pub(crate) use tls::{Authority, TlsUpstream};
pub(crate) use told::LoggedText;

/// Rules that refuse one client's questions, and block an answer for another.
pub(crate) const RULES_BY_CLIENT: &str = "
    firewall query {
        refuse client_ip == '127.0.0.2'
        default allow
    }
    firewall response {
        block client_ip == '127.0.0.3' and response_ip == '192.0.2.1'
        default allow
    }";
