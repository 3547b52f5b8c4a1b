//! Messages between a worker and its guardian, over stream sockets.
//!
//! A request is a head of fixed length and a list of texts, each ended by a zero byte. The descriptors that the command inherits
//! come with it, the kernel lock first. Answers have a fixed length.

use std::ffi::{CStr, CString};
use std::io::{self, IoSlice, IoSliceMut, Read, Write};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::net::UnixStream;

use lockkeeper_core::id::HolderId;
use rustix::net::{
    RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, SendAncillaryBuffer, SendAncillaryMessage,
    SendFlags, recvmsg, sendmsg,
};

use super::record::Note;
use crate::exec::posix_spawn::Image;

/// The number of descriptors that come with one message at most.
const MOST_DESCRIPTORS: usize = 2;
/// The length of the head of a request: eight numbers.
const HEAD: usize = 8 * 8;
/// Texts of a request are not longer than this: far more than the kernel allows for a command.
const MOST: u64 = 64 * 1024 * 1024;
/// Most requests are shorter than this.
const BUFFER: usize = 16 * 1024;

/// What the guardian is asked to start.
pub(super) struct StartRequest {
    pub(super) image: Image,
    pub(super) note: Note,
    /// What the command inherits: its kernel lock, and what [`Spec::inherit`](crate::exec::Spec) has.
    pub(super) inherited: Vec<OwnedFd>,
}

/// What the guardian answers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Reply {
    /// The command has this pid.
    Started(i32),
    /// It did not start, because of this error of the system.
    Failed(i32),
    /// It ended with this `wait(2)` status.
    Ended(i32),
}

impl Reply {
    pub(super) const LENGTH: usize = 8;

    pub(super) fn send(self, line: &UnixStream) -> io::Result<()> {
        let (kind, value) = match self {
            Self::Started(pid) => (1_u32, pid),
            Self::Failed(error) => (2, error),
            Self::Ended(status) => (3, status),
        };
        let mut bytes = [0; Self::LENGTH];
        bytes[..4].copy_from_slice(&kind.to_ne_bytes());
        bytes[4..].copy_from_slice(&value.to_ne_bytes());
        (&*line).write_all(&bytes)
    }

    pub(super) fn decode(bytes: [u8; Self::LENGTH]) -> io::Result<Self> {
        let [a, b, c, d, value @ ..] = bytes;
        let value = i32::from_ne_bytes(value);
        match u32::from_ne_bytes([a, b, c, d]) {
            1 => Ok(Self::Started(value)),
            2 => Ok(Self::Failed(value)),
            3 => Ok(Self::Ended(value)),
            _ => Err(io::ErrorKind::InvalidData.into()),
        }
    }
}

