//! Measures for making DNS more resilient against forged answers.

mod s9_1_matching;
mod s9_2_entropy;
