//! Protocol modifications for the DNS security extensions.

mod s3_2_2_cd;
