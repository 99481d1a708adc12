//! Themis, the policy engine of the first DNS firewall: its policies in process
//! (`policy`), or asked of its servers (`remote`), in its own bytes (`codec`).
//! `request` makes attributes of what is known of a question, `answer` an
//! outcome of what is said to them, and `engine` is both, with a `cache`.
//! docs/themis.md says what is read, and what differs.

mod answer;
mod cache;
pub mod codec;
mod domains;
mod engine;
mod name;
mod network;
pub mod policy;
pub mod remote;
mod request;
mod settings;
mod value;

pub use cache::CacheSettings;
pub use engine::ThemisEngine;
pub use name::{Name, NameError};
pub use network::Network;
pub use settings::{AttributeSetting, Settings, Source, StartError};
pub use value::{DomainSet, Flags, FlagsType, NetworkSet, StringSet, Type, Value};
