//! Domain names: concepts and facilities.

mod s3_6_2_aliases;
