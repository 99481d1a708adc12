//! Metrics and health of the daemons, and the HTTP server that serves both.
//!
//! ```text
//!  code that counts: plain or atomic numbers, no registry, no lock
//!        ▲ read at a scrape
//!  Export (one per part of a daemon) ──► Metrics (prometheus-client) ──┐
//!  Health (a daemon's loop says that it turns) ────────────────────────┴──► Server: /metrics, /health, /ready
//! ```
//! A [`Metric`] describes a family of samples. Each daemon declares its own in a table, from which docs/metrics.md is
//! made. What a number means is not known here.

mod export;
mod format;
mod health;
mod histogram;
mod metric;
mod server;
mod sizes;

pub use export::{Export, Exposition, Family, Metrics, Value};
pub use format::Format;
pub use health::Health;
pub use histogram::Durations;
pub use metric::{BUILD_INFO, Kind, Label, Metric, Values};
pub use server::{ListenError, Page, Server, Site};
pub use sizes::Sizes;
