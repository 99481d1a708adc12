//! In the DNS, QDCOUNT is (usually) one.

mod s4_qdcount;
