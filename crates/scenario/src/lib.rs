//! Scenario files: a topology, steps that change it, and probes that say what
//! must come of it. Policy unit tests, run here through `evaluate`, and where
//! there is a [`Reality`], there too.
//!
//! `file` reads them, `topology` writes the short forms out as objects,
//! [`run()`] plays them, `connections` keeps those that stay open meanwhile. The format is told in docs/scenarios.md.

mod connections;
mod expectation;
mod file;
mod reality;
mod run;
mod topology;

pub use connections::{ConnectionResult, Fate};
pub use expectation::Expectation;
pub use file::{Change, ObjectRef, Probe, Scenario, ScenarioError, Step};
pub use reality::{Now, Predicted, Reality, Seen};
pub use run::{Outcome, ProbeResult, run, run_in};
