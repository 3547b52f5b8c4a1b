//! Pipes between threads. Commands do not inherit them.

use std::io;
use std::os::fd::OwnedFd;

use rustix::io::ioctl_fionbio;

/// A pipe whose ends wait for each other: reader and writer.
pub fn blocking() -> io::Result<(OwnedFd, OwnedFd)> {
    let (reader, writer) = io::pipe()?;
    Ok((reader.into(), writer.into()))
}

/// A pipe whose ends never wait: reader and writer.
pub fn nonblocking() -> io::Result<(OwnedFd, OwnedFd)> {
    let (reader, writer) = blocking()?;
    for end in [&reader, &writer] {
        ioctl_fionbio(end, true)?;
    }
    Ok((reader, writer))
}

#[cfg(test)]
mod tests {
    use super::*;
    use rustix::io::{Errno, read, write};

    #[test]
    fn an_empty_or_full_pipe_does_not_wait() {
        let (reader, writer) = nonblocking().unwrap();
        assert_eq!(read(&reader, &mut [0; 8]).unwrap_err(), Errno::AGAIN);
        while write(&writer, &[0; 4096]).is_ok() {}
        assert_eq!(write(&writer, b"!").unwrap_err(), Errno::AGAIN);
    }
}
