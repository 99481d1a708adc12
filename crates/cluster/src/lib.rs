//! Kubernetes' words: manifests and API kinds, lowered to the policy core's.
//! What an object says is read here; what follows from it is decided there.
//!
//! `manifests` reads files into [`Document`]s (trees that know their lines),
//! `api` has the kinds, and [`lower()`] makes a Snapshot of them.

pub mod api;
mod document;
mod lower;
mod manifests;
pub mod yaml;

pub use document::Document;
pub use lower::{ENFORCEMENT_ANNOTATION, Lowered, Resolved, Settings, lower};
pub use manifests::{LoadError, Manifests, load};
