//! One transaction: the kernel takes all of it or nothing.

use super::expression::Expression;
use super::rule::Rule;
use super::set::{Element, Field, Holds, Passing, SWEEP, SetSpec, Transient, Twins, Version};
use super::table::{Chain, Hook, TableFamily, TableRef};
use super::wire::{self, LIST_ELEMENT, SUBSYSTEM, chain, element, message, object, rule, set, table};
use crate::netlink::{APPEND, CREATE, Messages};
use std::borrow::Borrow;

/// A nested attribute's length has sixteen bits; an element takes some 100 bytes.
const ELEMENTS_BYTES: usize = 48 << 10;
/// A transaction with the leases of a look-up takes some 400 bytes, and those of a busy turn a few thousand. Most others
/// are larger, and few.
const USUAL_BYTES: usize = 2 << 10;
/// nft's name for a rule's comment.
const COMMENT: u8 = 0;
pub(super) const COMMENT_MAX: usize = 127;

#[derive(Debug)]
pub(crate) struct Batch {
    messages: Messages,
    family: TableFamily,
    table: String,
    sets: u32,
    operations: usize,
}

fn kind(message: u16) -> u16 {
    SUBSYSTEM << 8 | message
}

/// nfnetlink's fixed part: family, version, resource.
pub(crate) fn fixed(family: u8, resource: u16) -> [u8; 4] {
    let [high, low] = resource.to_be_bytes();
    [family, 0, high, low]
}

