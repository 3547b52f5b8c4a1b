//! RESP, the protocol of Redis: writes commands, reads replies.
//!
//! Not the crate `redis`: its blocking connection has no descriptor to poll, which the thread that listens for messages needs, and
//! no timeout for a whole call. This file is all that is needed of the protocol.

use std::io::{self, BufRead, Read};

/// A longer text is refused: no reply of ours is as long.
const LONGEST: usize = 512 * 1024 * 1024;

/// What the server returned.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Reply {
    Nothing,
    Number(i64),
    Bytes(Vec<u8>),
    List(Vec<Reply>),
    /// A code and a sentence.
    Error(String),
}

impl Reply {
    /// Reads one reply, and waits until all of it has come.
    pub(super) fn read(from: &mut impl BufRead) -> io::Result<Self> {
        let line = line(from)?;
        let (kind, rest) = line.split_at_checked(1).ok_or_else(garbled)?;
        match kind {
            "+" => Ok(Self::Bytes(rest.as_bytes().to_vec())),
            "-" => Ok(Self::Error(rest.to_owned())),
            ":" => rest.parse().map(Self::Number).map_err(|_| garbled()),
            "$" => match length(rest)? {
                None => Ok(Self::Nothing),
                Some(length) => {
                    let mut bytes = vec![0; length + 2];
                    from.read_exact(&mut bytes)?;
                    bytes.truncate(length);
                    Ok(Self::Bytes(bytes))
                }
            },
            "*" => match length(rest)? {
                None => Ok(Self::Nothing),
                Some(length) => {
                    (0..length).map(|_| Self::read(from)).collect::<io::Result<_>>().map(Self::List)
                }
            },
            _ => Err(garbled()),
        }
    }

    /// The number, also one that was sent as a text.
    pub(super) fn number(&self) -> Option<i64> {
        match self {
            Self::Number(number) => Some(*number),
            Self::Bytes(bytes) => std::str::from_utf8(bytes).ok()?.parse().ok(),
            Self::Nothing | Self::List(_) | Self::Error(_) => None,
        }
    }

    pub(super) fn text(&self) -> Option<&str> {
        std::str::from_utf8(self.bytes()?).ok()
    }

    pub(super) fn bytes(&self) -> Option<&[u8]> {
        match self {
            Self::Bytes(bytes) => Some(bytes),
            Self::Nothing | Self::Number(_) | Self::List(_) | Self::Error(_) => None,
        }
    }

    pub(super) fn list(&self) -> Option<&[Self]> {
        match self {
            Self::List(list) => Some(list),
            Self::Nothing | Self::Number(_) | Self::Bytes(_) | Self::Error(_) => None,
        }
    }
}

/// Appends a command to the bytes to send.
pub(super) fn put_command<A: AsRef<[u8]>>(to: &mut Vec<u8>, words: impl ExactSizeIterator<Item = A>) {
    to.extend_from_slice(format!("*{}\r\n", words.len()).as_bytes());
    for word in words {
        let word = word.as_ref();
        to.extend_from_slice(format!("${}\r\n", word.len()).as_bytes());
        to.extend_from_slice(word);
        to.extend_from_slice(b"\r\n");
    }
}

fn line(from: &mut impl BufRead) -> io::Result<String> {
    let mut line = Vec::new();
    from.take(1 << 16).read_until(b'\n', &mut line)?;
    match line.strip_suffix(b"\r\n") {
        Some(line) => Ok(String::from_utf8_lossy(line).into_owned()),
        None if line.is_empty() => Err(io::ErrorKind::UnexpectedEof.into()),
        None => Err(garbled()),
    }
}

fn length(text: &str) -> io::Result<Option<usize>> {
    match text.parse::<i64>() {
        Ok(-1) => Ok(None),
        Ok(length) => {
            usize::try_from(length).ok().filter(|length| *length <= LONGEST).map(Some).ok_or_else(garbled)
        }
        Err(_) => Err(garbled()),
    }
}

fn garbled() -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, "the answer is not one of Redis")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn commands_are_lists_of_texts() {
        let mut bytes = Vec::new();
        put_command(&mut bytes, [&b"SET"[..], b"a\r\nb", b""].iter());
        assert_eq!(bytes, b"*3\r\n$3\r\nSET\r\n$4\r\na\r\nb\r\n$0\r\n\r\n");
    }

    #[test]
    fn replies_of_every_kind_are_read() {
        let mut bytes = &b"*5\r\n+OK\r\n:-7\r\n$4\r\na\r\nb\r\n$-1\r\n*-1\r\n-ERR no\r\n"[..];
        let list = Reply::read(&mut bytes).unwrap();
        let text = |text: &str| Reply::Bytes(text.as_bytes().to_vec());
        let expected = vec![text("OK"), Reply::Number(-7), text("a\r\nb"), Reply::Nothing, Reply::Nothing];
        assert_eq!(list, Reply::List(expected));
        assert_eq!(Reply::read(&mut bytes).unwrap(), Reply::Error("ERR no".to_owned()));
        assert_eq!(Reply::read(&mut bytes).unwrap_err().kind(), io::ErrorKind::UnexpectedEof);
    }

    #[test]
    fn what_is_no_reply_is_refused() {
        for bad in
            ["x\r\n", "\r\n", "$x\r\n", "$-2\r\n", "*99999999999\r\n", ":1x\r\n", "+cut", "$9\r\nshort\r\n"]
        {
            assert!(Reply::read(&mut bad.as_bytes()).is_err(), "{bad:?}");
        }
    }
}
