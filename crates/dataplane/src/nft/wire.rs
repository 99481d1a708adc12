//! The numbers of nf_tables' netlink interface that we use.

pub(crate) const SUBSYSTEM: u16 = 10;
pub(crate) const BATCH_BEGIN: u16 = 0x10;
pub(crate) const BATCH_END: u16 = 0x11;

pub(crate) const IPV4: u8 = 2;
pub(crate) const IPV6: u8 = 10;

/// An element of a list.
pub(crate) const LIST_ELEMENT: u16 = 1;

pub(crate) mod message {
    pub(crate) const NEW_TABLE: u16 = 0;
    pub(crate) const GET_TABLE: u16 = 1;
    pub(crate) const DELETE_TABLE: u16 = 2;
    pub(crate) const NEW_CHAIN: u16 = 3;
    pub(crate) const GET_CHAIN: u16 = 4;
    pub(crate) const DELETE_CHAIN: u16 = 5;
    pub(crate) const NEW_RULE: u16 = 6;
    pub(crate) const GET_RULE: u16 = 7;
    pub(crate) const DELETE_RULE: u16 = 8;
    pub(crate) const NEW_SET: u16 = 9;
    pub(crate) const GET_SET: u16 = 10;
    pub(crate) const DELETE_SET: u16 = 11;
    pub(crate) const NEW_ELEMENT: u16 = 12;
    pub(crate) const GET_ELEMENT: u16 = 13;
    pub(crate) const DELETE_ELEMENT: u16 = 14;
    pub(crate) const GET_GENERATION: u16 = 16;
    pub(crate) const NEW_OBJECT: u16 = 18;
    pub(crate) const GET_OBJECT: u16 = 19;
    pub(crate) const DELETE_OBJECT: u16 = 20;
    pub(crate) const DESTROY_ELEMENT: u16 = 30;
}

pub(crate) mod generation {
    pub(crate) const NUMBER: u16 = 1;
}

pub(crate) mod table {
    pub(crate) const NAME: u16 = 1;
    pub(crate) const FLAGS: u16 = 2;
    pub(crate) const USERDATA: u16 = 6;
    pub(crate) const OWNER_PORT: u16 = 7;
    pub(crate) const OWNER: u32 = 2;
    pub(crate) const PERSIST: u32 = 4;
}

pub(crate) mod chain {
    pub(crate) const TABLE: u16 = 1;
    pub(crate) const NAME: u16 = 3;
    pub(crate) const HOOK: u16 = 4;
    pub(crate) const POLICY: u16 = 5;
    pub(crate) const TYPE: u16 = 7;
    pub(crate) const USERDATA: u16 = 12;
    pub(crate) const HOOK_NUMBER: u16 = 1;
    pub(crate) const HOOK_PRIORITY: u16 = 2;
    pub(crate) const HOOK_DEVICE: u16 = 3;
}

pub(crate) mod rule {
    pub(crate) const TABLE: u16 = 1;
    pub(crate) const CHAIN: u16 = 2;
    pub(crate) const EXPRESSIONS: u16 = 4;
    pub(crate) const USERDATA: u16 = 7;
}

pub(crate) mod set {
    pub(crate) const TABLE: u16 = 1;
    pub(crate) const NAME: u16 = 2;
    pub(crate) const FLAGS: u16 = 3;
    pub(crate) const KEY_TYPE: u16 = 4;
    pub(crate) const KEY_LENGTH: u16 = 5;
    pub(crate) const DATA_TYPE: u16 = 6;
    pub(crate) const DESCRIPTION: u16 = 9;
    pub(crate) const ID: u16 = 10;
    pub(crate) const GC_INTERVAL: u16 = 12;
    pub(crate) const USERDATA: u16 = 13;
    pub(crate) const OBJECT_TYPE: u16 = 15;

    pub(crate) const DESCRIPTION_CONCAT: u16 = 2;
    pub(crate) const FIELD_LENGTH: u16 = 1;

    pub(crate) const INTERVAL: u32 = 0x4;
    pub(crate) const MAP: u32 = 0x8;
    pub(crate) const TIMEOUT: u32 = 0x10;
    pub(crate) const OBJECTS: u32 = 0x40;
    pub(crate) const CONCAT: u32 = 0x80;

    pub(crate) const VERDICT: u32 = 0xffff_ff00;
}

pub(crate) mod element {
    pub(crate) const TABLE: u16 = 1;
    pub(crate) const SET: u16 = 2;
    pub(crate) const ELEMENTS: u16 = 3;
    pub(crate) const KEY: u16 = 1;
    pub(crate) const DATA: u16 = 2;
    pub(crate) const FLAGS: u16 = 3;
    pub(crate) const TIMEOUT: u16 = 4;
    pub(crate) const EXPIRATION: u16 = 5;
    pub(crate) const USERDATA: u16 = 6;
    pub(crate) const OBJECT: u16 = 9;
    pub(crate) const KEY_END: u16 = 10;
    pub(crate) const INTERVAL_END: u32 = 1;
}

/// Objects that a table has by name.
pub(crate) mod object {
    pub(crate) const TABLE: u16 = 1;
    pub(crate) const NAME: u16 = 2;
    pub(crate) const TYPE: u16 = 3;
    pub(crate) const DATA: u16 = 4;
    pub(crate) const USERDATA: u16 = 8;

    /// The type that counts.
    pub(crate) const COUNTER: u32 = 1;
    pub(crate) const COUNTER_BYTES: u16 = 1;
    pub(crate) const COUNTER_PACKETS: u16 = 2;
}

pub(crate) mod data {
    pub(crate) const VALUE: u16 = 1;
    pub(crate) const VERDICT: u16 = 2;
    pub(crate) const VERDICT_CODE: u16 = 1;
    pub(crate) const VERDICT_CHAIN: u16 = 2;
}
