//! Requests and responses → bytes.

use super::{Attribute, CodecError, Effect, Response, V4_IN_SET, VERSION, tag};
use crate::themis::network::Network;
use crate::themis::value::{Flags, Value};
use std::net::IpAddr;

/// `most` is how many bytes the other side accepts.
pub fn write_request(attributes: &[Attribute], most: usize) -> Result<Vec<u8>, CodecError> {
    let mut out = Out(Vec::with_capacity(256));
    out.number(VERSION);
    out.attributes(attributes)?;
    out.within(most)
}

pub fn write_response(response: &Response) -> Result<Vec<u8>, CodecError> {
    let mut out = Out(Vec::with_capacity(256));
    out.number(VERSION);
    let effect = Effect::ALL.iter().position(|effect| *effect == response.effect);
    out.0.push(effect.unwrap_or_default() as u8);
    out.text(&response.status)?;
    out.attributes(&response.obligations)?;
    out.within(usize::MAX)
}

struct Out(Vec<u8>);

impl Out {
    fn within(self, most: usize) -> Result<Vec<u8>, CodecError> {
        if self.0.len() > most { Err(CodecError::TooLarge(self.0.len(), most)) } else { Ok(self.0) }
    }

    fn number(&mut self, number: u16) {
        self.0.extend(number.to_le_bytes());
    }

    fn count(&mut self, count: usize, what: &'static str) -> Result<(), CodecError> {
        self.number(count.try_into().map_err(|_| CodecError::TooLong(what))?);
        Ok(())
    }

    fn text(&mut self, text: &str) -> Result<(), CodecError> {
        self.count(text.len(), "a text")?;
        self.0.extend_from_slice(text.as_bytes());
        Ok(())
    }

    fn texts<'t>(&mut self, texts: impl Iterator<Item = &'t str> + Clone) -> Result<(), CodecError> {
        self.count(texts.clone().count(), "a list of texts")?;
        texts.into_iter().try_for_each(|text| self.text(text))
    }

    fn attributes(&mut self, attributes: &[Attribute]) -> Result<(), CodecError> {
        self.count(attributes.len(), "the list of attributes")?;
        for attribute in attributes {
            let length =
                attribute.name.len().try_into().map_err(|_| CodecError::TooLong("the name of an attribute"))?;
            self.0.push(length);
            self.0.extend_from_slice(attribute.name.as_bytes());
            self.value(&attribute.value)?;
        }
        Ok(())
    }

    fn tagged(&mut self, tag: u8, bytes: &[u8]) {
        self.0.push(tag);
        self.0.extend_from_slice(bytes);
    }

    fn value(&mut self, value: &Value) -> Result<(), CodecError> {
        match value {
            Value::Boolean(is) => self.0.push(if *is { tag::TRUE } else { tag::FALSE }),
            Value::String(text) => {
                self.0.push(tag::STRING);
                self.text(text)?;
            }
            Value::Integer(number) => self.tagged(tag::INTEGER, &number.to_le_bytes()),
            Value::Float(number) => self.tagged(tag::FLOAT, &number.to_le_bytes()),
            Value::Address(address) => match address.to_canonical() {
                IpAddr::V4(v4) => self.tagged(tag::ADDRESS_V4, &v4.octets()),
                IpAddr::V6(v6) => self.tagged(tag::ADDRESS_V6, &v6.octets()),
            },
            Value::Network(network) => {
                self.0.push(if network.address().is_ipv4() { tag::NETWORK_V4 } else { tag::NETWORK_V6 });
                self.network(network, 0);
            }
            Value::Domain(name) => {
                self.0.push(tag::DOMAIN);
                self.text(name.as_str())?;
            }
            Value::SetOfStrings(set) => {
                self.0.push(tag::SET_OF_STRINGS);
                let items: Vec<&str> = set.iter().map(|item| &**item).collect();
                self.texts(items.into_iter())?;
            }
            Value::SetOfNetworks(set) => {
                self.0.push(tag::SET_OF_NETWORKS);
                self.count(set.iter().count(), "a set of networks")?;
                set.iter().for_each(|network| self.network(network, V4_IN_SET));
            }
            Value::SetOfDomains(set) => {
                self.0.push(tag::SET_OF_DOMAINS);
                let items: Vec<&str> = set.iter().map(|item| &**item).collect();
                self.texts(items.into_iter())?;
            }
            Value::ListOfStrings(list) => {
                self.0.push(tag::LIST_OF_STRINGS);
                self.texts(list.iter().map(|item| &**item))?;
            }
            Value::Flags(flags) => {
                self.0.push(tag::FLAGS);
                self.flags(*flags)?;
            }
        }
        Ok(())
    }

    /// `v4` is added to the prefix of an IPv4 network.
    fn network(&mut self, network: &Network, v4: u8) {
        match network.address() {
            IpAddr::V4(address) => self.tagged(network.prefix() + v4, &address.octets()),
            IpAddr::V6(address) => self.tagged(network.prefix(), &address.octets()),
        }
    }

    fn flags(&mut self, flags: Flags) -> Result<(), CodecError> {
        let bytes = match flags.count {
            1..=8 => 1,
            9..=16 => 2,
            17..=32 => 4,
            33..=64 => 8,
            count => return Err(CodecError::Flags(count)),
        };
        self.tagged(flags.count, &flags.bits.to_le_bytes()[..bytes]);
        Ok(())
    }
}
