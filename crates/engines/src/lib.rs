//! The policy engines that rules of the DNS firewall can ask: Themis, Open Policy Agent and Kubernetes RBAC.
//!
//! [`Engine`] is the seam. `themis` and `opa` evaluate policies in this process or ask servers; `rbac` asks the API
//! server. `http` is the client that the engines share which ask over HTTP. Each engine has its own settings: this
//! crate does not know Corefiles, so that a change of a directive does not rebuild an engine.

mod engine;
pub mod http;
pub mod opa;
pub mod rbac;
pub mod themis;

pub use engine::{Engine, EngineError, Judged, Judgement};