impl Batch {
    pub(crate) fn new<'t>(table: impl Into<TableRef<'t>>) -> Self {
        let TableRef { family, name } = table.into();
        let mut messages = Messages::with_capacity(USUAL_BYTES);
        messages.begin(wire::BATCH_BEGIN, 0, &fixed(0, SUBSYSTEM));
        Self { messages, family, table: name.to_owned(), sets: 0, operations: 0 }
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.operations == 0
    }

    pub(crate) fn operations(&self) -> usize {
        self.operations
    }

    /// The whole, acknowledged after its last operation.
    pub(crate) fn finish(mut self) -> Messages {
        self.messages.acknowledge();
        self.messages.begin(wire::BATCH_END, 0, &fixed(0, SUBSYSTEM));
        self.messages
    }

    fn begin(&mut self, message: u16, flags: u16) {
        self.operations += 1;
        self.messages.begin(kind(message), flags, &fixed(self.family as u8, 0));
    }

    pub(crate) fn add_table(&mut self, flags: u32, note: &str) {
        self.begin(message::NEW_TABLE, CREATE);
        self.messages.text(table::NAME, &self.table);
        self.messages.u32(table::FLAGS, flags);
        self.messages.bytes(table::USERDATA, &comment(note));
    }

    pub(crate) fn delete_table(&mut self) {
        self.begin(message::DELETE_TABLE, 0);
        self.messages.text(table::NAME, &self.table);
    }

    pub(crate) fn add_chain(&mut self, name: &str, Chain { hook, comment: about, .. }: &Chain) {
        self.begin(message::NEW_CHAIN, CREATE);
        self.messages.text(chain::TABLE, &self.table);
        self.messages.text(chain::NAME, name);
        if let Some(Hook { point, device, priority, kind, fallback }) = hook {
            self.messages.nested(chain::HOOK, |out| {
                out.u32(chain::HOOK_NUMBER, point.number());
                out.u32(chain::HOOK_PRIORITY, *priority as u32);
                if let Some(device) = device {
                    out.text(chain::HOOK_DEVICE, device);
                }
            });
            self.messages.u32(chain::POLICY, *fallback as u32);
            self.messages.text(chain::TYPE, kind.name());
        }
        if let Some(about) = about {
            self.messages.bytes(chain::USERDATA, &comment(about));
        }
    }

    pub(crate) fn delete_chain(&mut self, name: &str) {
        self.begin(message::DELETE_CHAIN, 0);
        self.messages.text(chain::TABLE, &self.table);
        self.messages.text(chain::NAME, name);
    }

    /// Removes every rule of a chain.
    pub(crate) fn clear_chain(&mut self, name: &str) {
        self.begin(message::DELETE_RULE, 0);
        self.messages.text(rule::TABLE, &self.table);
        self.messages.text(rule::CHAIN, name);
    }

    pub(crate) fn add_rules(&mut self, name: &str, chain: &Chain) {
        for rule in &chain.rules {
            self.add_rule(name, rule);
        }
    }

    fn add_rule(&mut self, name: &str, rule: &Rule) {
        self.add_expressions(name, &rule.expressions(), rule.comment.as_deref());
    }

    pub(crate) fn add_expressions(&mut self, name: &str, expressions: &[Expression], about: Option<&str>) {
        self.begin(message::NEW_RULE, CREATE | APPEND);
        self.messages.text(rule::TABLE, &self.table);
        self.messages.text(rule::CHAIN, name);
        self.messages.nested(rule::EXPRESSIONS, |out| {
            for expression in expressions {
                expression.write(out);
            }
        });
        if let Some(about) = about {
            self.messages.bytes(rule::USERDATA, &comment(about));
        }
    }

    pub(crate) fn add_set(&mut self, spec: &SetSpec) {
        let concatenated = spec.key.len() > 1;
        let mut flags = 0;
        for (is, flag) in [
            (spec.interval, set::INTERVAL),
            (spec.holds == Holds::Verdicts, set::MAP),
            (spec.holds == Holds::Counters, set::OBJECTS),
            (spec.timeout, set::TIMEOUT),
            (concatenated, set::CONCAT),
        ] {
            flags |= if is { flag } else { 0 };
        }
        self.sets += 1;
        self.begin(message::NEW_SET, CREATE);
        let out = &mut self.messages;
        out.text(set::TABLE, &self.table);
        out.text(set::NAME, &spec.name);
        out.u32(set::FLAGS, flags);
        out.u32(set::KEY_TYPE, spec.key_type());
        out.u32(set::KEY_LENGTH, spec.key_length());
        match spec.holds {
            Holds::Keys => {}
            Holds::Verdicts => out.u32(set::DATA_TYPE, set::VERDICT),
            Holds::Counters => out.u32(set::OBJECT_TYPE, object::COUNTER),
        }
        out.u32(set::ID, self.sets);
        if concatenated {
            out.nested(set::DESCRIPTION, |out| {
                out.nested(set::DESCRIPTION_CONCAT, |out| {
                    for length in spec.field_lengths() {
                        out.nested(LIST_ELEMENT, |out| out.u32(set::FIELD_LENGTH, length));
                    }
                });
            });
        }
        if spec.timeout {
            out.u32(set::GC_INTERVAL, SWEEP.as_millis() as u32);
        }
        out.bytes(set::USERDATA, &set_userdata(spec));
    }

    /// Adds a counter that elements can lead to. One that is there stays as it is.
    pub(crate) fn add_counter(&mut self, name: &str, about: &str) {
        self.begin(message::NEW_OBJECT, CREATE);
        self.messages.text(object::TABLE, &self.table);
        self.messages.text(object::NAME, name);
        self.messages.u32(object::TYPE, object::COUNTER);
        self.messages.nested(object::DATA, |_| {});
        self.messages.bytes(object::USERDATA, &comment(about));
    }

    pub(crate) fn delete_counter(&mut self, name: &str) {
        self.begin(message::DELETE_OBJECT, 0);
        self.messages.text(object::TABLE, &self.table);
        self.messages.text(object::NAME, name);
        self.messages.u32(object::TYPE, object::COUNTER);
    }

    /// Removes every element of a set.
    pub(crate) fn clear_set(&mut self, name: &str) {
        self.begin(message::DELETE_ELEMENT, 0);
        self.messages.text(element::TABLE, &self.table);
        self.messages.text(element::SET, name);
    }

    pub(crate) fn delete_set(&mut self, name: &str) {
        self.begin(message::DELETE_SET, 0);
        self.messages.text(set::TABLE, &self.table);
        self.messages.text(set::NAME, name);
    }

    pub(crate) fn add_elements(&mut self, set: &str, elements: impl Iterator<Item = impl Borrow<Element>>) {
        self.elements(message::NEW_ELEMENT, set, elements.map(|element| (element, None)));
    }

    /// Elements that go by themselves.
    pub(crate) fn add_passing(&mut self, sets: Twins, passing: &Passing) {
        for (version, elements) in Version::BOTH.into_iter().zip(passing) {
            self.add_transient(sets[version], elements.iter());
        }
    }

    pub(crate) fn add_transient<'e>(&mut self, set: &str, elements: impl Iterator<Item = &'e Transient>) {
        self.elements(message::NEW_ELEMENT, set, elements.map(|one| (&one.element, Some(one))));
    }

    /// Such as may have gone by themselves meanwhile.
    pub(crate) fn destroy_elements(&mut self, set: &str, elements: impl Iterator<Item = impl Borrow<Element>>) {
        self.elements(message::DESTROY_ELEMENT, set, elements.map(|element| (element, None)));
    }

    pub(crate) fn delete_elements(&mut self, set: &str, elements: impl Iterator<Item = impl Borrow<Element>>) {
        self.elements(message::DELETE_ELEMENT, set, elements.map(|element| (element, None)));
    }

    fn elements<'e>(
        &mut self,
        message: u16,
        set: &str,
        elements: impl Iterator<Item = (impl Borrow<Element>, Option<&'e Transient>)>,
    ) {
        let mut elements = elements.peekable();
        while elements.peek().is_some() {
            self.begin(message, if message == message::NEW_ELEMENT { CREATE } else { 0 });
            self.messages.text(element::TABLE, &self.table);
            self.messages.text(element::SET, set);
            self.messages.nested(element::ELEMENTS, |out| {
                let start = out.len();
                while out.len() - start < ELEMENTS_BYTES
                    && let Some((element, passing)) = elements.next()
                {
                    element.borrow().write(out, passing);
                }
            });
        }
    }
}

