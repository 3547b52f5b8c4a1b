//! `poll(2)`: waits until one of several descriptors is ready, or a timeout passes.

use std::io;
use std::os::fd::BorrowedFd;
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;

/// Which descriptors are ready, by their index; none when the timeout passed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Ready(Vec<bool>);

impl Ready {
    /// A result in which no descriptor is ready.
    pub const fn none() -> Self {
        Self(Vec::new())
    }

    /// Removes one index, so that the later ones move down by one. Says whether it was ready.
    pub fn forget(&mut self, place: usize) -> bool {
        place < self.0.len() && self.0.remove(place)
    }

    /// Says whether any descriptor is ready.
    pub fn any(&self) -> bool {
        self.0.contains(&true)
    }

    /// Says whether the descriptor at this index is ready; false for an index that does not exist.
    pub fn contains(&self, place: usize) -> bool {
        self.0.get(place).copied().unwrap_or(false)
    }

    /// Returns the indexes of the ready descriptors.
    pub fn places(&self) -> impl Iterator<Item = usize> + '_ {
        self.0.iter().enumerate().filter(|(_, ready)| **ready).map(|(place, _)| place)
    }
}

/// Waits until a descriptor is readable, has hung up or failed. Without a timeout it waits for ever.
///
/// A signal does not end the wait: it goes on for the remaining time.
pub fn wait(descriptors: &[BorrowedFd<'_>], timeout: Option<Duration>) -> io::Result<Ready> {
    wait_or_hang_up(descriptors, &[], timeout)
}

/// Like [`wait`], but also returns when nobody reads one of `outputs` any more. Their indexes come after the others.
pub fn wait_or_hang_up(
    descriptors: &[BorrowedFd<'_>],
    outputs: &[BorrowedFd<'_>],
    timeout: Option<Duration>,
) -> io::Result<Ready> {
    let readable = descriptors.iter().map(|descriptor| (*descriptor, PollFlags::IN));
    // poll(2) always reports a hang-up. No flag asks whether an output can be read.
    let closed = outputs.iter().map(|output| (*output, PollFlags::empty()));
    let polled =
        readable.chain(closed).map(|(descriptor, flags)| PollFd::from_borrowed_fd(descriptor, flags));
    let mut polled: Vec<PollFd<'_>> = polled.collect();
    let until = timeout.and_then(|timeout| Instant::now().checked_add(timeout));
    let mut remaining = timeout;
    loop {
        // A span that is too long for the kernel means no limit.
        let limit = remaining.and_then(|span| Timespec::try_from(span).ok());
        match poll(&mut polled, limit.as_ref()) {
            Ok(_) => return Ok(Ready(polled.iter().map(|one| !one.revents().is_empty()).collect())),
            Err(Errno::INTR) => {
                remaining = until.map(|until| until.saturating_duration_since(Instant::now())).or(remaining);
            }
            Err(error) => return Err(error.into()),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::os::fd::AsFd;

    use super::*;

    #[test]
    fn the_index_of_the_ready_descriptor_is_returned() {
        let (quiet, _keep) = rustix::pipe::pipe().unwrap();
        let (loud, writer) = rustix::pipe::pipe().unwrap();
        rustix::io::write(&writer, b"x").unwrap();
        let ready = wait(&[quiet.as_fd(), loud.as_fd()], None).unwrap();
        assert_eq!(ready.places().collect::<Vec<_>>(), [1]);
        assert!(ready.any() && ready.contains(1) && !ready.contains(0) && !ready.contains(2));
    }

    #[test]
    fn nothing_is_ready_after_the_timeout() {
        let (quiet, _keep) = rustix::pipe::pipe().unwrap();
        assert!(!wait(&[quiet.as_fd()], Some(Duration::ZERO)).unwrap().any());
        assert!(!wait(&[], Some(Duration::from_millis(1))).unwrap().any());
    }

    #[test]
    fn a_pipe_whose_writer_is_closed_is_ready() {
        let (reader, writer) = rustix::pipe::pipe().unwrap();
        drop(writer);
        assert!(wait(&[reader.as_fd()], Some(Duration::MAX)).unwrap().contains(0));
    }

    #[test]
    fn an_output_is_ready_only_when_nobody_reads_it() {
        let (quiet, _keep) = rustix::pipe::pipe().unwrap();
        let (reader, output) = rustix::pipe::pipe().unwrap();
        let look = || wait_or_hang_up(&[quiet.as_fd()], &[output.as_fd()], Some(Duration::ZERO)).unwrap();
        assert!(!look().any());
        drop(reader);
        assert_eq!(look().places().collect::<Vec<_>>(), [1]);
        let file = tempfile::tempfile().unwrap();
        assert!(!wait_or_hang_up(&[], &[file.as_fd()], Some(Duration::ZERO)).unwrap().any());
    }
}
