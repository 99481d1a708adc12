//! Asking over HTTP: what engines that are somebody else's server have in common. A question is one POST
//! of JSON, and is answered before its deadline or failed by then, whatever the other side does: `client`
//! asks, `tls` says who is trusted and who we are, `addresses` remembers where a name leads, and `slots`
//! bounds how many questions are under way. Everything blocks: it runs on threads that may wait
//! ([`crate::Judged::Later`]). [`ServerUrl`] and [`TlsFiles`] are the settings.

mod addresses;
mod client;
#[cfg(test)]
pub(crate) mod server;
mod settings;
mod slots;
mod tls;

pub(crate) use client::{Client, Question};
pub use settings::{ServerUrl, TlsFiles};
pub(crate) use slots::QueueSlots;
pub use tls::{TlsError, client_config};
