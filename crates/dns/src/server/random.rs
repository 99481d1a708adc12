//! Numbers nobody can guess, for ids and the choice of sockets.

use std::fs::File;
use std::io::{self, Read};

/// Takes them from the kernel, many at a time.
#[derive(Debug)]
pub(crate) struct Random {
    source: File,
    buffer: Box<[u8; 4096]>,
    at: usize,
}

impl Random {
    pub(crate) fn open() -> io::Result<Self> {
        let mut random = Self { source: File::open("/dev/urandom")?, buffer: Box::new([0; 4096]), at: 0 };
        random.source.read_exact(&mut *random.buffer)?;
        Ok(random)
    }

    pub(crate) fn number(&mut self) -> io::Result<u16> {
        if self.at + 2 > self.buffer.len() {
            self.source.read_exact(&mut *self.buffer)?;
            self.at = 0;
        }
        let number = u16::from_ne_bytes([self.buffer[self.at], self.buffer[self.at + 1]]);
        self.at += 2;
        Ok(number)
    }

    /// Writes each letter of a name in upper or lower case, by one random bit each. Lengths of labels are no letters.
    pub(crate) fn spell(&mut self, name: &mut [u8]) -> io::Result<()> {
        let (mut bits, mut left) = (0, 0);
        for letter in name.iter_mut().filter(|byte| byte.is_ascii_alphabetic()) {
            if left == 0 {
                (bits, left) = (self.number()?, 16);
            }
            // The bit that tells upper from lower case.
            *letter = *letter & !0x20 | ((bits & 1) as u8) << 5;
            (bits, left) = (bits >> 1, left - 1);
        }
        Ok(())
    }

    /// One below `bound`, which is small.
    pub(crate) fn below(&mut self, bound: usize) -> io::Result<usize> {
        Ok((usize::from(self.number()?) * bound) >> 16)
    }
}
