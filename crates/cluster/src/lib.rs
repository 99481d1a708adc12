//! Kubernetes' words: manifests and API kinds, lowered to the policy core's.
//! What an object says is read here; what follows from it is decided there.
//!
//! [`kinds`] has the table of kinds, and a file for each. `manifests` reads files
//! into [`Document`]s (trees that know their lines), and [`lower()`] makes a
//! Snapshot of them. [`Store`] has the objects of a watched cluster, with those
//! fields only that are looked at.

mod attached;
mod dns_service;
mod document;
mod facts;
mod kept;
pub mod kinds;
mod lean;
mod live;
mod lower;
mod manifests;
mod record;
pub mod resolver;
mod store;
mod stored;
mod stored_facts;
mod stored_objects;
pub mod yaml;

pub use attached::{PodAddresses, PodUid, give_addresses};
pub use dns_service::{find_dns_service, no_dns_service};
pub use document::Document;
pub use kept::{LastGood, Read};
pub use lower::{
    API_SERVER_PORT, Described, DescribedService, ENFORCEMENT_ANNOTATION, Endpoints, Lowered, NO_KIND, Resolved,
    Settings, lower, pods,
};
pub use manifests::{
    LoadError, MAX_FILE, Manifests, Reading, Survey, is_blank, load, load_regular, read, read_text, survey,
};
pub use record::Record;
pub use store::{Key, Listing, Store, StoreVersions};
pub use stored::{MAX_STORED, Stored, StoredEntry, StoredError, digest};
pub use stored_objects::UnknownObject;
