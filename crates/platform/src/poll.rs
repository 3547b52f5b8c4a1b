//! Sleeping until one of several descriptors has something to say, or the time is up.

use std::io;
use std::os::fd::BorrowedFd;
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;

/// Which of the descriptors that were waited for are ready; none when the time was up.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Ready(Vec<bool>);

impl Ready {
    /// None of them.
    pub const fn none() -> Self {
        Self(Vec::new())
    }

    /// Takes one place out, so that those behind it move up; whether it was ready.
    pub fn forget(&mut self, place: usize) -> bool {
        place < self.0.len() && self.0.remove(place)
    }

    /// Whether any of them is.
    pub fn any(&self) -> bool {
        self.0.contains(&true)
    }

    /// Whether the one at this place is; places that were not waited for are not.
    pub fn contains(&self, place: usize) -> bool {
        self.0.get(place).copied().unwrap_or(false)
    }

    /// The places of those that are.
    pub fn places(&self) -> impl Iterator<Item = usize> + '_ {
        self.0.iter().enumerate().filter(|(_, ready)| **ready).map(|(place, _)| place)
    }
}

/// Sleeps until a descriptor can be read, was closed at its other end or failed; without a timeout, for good.
///
/// Signals do not cut it short: the remaining time is counted on the monotonic clock.
pub fn wait(descriptors: &[BorrowedFd<'_>], timeout: Option<Duration>) -> io::Result<Ready> {
    wait_or_hang_up(descriptors, &[], timeout)
}

/// As [`wait`], and also until one of `outputs`, which come after the others, was closed at its other end.
pub fn wait_or_hang_up(
    descriptors: &[BorrowedFd<'_>],
    outputs: &[BorrowedFd<'_>],
    timeout: Option<Duration>,
) -> io::Result<Ready> {
    let readable = descriptors.iter().map(|descriptor| (*descriptor, PollFlags::IN));
    // Being closed is always told of; whether there is something to read from an output is not asked.
    let closed = outputs.iter().map(|output| (*output, PollFlags::empty()));
    let polled =
        readable.chain(closed).map(|(descriptor, flags)| PollFd::from_borrowed_fd(descriptor, flags));
    let mut polled: Vec<PollFd<'_>> = polled.collect();
    let until = timeout.and_then(|timeout| Instant::now().checked_add(timeout));
    let mut remaining = timeout;
    loop {
        // A span too long for the kernel is no limit at all.
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
    use super::*;
    use std::os::fd::AsFd;

    #[test]
    fn the_ready_one_is_named() {
        let (quiet, _keep) = rustix::pipe::pipe().unwrap();
        let (loud, writer) = rustix::pipe::pipe().unwrap();
        rustix::io::write(&writer, b"x").unwrap();
        let ready = wait(&[quiet.as_fd(), loud.as_fd()], None).unwrap();
        assert_eq!(ready.places().collect::<Vec<_>>(), [1]);
        assert!(ready.any() && ready.contains(1) && !ready.contains(0) && !ready.contains(2));
    }

    #[test]
    fn the_time_can_be_up() {
        let (quiet, _keep) = rustix::pipe::pipe().unwrap();
        assert!(!wait(&[quiet.as_fd()], Some(Duration::ZERO)).unwrap().any());
        assert!(!wait(&[], Some(Duration::from_millis(1))).unwrap().any());
    }

    #[test]
    fn a_closed_other_end_is_ready() {
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
