//! Domain names: implementation and specification.

mod s2_3_4_sizes;
mod s3_2_1_records;
mod s4_1_1_header;
mod s4_1_4_compression;
mod s4_2_2_tcp;
