//! DNS transport over TCP.

mod s6_2_1_reuse;
mod s6_2_3_idle;
mod s6_2_4_ends;
mod s7_out_of_order;
mod s8_framing;