/// Sends descriptors with one byte.
pub(super) fn send_descriptors(to: &UnixStream, descriptors: &[BorrowedFd<'_>]) -> io::Result<()> {
    send_with(to, &[0], descriptors).map(drop)
}

/// Receives what [`send_descriptors`] sent. None at the end of the stream.
pub(super) fn receive_descriptors(from: &UnixStream) -> io::Result<Option<Vec<OwnedFd>>> {
    let (count, descriptors) = receive_with(from, &mut [0])?;
    Ok((count > 0).then_some(descriptors))
}

/// Asks for the start of a command.
pub(super) fn send_request(
    line: &UnixStream,
    image: &Image,
    note: &Note,
    inherited: &[BorrowedFd<'_>],
) -> io::Result<()> {
    let mut texts = Vec::with_capacity(4096);
    texts.resize(HEAD, 0);
    let mut add = |text: &[u8]| {
        texts.extend_from_slice(text);
        texts.push(0);
    };
    add(note.begun.0.as_bytes());
    add(image.file.as_bytes());
    // No folder and no file has an empty name.
    add(image.dir.as_deref().unwrap_or_default().to_bytes());
    add(image.log.as_deref().unwrap_or_default().to_bytes());
    image.args.iter().chain(&image.env).for_each(|text| add(text.as_bytes()));
    let length = texts.len() - HEAD;
    let head = [
        length as u64,
        image.args.len() as u64,
        image.env.len() as u64,
        inherited.len() as u64,
        note.begun.1,
        note.place,
        note.holder.0,
        0,
    ];
    for (place, number) in head.into_iter().enumerate() {
        texts[place * 8..][..8].copy_from_slice(&number.to_ne_bytes());
    }
    let sent = send_with(line, &texts, inherited)?;
    (&*line).write_all(&texts[sent..])
}

/// Receives a request. None at the end of the stream, also in the middle of a request.
pub(super) fn receive_request(line: &UnixStream) -> io::Result<Option<StartRequest>> {
    let mut bytes = vec![0; BUFFER];
    let (mut count, inherited) = receive_with(line, &mut bytes)?;
    while count < HEAD {
        match (&*line).read(&mut bytes[count..])? {
            0 => return Ok(None),
            more => count += more,
        }
    }
    let number = |place: usize| {
        let mut number = [0; 8];
        number.copy_from_slice(&bytes[place * 8..][..8]);
        u64::from_ne_bytes(number)
    };
    let [length, args, env, descriptors, begun, place, holder] = [0, 1, 2, 3, 4, 5, 6].map(number);
    if length > MOST {
        return Err(io::ErrorKind::InvalidData.into());
    }
    let end = HEAD + length as usize;
    bytes.resize(end.max(count), 0);
    if count < end && (&*line).read_exact(&mut bytes[count..end]).is_err() {
        return Ok(None);
    }
    let mut rest = &bytes[HEAD..end];
    let mut next = || -> io::Result<CString> {
        let text = CStr::from_bytes_until_nul(rest).map_err(io::Error::other)?;
        rest = &rest[text.count_bytes() + 1..];
        Ok(text.to_owned())
    };
    let mark = next()?.into_string().map_err(io::Error::other)?;
    let file = next()?;
    let [dir, log] = [next()?, next()?].map(|text| Some(text).filter(|text| !text.is_empty()));
    let args = (0..args).map(|_| next()).collect::<io::Result<_>>()?;
    let env = (0..env).map(|_| next()).collect::<io::Result<_>>()?;
    if inherited.len() as u64 != descriptors {
        return Err(io::ErrorKind::InvalidData.into());
    }
    let note = Note { begun: (mark, begun), place, holder: HolderId(holder), mark: String::new() };
    Ok(Some(StartRequest { image: Image { file, args, env, dir, log }, note, inherited }))
}

/// Returns how many bytes were sent.
fn send_with(to: &UnixStream, bytes: &[u8], descriptors: &[BorrowedFd<'_>]) -> io::Result<usize> {
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(MOST_DESCRIPTORS))];
    let mut ancillary = SendAncillaryBuffer::new(&mut space);
    if !descriptors.is_empty() && !ancillary.push(SendAncillaryMessage::ScmRights(descriptors)) {
        return Err(io::ErrorKind::InvalidInput.into());
    }
    loop {
        match sendmsg(to.as_fd(), &[IoSlice::new(bytes)], &mut ancillary, SendFlags::NOSIGNAL) {
            Err(rustix::io::Errno::INTR) => {}
            outcome => return Ok(outcome?),
        }
    }
}

/// Returns how many bytes came, and the descriptors that came with them.
fn receive_with(from: &UnixStream, bytes: &mut [u8]) -> io::Result<(usize, Vec<OwnedFd>)> {
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(MOST_DESCRIPTORS))];
    let mut ancillary = RecvAncillaryBuffer::new(&mut space);
    let message = loop {
        let buffers = &mut [IoSliceMut::new(bytes)];
        match recvmsg(from.as_fd(), buffers, &mut ancillary, RecvFlags::CMSG_CLOEXEC) {
            Err(rustix::io::Errno::INTR) => {}
            outcome => break outcome?,
        }
    };
    let mut descriptors = Vec::new();
    for part in ancillary.drain() {
        if let RecvAncillaryMessage::ScmRights(found) = part {
            descriptors.extend(found);
        }
    }
    Ok((message.bytes, descriptors))
}

#[cfg(test)]
mod tests {
    use std::ffi::OsStr;
    use std::path::Path;
    use std::thread;

    use super::*;

    #[test]
    fn a_request_arrives_as_it_was_sent_however_long_it_is() {
        let (worker, guardian) = UnixStream::pair().unwrap();
        let note = Note {
            begun: ("RUN-1 7\n".to_owned(), 1 << 40),
            place: 3,
            holder: HolderId(9),
            mark: String::new(),
        };
        let file = tempfile::tempfile().unwrap();
        for length in [0, 100, BUFFER - HEAD, BUFFER, 3_000_000] {
            let long = "x".repeat(length);
            let args = [OsStr::new("sh"), OsStr::new(""), OsStr::new(&long)];
            let env = [("A".into(), "1".into()), ("B".into(), "".into())];
            let image = Image::new(Path::new("/bin/sh"), &args, &env, Some(Path::new("/")), None).unwrap();
            let received = thread::scope(|scope| {
                let received = scope.spawn(|| receive_request(&guardian).unwrap().unwrap());
                send_request(&worker, &image, &note, &[file.as_fd(), file.as_fd()]).unwrap();
                received.join().unwrap()
            });
            assert_eq!(received.image.args, image.args, "{length}");
            assert_eq!((received.image.env, received.image.file), (image.env, image.file), "{length}");
            assert_eq!((received.image.dir, received.image.log), (image.dir, image.log), "{length}");
            assert_eq!(received.note, note, "{length}");
            assert_eq!(received.inherited.len(), 2);
        }
        drop(worker);
        assert!(receive_request(&guardian).unwrap().is_none());
    }

    #[test]
    fn a_request_that_ends_in_the_middle_is_none() {
        let (worker, guardian) = UnixStream::pair().unwrap();
        let note = Note { begun: ("x".to_owned(), 0), place: 0, holder: HolderId(1), mark: String::new() };
        let image = Image::new(Path::new("/bin/true"), &[OsStr::new("true")], &[], None, None).unwrap();
        let (sender, copy) = UnixStream::pair().unwrap();
        send_request(&sender, &image, &note, &[]).unwrap();
        drop(sender);
        let mut bytes = Vec::new();
        (&copy).read_to_end(&mut bytes).unwrap();
        (&worker).write_all(&bytes[..bytes.len() - 1]).unwrap();
        drop(worker);
        assert!(receive_request(&guardian).unwrap().is_none());
    }
}
