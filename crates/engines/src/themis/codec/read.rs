//! Bytes → requests and responses.

use super::{Attribute, CodecError, Effect, Response, V4_IN_SET, VERSION, tag};
use crate::themis::name::Name;
use crate::themis::network::Network;
use crate::themis::value::{Flags, Value};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::sync::Arc;

pub fn read_request(bytes: &[u8]) -> Result<Vec<Attribute>, CodecError> {
    let mut rest = Rest(bytes);
    rest.version()?;
    let attributes = rest.attributes(usize::MAX)?;
    rest.end()?;
    Ok(attributes)
}

/// `most` is how many obligations are accepted.
pub fn read_response(bytes: &[u8], most: usize) -> Result<Response, CodecError> {
    let mut rest = Rest(bytes);
    rest.version()?;
    let effect = rest.byte()?;
    let effect = *Effect::ALL.get(usize::from(effect)).ok_or(CodecError::Effect(effect))?;
    let status = rest.text()?.to_owned();
    let obligations = rest.attributes(most)?;
    rest.end()?;
    Ok(Response { effect, status, obligations })
}

/// What is not read yet.
struct Rest<'b>(&'b [u8]);

impl<'b> Rest<'b> {
    fn take(&mut self, count: usize) -> Result<&'b [u8], CodecError> {
        let (taken, rest) = self.0.split_at_checked(count).ok_or(CodecError::Cut)?;
        self.0 = rest;
        Ok(taken)
    }

    fn array<const N: usize>(&mut self) -> Result<[u8; N], CodecError> {
        let (taken, rest) = self.0.split_first_chunk().ok_or(CodecError::Cut)?;
        self.0 = rest;
        Ok(*taken)
    }

    fn byte(&mut self) -> Result<u8, CodecError> {
        Ok(u8::from_le_bytes(self.array()?))
    }

    fn number(&mut self) -> Result<u16, CodecError> {
        Ok(u16::from_le_bytes(self.array()?))
    }

    fn end(&self) -> Result<(), CodecError> {
        if self.0.is_empty() { Ok(()) } else { Err(CodecError::Trailing(self.0.len())) }
    }

    fn version(&mut self) -> Result<(), CodecError> {
        match self.number()? {
            VERSION => Ok(()),
            other => Err(CodecError::Version(other)),
        }
    }

    fn text(&mut self) -> Result<&'b str, CodecError> {
        let length = self.number()?;
        let bytes = self.take(length.into())?;
        std::str::from_utf8(bytes).map_err(|_| CodecError::Text)
    }

    fn domain(&mut self) -> Result<Name, CodecError> {
        let text = self.text()?;
        Name::parse(text).map_err(|error| CodecError::Name(text.to_owned(), error))
    }

    fn v4(&mut self) -> Result<IpAddr, CodecError> {
        Ok(Ipv4Addr::from(self.array::<4>()?).into())
    }

    fn v6(&mut self) -> Result<IpAddr, CodecError> {
        Ok(Ipv6Addr::from(self.array::<16>()?).into())
    }

    fn attributes(&mut self, most: usize) -> Result<Vec<Attribute>, CodecError> {
        let count = usize::from(self.number()?);
        if count > most {
            return Err(CodecError::TooMany(count, most));
        }
        self.items(count, |rest| {
            let length = rest.byte()?;
            let name = std::str::from_utf8(rest.take(length.into())?).map_err(|_| CodecError::Text)?;
            Ok(Attribute { name: name.into(), value: rest.value()? })
        })
    }

    /// A count is only believed as far as there are bytes for it.
    fn items<T, C: FromIterator<T>>(
        &mut self,
        count: usize,
        mut item: impl FnMut(&mut Self) -> Result<T, CodecError>,
    ) -> Result<C, CodecError> {
        (0..count).map(|_| item(self)).collect()
    }

    fn counted<T, C: FromIterator<T>>(
        &mut self,
        item: impl FnMut(&mut Self) -> Result<T, CodecError>,
    ) -> Result<C, CodecError> {
        let count = self.number()?;
        self.items(count.into(), item)
    }

    fn value(&mut self) -> Result<Value, CodecError> {
        Ok(match self.byte()? {
            tag::FALSE => Value::Boolean(false),
            tag::TRUE => Value::Boolean(true),
            tag::STRING => Value::string(self.text()?),
            tag::INTEGER => Value::Integer(i64::from_le_bytes(self.array()?)),
            tag::FLOAT => Value::Float(f64::from_le_bytes(self.array()?)),
            tag::ADDRESS_V4 => Value::Address(self.v4()?),
            // Themis itself takes IPv4 for what is mapped.
            tag::ADDRESS_V6 => Value::Address(self.v6()?.to_canonical()),
            tag::NETWORK_V4 => {
                let prefix = self.prefix(32)?;
                Value::Network(Network::new(self.v4()?, prefix))
            }
            tag::NETWORK_V6 => {
                let prefix = self.prefix(128)?;
                Value::Network(Network::new(self.v6()?, prefix))
            }
            tag::DOMAIN => Value::Domain(self.domain()?),
            tag::SET_OF_STRINGS => {
                Value::SetOfStrings(Arc::new(self.counted(|rest| Ok(Arc::<str>::from(rest.text()?)))?))
            }
            tag::SET_OF_NETWORKS => Value::SetOfNetworks(Arc::new(self.counted(Self::network_of_set)?)),
            tag::SET_OF_DOMAINS => Value::SetOfDomains(Arc::new(self.counted(Self::domain)?)),
            tag::LIST_OF_STRINGS => Value::ListOfStrings(self.counted(|rest| Ok(Arc::<str>::from(rest.text()?)))?),
            tag::FLAGS => Value::Flags(self.flags()?),
            other => return Err(CodecError::Type(other)),
        })
    }

    fn prefix(&mut self, most: u8) -> Result<u8, CodecError> {
        let prefix = self.byte()?;
        if prefix <= most { Ok(prefix) } else { Err(CodecError::Prefix(prefix)) }
    }

    fn network_of_set(&mut self) -> Result<Network, CodecError> {
        let prefix = self.byte()?;
        match prefix.checked_sub(V4_IN_SET) {
            Some(v4) if v4 <= 32 => Ok(Network::new(self.v4()?, v4)),
            None if prefix <= 128 => Ok(Network::new(self.v6()?, prefix)),
            _ => Err(CodecError::Prefix(prefix)),
        }
    }

    fn flags(&mut self) -> Result<Flags, CodecError> {
        let count = self.byte()?;
        let bits = match count {
            1..=8 => u64::from(self.byte()?),
            9..=16 => u64::from(self.number()?),
            17..=32 => u64::from(u32::from_le_bytes(self.array()?)),
            33..=64 => u64::from_le_bytes(self.array()?),
            _ => return Err(CodecError::Flags(count)),
        };
        Ok(Flags { count, bits })
    }
}
