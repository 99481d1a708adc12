//! Each lint where it reports something and where it is silent, from manifests.

mod check;
mod dns;
mod kinds;
mod names;
mod networks;
mod rules;
mod selects;
mod shadow;
