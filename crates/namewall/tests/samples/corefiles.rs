//! Other people's Corefiles, which stand in tests/corefiles.

macro_rules! sample {
    ($name:literal) => {
        include_str!(concat!("../../../../tests/corefiles/", $name, ".corefile"))
    };
}

pub(crate) const BY_TYPE: &str = sample!("original/by-type");
pub(crate) const BY_TYPE_SHORT: &str = sample!("original/by-type-short");
pub(crate) const BY_EDNS0: &str = sample!("original/by-edns0");
pub(crate) const ENGINES: &str = sample!("original/engines");
pub(crate) const POLICY: &str = sample!("original/older-plugin");
pub(crate) const README_CLIENTS: &str = sample!("readmes/clients");
pub(crate) const README_NAMES: &str = sample!("readmes/names");
pub(crate) const README_EDNS0: &str = sample!("readmes/edns0");
pub(crate) const README_FIRST_EDNS0: &str = sample!("readmes/first-edns0");
pub(crate) const README_OPA: &str = sample!("readmes/opa");
pub(crate) const README_THEMIS: &str = sample!("readmes/themis");
pub(crate) const README_ANY: &str = sample!("readmes/any-engine");
