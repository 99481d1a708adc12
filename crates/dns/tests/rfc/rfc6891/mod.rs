//! Extension mechanisms for DNS (EDNS0).

mod s6_1_1_opt;
mod s6_2_3_payload;
