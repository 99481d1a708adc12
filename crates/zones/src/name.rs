//! Names and texts as zone files write them: `\.` is a dot in a label, `\007` a byte (RFC 1035 §5.1).

/// A name on the wire, in the letters it was written in; relative ones are under the origin.
pub(crate) fn wire(text: &str, origin: Option<&[u8]>) -> Result<Vec<u8>, String> {
    let wrong = |why: &str| format!("`{text}` is no name: {why}");
    match text {
        "@" => return origin.map(<[u8]>::to_vec).ok_or_else(|| wrong("there is no origin")),
        "." => return Ok(vec![0]),
        "" => return Err(wrong("it is empty")),
        _ => {}
    }
    let mut wire = Vec::new();
    let mut label = Vec::new();
    let mut is_whole = false;
    let mut rest = text.bytes();
    while let Some(byte) = rest.next() {
        is_whole = byte == b'.';
        match byte {
            b'.' => end_label(&mut wire, &mut label).map_err(wrong)?,
            b'\\' => label.push(escaped(&mut rest).ok_or_else(|| wrong("a `\\` stands before a letter or a number"))?),
            other => label.push(other),
        }
    }
    if is_whole {
        wire.push(0);
    } else {
        end_label(&mut wire, &mut label).map_err(wrong)?;
        wire.extend(origin.ok_or_else(|| wrong("it has no dot at its end"))?);
    }
    if wire.len() > 255 {
        return Err(wrong("it is longer than 255 bytes"));
    }
    Ok(wire)
}

fn end_label(wire: &mut Vec<u8>, label: &mut Vec<u8>) -> Result<(), &'static str> {
    match label.len() {
        0 => Err("a label is empty"),
        64.. => Err("a label is longer than 63 bytes"),
        length => {
            wire.push(length as u8);
            wire.append(label);
            Ok(())
        }
    }
}

/// What follows a `\`.
fn escaped(rest: &mut impl Iterator<Item = u8>) -> Option<u8> {
    let first = rest.next()?;
    if !first.is_ascii_digit() {
        return Some(first);
    }
    let digits = [first, rest.next()?, rest.next()?];
    std::str::from_utf8(&digits).ok()?.parse().ok()
}

/// The bytes of a text.
pub(crate) fn text(written: &str) -> Result<Vec<u8>, String> {
    let (mut bytes, mut rest) = (Vec::new(), written.bytes());
    while let Some(byte) = rest.next() {
        bytes.push(match byte {
            b'\\' => escaped(&mut rest).ok_or_else(|| format!("`{written}` ends within an escape"))?,
            other => other,
        });
    }
    if bytes.len() > 255 {
        return Err(format!("`{written}` is longer than 255 bytes; write several texts"));
    }
    Ok(bytes)
}

/// In lower case, to be compared.
pub(crate) fn lower(wire: &[u8]) -> Box<[u8]> {
    // Lengths are no letters, since 63 is before A.
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

/// A name as text, for who reads it.
pub(crate) fn shown(wire: &[u8]) -> String {
    let mut text = String::new();
    let mut rest = wire;
    while let Some((&length, after)) = rest.split_first().filter(|(length, _)| **length > 0) {
        let (label, after) = after.split_at(usize::from(length).min(after.len()));
        text.push_str(&String::from_utf8_lossy(label));
        text.push('.');
        rest = after;
    }
    if text.is_empty() { ".".to_owned() } else { text }
}
