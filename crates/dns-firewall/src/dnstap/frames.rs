//! Frame Streams: frames with their lengths, and a handshake about what is in them.
//!
//! ```text
//!  we  READY ──►        START ──► data … STOP ──►
//!          ◄── ACCEPT                        ◄── FINISH  they
//! ```

use std::io::{self, Read, Write};

const CONTENT: &[u8] = b"protobuf:dnstap.Dnstap";
/// A field of a control frame: what is in the data.
const CONTENT_TYPE: u32 = 1;
/// Control frames are no longer, by the protocol.
const LONGEST_CONTROL: u32 = 512;

const ACCEPT: u32 = 1;
const START: u32 = 2;
const STOP: u32 = 3;
const READY: u32 = 4;
const FINISH: u32 = 5;

/// A frame of data, behind others.
pub(super) fn push_data(frames: &mut Vec<u8>, data: &[u8]) {
    frames.extend((data.len() as u32).to_be_bytes());
    frames.extend(data);
}

/// Agrees with the other side that dnstap comes.
pub(super) fn greet(stream: &mut (impl Read + Write)) -> io::Result<()> {
    stream.write_all(&control(READY, Some(CONTENT)))?;
    let (kind, contents) = read_control(stream)?;
    // Who names nothing takes anything.
    if kind != ACCEPT || !(contents.is_empty() || contents.iter().any(|one| one == CONTENT)) {
        return Err(io::Error::new(io::ErrorKind::InvalidData, "the other side does not take dnstap"));
    }
    stream.write_all(&control(START, Some(CONTENT)))?;
    stream.flush()
}

/// Says that no more comes, and waits until that is understood: then everything before is, too.
pub(super) fn part(stream: &mut (impl Read + Write)) -> io::Result<()> {
    stream.write_all(&control(STOP, None))?;
    stream.flush()?;
    while read_control(stream)?.0 != FINISH {}
    Ok(())
}

fn control(kind: u32, content: Option<&[u8]>) -> Vec<u8> {
    let mut fields = kind.to_be_bytes().to_vec();
    if let Some(content) = content {
        fields.extend(CONTENT_TYPE.to_be_bytes());
        push_data(&mut fields, content);
    }
    // A frame of no length says that a control frame follows.
    let mut frame = vec![0; 4];
    push_data(&mut frame, &fields);
    frame
}

fn read_control(stream: &mut impl Read) -> io::Result<(u32, Vec<Vec<u8>>)> {
    let broken = || io::Error::new(io::ErrorKind::InvalidData, "not a control frame");
    let mut number = [0; 4];
    stream.read_exact(&mut number)?;
    if number != [0; 4] {
        return Err(broken());
    }
    stream.read_exact(&mut number)?;
    let length = u32::from_be_bytes(number);
    if !(4..=LONGEST_CONTROL).contains(&length) {
        return Err(broken());
    }
    let mut frame = vec![0; length as usize];
    stream.read_exact(&mut frame)?;
    let mut rest = &frame[..];
    let mut take = |length: usize| {
        let (taken, left) = rest.split_at_checked(length)?;
        rest = left;
        Some(taken)
    };
    let number_of = |bytes: &[u8]| bytes.iter().fold(0, |sum: u32, byte| sum << 8 | u32::from(*byte));
    let kind = number_of(take(4).ok_or_else(broken)?);
    let mut contents = Vec::new();
    while let Some(field) = take(4).map(number_of) {
        let length = number_of(take(4).ok_or_else(broken)?);
        let value = take(length as usize).ok_or_else(broken)?;
        if field == CONTENT_TYPE {
            contents.push(value.to_vec());
        }
    }
    Ok((kind, contents))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// What the other side says, and what it has heard.
    struct Other<'a>(&'a [u8], Vec<u8>);

    impl Read for Other<'_> {
        fn read(&mut self, bytes: &mut [u8]) -> io::Result<usize> {
            self.0.read(bytes)
        }
    }

    impl Write for Other<'_> {
        fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
            self.1.write(bytes)
        }

        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    #[test]
    fn who_accepts_is_told_that_it_starts() {
        for accept in [control(ACCEPT, Some(CONTENT)), control(ACCEPT, None)] {
            let mut other = Other(&accept, Vec::new());
            greet(&mut other).unwrap();
            assert_eq!(other.1, [control(READY, Some(CONTENT)), control(START, Some(CONTENT))].concat());
        }
    }

    proptest! {
        #[test]
        fn whatever_is_said_it_is_read_or_refused(fields in prop::collection::vec(any::<u8>(), 0..600), kind in 0..7u32) {
            let mut frame = vec![0; 4];
            push_data(&mut frame, &[&kind.to_be_bytes()[..], &fields].concat());
            if let Ok((read, contents)) = read_control(&mut &frame[..]) {
                prop_assert_eq!(read, kind);
                prop_assert!(contents.iter().map(|one| one.len() + 8).sum::<usize>() <= fields.len());
            }
            let _ = read_control(&mut &fields[..]);
        }
    }

    #[test]
    fn who_says_anything_else_is_told_nothing() {
        let too_long = [&[0, 0, 0, 0, 0, 0, 2, 1][..], &[0; 513]].concat();
        let long_field = [0, 0, 0, 0, 0, 0, 0, 12, 0, 0, 0, 1, 0, 0, 0, 1, 0, 0, 0, 9].to_vec();
        let answers = [
            control(ACCEPT, Some(b"something else")),
            control(FINISH, None),
            b"HTTP/1.1 400 Bad Request\r\n\r\n".to_vec(),
            control(ACCEPT, Some(CONTENT))[..20].to_vec(),
            too_long,
            long_field,
            vec![0; 12],
            Vec::new(),
        ];
        for answer in answers {
            let mut other = Other(&answer, Vec::new());
            assert!(greet(&mut other).is_err(), "{answer:?}");
            assert_eq!(other.1, control(READY, Some(CONTENT)));
        }
    }
}
