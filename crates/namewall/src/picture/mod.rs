//! Pictures of a matrix.
