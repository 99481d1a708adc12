//! Clarifications to the DNS specification.

mod s10_1_cname;
mod s11_labels;
mod s5_2_ttls_of_a_set;
mod s8_ttl;
mod s9_tc;
