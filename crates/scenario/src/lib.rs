//! Scenario files: a topology, steps that change it, and probes that say what
//! must come of it. Policy unit tests, run here through `evaluate`, and where
//! there is a [`Reality`], there too.
//!
//! `find` looks for them in folders, `file` reads them, `topology` writes the short forms out as objects,
//! `zones` is the DNS of the world outside, `lookup` what clients ask of it,
//! `settings` what the agent is set to; [`run()`] plays it all, `connections`
//! keeps those that stay open meanwhile. The format is told in docs/scenarios.md.

mod connections;
mod expectation;
mod file;
mod find;
mod lookup;
mod reality;
mod run;
mod settings;
mod topology;
pub mod zones;

pub use connections::{ConnectionResult, Fate};
pub use expectation::Expectation;
pub use file::{Change, ObjectRef, Probe, Queries, Scenario, ScenarioError, Step};
pub use lookup::{ANSWER_TIMEOUT, Expected, ExpectedAnswer, Lookup, LookupResult, Resolved, Then};
pub use reality::{Now, Predicted, ProbeOutcome, Reality};
pub use run::{Means, Outcome, ProbeResult, play, run, run_in};
pub use settings::{AgentSettings, Going, OnLearnTimeout};
