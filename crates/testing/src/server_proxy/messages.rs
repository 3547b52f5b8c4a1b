//! The wire formats of the protocols, as far as a proxy needs them: splits the bytes that one side sends into messages.

use std::io::{self, Read};

/// What a client of HTTP/2 sends before its first frame.
const PREFACE: usize = 24;
/// The head of a frame of HTTP/2, the types of frames with data and with headers, and the flag of the last one of a call.
const FRAME_HEAD: usize = 9;
const DATA: u8 = 0;
const HEADERS: u8 = 1;
const END_STREAM: u8 = 1;

/// How client and server talk.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Protocol {
    Postgres,
    Redis,
    /// gRPC over HTTP/2: several calls at a time.
    Etcd,
    /// HTTP/1.1, as `lockkeeper serve` speaks it.
    Http,
}

/// A call on a connection that has several at a time; 0 on others.
pub(super) type Call = u32;

/// Splits the bytes that one side sends into messages.
pub(super) struct Messages {
    bytes: Vec<u8>,
    /// Whether the next message is the first one of a client, which has another form.
    is_first: bool,
    protocol: Protocol,
}

/// One message, with what it means for the connection.
pub(super) struct Message {
    pub(super) bytes: Vec<u8>,
    /// Whether the server answers it at once and is then ready for the next one.
    pub(super) is_answered: bool,
    /// Whether it is the end of an answer.
    pub(super) is_last: bool,
    /// Whether it asks for something, so that its connection may break.
    pub(super) is_request: bool,
    pub(super) call: Call,
}

impl Messages {
    pub(super) fn new(protocol: Protocol, is_first: bool) -> Self {
        Self { bytes: Vec::new(), is_first, protocol }
    }

    /// Waits for more bytes. False at the end of the connection.
    pub(super) fn receive(&mut self, mut from: impl Read) -> io::Result<bool> {
        let mut part = vec![0; 1 << 16];
        let read = from.read(&mut part)?;
        self.bytes.extend_from_slice(&part[..read]);
        Ok(read > 0)
    }

    /// The next message, if all of it is there.
    pub(super) fn next(&mut self) -> Option<Message> {
        let letter = usize::from(!self.is_first);
        let length = match self.protocol {
            Protocol::Postgres => {
                let length = self.bytes.get(letter..letter + 4)?;
                letter + u32::from_be_bytes(length.try_into().unwrap()) as usize
            }
            Protocol::Redis => resp_length(&self.bytes)?,
            Protocol::Http => http_length(&self.bytes)?,
            Protocol::Etcd if self.is_first => PREFACE,
            Protocol::Etcd => {
                let length = self.bytes.get(..3)?;
                FRAME_HEAD + u32::from_be_bytes([0, length[0], length[1], length[2]]) as usize
            }
        };
        if self.bytes.len() < length {
            return None;
        }
        let rest = self.bytes.split_off(length);
        let bytes = std::mem::replace(&mut self.bytes, rest);
        let is_first = std::mem::take(&mut self.is_first);
        Some(match self.protocol {
            Protocol::Postgres => {
                let is_answered = is_first || matches!(bytes[0], b'S' | b'Q');
                let is_last = bytes[0] == b'Z';
                Message { bytes, is_answered, is_last, is_request: true, call: 0 }
            }
            Protocol::Redis => Message { bytes, is_answered: true, is_last: true, is_request: true, call: 0 },
            Protocol::Http => {
                // A response that does not end is answered by its head.
                let is_last = bytes.starts_with(b"HTTP/");
                Message { bytes, is_answered: true, is_last, is_request: true, call: 0 }
            }
            Protocol::Etcd => {
                // Each request has one frame with its data. A watch has no end: its first data is its answer.
                let is_request = !is_first && bytes[3] == DATA;
                let is_last = is_request || (!is_first && bytes[3] == HEADERS && bytes[4] & END_STREAM != 0);
                let call = u32::from_be_bytes([bytes[5], bytes[6], bytes[7], bytes[8]]);
                Message { bytes, is_answered: is_request, is_last, is_request, call }
            }
        })
    }
}

/// How long the first command or reply of Redis is, if all of it is there.
fn resp_length(bytes: &[u8]) -> Option<usize> {
    let end = bytes.windows(2).position(|pair| pair == b"\r\n")? + 2;
    let number = || std::str::from_utf8(&bytes[1..end - 2]).unwrap().parse::<i64>().unwrap();
    match bytes[0] {
        b'$' => {
            let length = usize::try_from(number()).map_or(end, |length| end + length + 2);
            (bytes.len() >= length).then_some(length)
        }
        b'*' => (0..number()).try_fold(end, |at, _| Some(at + resp_length(&bytes[at..])?)),
        _ => Some(end),
    }
}

/// How long the first request or response is, or the first part of a response that does not end, if all of it is there.
fn http_length(bytes: &[u8]) -> Option<usize> {
    let is_head = [&b"HTTP/"[..], b"POST ", b"GET "].iter().any(|start| bytes.starts_with(start));
    let ending: &[u8] = if is_head { b"\r\n\r\n" } else { b"\r\n" };
    let end = bytes.windows(ending.len()).position(|part| part == ending)? + ending.len();
    let head = std::str::from_utf8(&bytes[..end]).unwrap().to_ascii_lowercase();
    let body = if is_head {
        let length = head.lines().find_map(|line| line.strip_prefix("content-length:"));
        length.map_or(0, |length| length.trim().parse().unwrap())
    } else {
        usize::from_str_radix(head.trim(), 16).unwrap() + 2
    };
    (bytes.len() >= end + body).then_some(end + body)
}
