//! Names as zone files write them (RFC 1035 §5.1), and the few questions that are asked of their bytes.

use domain::base::name::UncertainName;

/// A name on the wire, in the letters it was written in; relative ones are under the origin.
pub(crate) fn wire(text: &str, origin: &[u8]) -> Result<Vec<u8>, String> {
    if text == "@" {
        return Ok(origin.to_vec());
    }
    let wrong = |why: &str| format!("`{text}` is no name: {why}");
    match text.parse::<UncertainName<Vec<u8>>>() {
        Err(error) => Err(wrong(&error.to_string())),
        Ok(UncertainName::Absolute(name)) => Ok(name.into_octets()),
        Ok(UncertainName::Relative(name)) if name.is_empty() => Err(wrong("it is empty")),
        Ok(UncertainName::Relative(name)) => {
            let whole = [name.as_slice(), origin].concat();
            if whole.len() > 255 { Err(wrong("it is longer than 255 bytes")) } else { Ok(whole) }
        }
    }
}

/// In lower case, to be compared.
pub(crate) fn lower(wire: &[u8]) -> Box<[u8]> {
    // The bytes that are lengths are at most 63, which is before `A`.
    wire.to_ascii_lowercase().into()
}

/// The name without its first label; none of the root.
pub(crate) fn parent(wire: &[u8]) -> Option<&[u8]> {
    wire.split_first().filter(|(length, _)| **length > 0).and_then(|(length, rest)| rest.get(usize::from(*length)..))
}

/// Whether a name is another or under it; both in lower case.
pub(crate) fn is_within(wire: &[u8], zone: &[u8]) -> bool {
    std::iter::successors(Some(wire), |name| parent(name)).any(|name| name == zone)
}

/// A name as a reader sees it.
pub(crate) fn shown(wire: &[u8]) -> String {
    match domain::base::Name::from_slice(wire) {
        Ok(name) => name.fmt_with_dot().to_string(),
        Err(_) => String::from_utf8_lossy(wire).into_owned(),
    }
}
