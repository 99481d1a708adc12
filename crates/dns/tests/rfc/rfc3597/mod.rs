//! Handling of unknown record types.

mod s3_transparency;
mod s4_names;