/// A comment as nft reads it: kind, length, text, zero.
pub(super) fn comment(text: &str) -> Vec<u8> {
    let mut bytes = Vec::new();
    write_comment(&mut bytes, cut_comment(text));
    bytes
}

/// The same, for a text that is short enough.
pub(super) fn write_comment(bytes: &mut Vec<u8>, text: &str) {
    bytes.extend_from_slice(&[COMMENT, text.len() as u8 + 1]);
    bytes.extend_from_slice(text.as_bytes());
    bytes.push(0);
}

/// As much of a comment as nft takes.
pub(crate) fn cut_comment(text: &str) -> &str {
    let mut end = text.len().min(COMMENT_MAX);
    while !text.is_char_boundary(end) {
        end -= 1;
    }
    &text[..end]
}

/// The text of a comment, as it was written.
pub(crate) fn read_comment(userdata: &[u8]) -> Option<&str> {
    let [COMMENT, length, rest @ ..] = userdata else { return None };
    let text = rest.get(..usize::from(*length))?;
    std::str::from_utf8(text.strip_suffix(&[0]).unwrap_or(text)).ok()
}

/// nft's names for what a set's userdata says.
const KEY_BYTE_ORDER: u8 = 0;
const SET_COMMENT: u8 = 7;
/// The machine's own byte order.
const HOST_ENDIAN: u32 = 1;
/// The network's byte order; that of a concatenation, whose parts have their own.
const BIG_ENDIAN: u32 = 2;

/// What nft needs to know to show a set: its byte order, and what it is there for.
fn set_userdata(spec: &SetSpec) -> Vec<u8> {
    let mut bytes = vec![KEY_BYTE_ORDER, 4];
    let order = if spec.key == [Field::Interface] { HOST_ENDIAN } else { BIG_ENDIAN };
    bytes.extend_from_slice(&order.to_ne_bytes());
    if let Some(purpose) = spec.purpose() {
        let [_, text @ ..] = &comment(purpose)[..] else { return bytes };
        bytes.push(SET_COMMENT);
        bytes.extend_from_slice(text);
    }
    bytes
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_set_says_its_byte_order_and_what_it_is_there_for() {
        let plain = SetSpec::new("net4/0123", &[Field::Address(Version::V4)], Holds::Keys);
        let order = BIG_ENDIAN.to_ne_bytes();
        assert_eq!(set_userdata(&plain), [&[KEY_BYTE_ORDER, 4][..], &order].concat());
        let pods = SetSpec::new("pod4", &[Field::Address(Version::V4)], Holds::Keys);
        let text = b"all pods of the cluster\0";
        let expected = [&[KEY_BYTE_ORDER, 4][..], &order, &[SET_COMMENT, text.len() as u8], text].concat();
        assert_eq!(set_userdata(&pods), expected);
    }

    #[test]
    fn a_comment_is_read_back_and_cut_between_characters() {
        assert_eq!(read_comment(&comment("a rule")), Some("a rule"));
        let long = "ä".repeat(100);
        let read = comment(&long);
        assert_eq!(read_comment(&read), Some(&long[..126]));
        assert!(read.len() <= 2 + COMMENT_MAX + 1);
        assert_eq!(read_comment(&[1, 2, 3]), None, "something else");
    }
}
