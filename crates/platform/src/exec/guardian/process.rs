//! The process of a guardian: one thread for each line, which starts one command after the other and waits for it.

use std::fs::File;
use std::io;
use std::os::fd::AsFd;
use std::os::unix::net::UnixStream;
use std::sync::Arc;
use std::thread;

use rustix::process::{Pid, WaitId, WaitIdOptions, WaitOptions, waitid, waitpid};

use super::message::{Reply, StartRequest, receive_descriptors, receive_request};
use super::record::EndRecord;
use crate::exec::Ending;
use crate::exec::posix_spawn;
use crate::liveness_lock::first_inherited;
use crate::{clock, signal};

/// The stack of a thread. It only receives, starts and waits.
const STACK: usize = 256 * 1024;

/// The files in which a guardian writes.
struct Files {
    begun: File,
    ended: File,
}

/// Starts commands until the worker is gone and all of them have ended. Returns the exit code of this process.
pub(super) fn run() -> u8 {
    // A signal to the whole job, such as Ctrl-C, concerns the worker, which then stops its commands. Here the signals are
    // blocked. They are not ignored, because commands would inherit that.
    signal::block_all();
    match serve() {
        Ok(()) => 0,
        Err(error) => {
            eprintln!("error: this process is for workers, which start it by themselves: {error}");
            2
        }
    }
}

fn serve() -> io::Result<()> {
    close_inherited();
    let control = UnixStream::from(io::stdin().as_fd().try_clone_to_owned()?);
    let files = receive_descriptors(&control)?.ok_or(io::ErrorKind::UnexpectedEof)?;
    let [begun, ended] = <[_; 2]>::try_from(files).map_err(|_| io::ErrorKind::InvalidData)?.map(File::from);
    let files = Arc::new(Files { begun, ended });
    // `ps` shows this name instead of `exe`. In `/` the guardian keeps no folder in use that a user may want to remove.
    let _ = rustix::thread::set_name(c"lockkeeper");
    let _ = std::env::set_current_dir("/");
    let mut threads = Vec::new();
    while let Some(line) = receive_descriptors(&control)?.and_then(|mut received| received.pop()) {
        let (line, files) = (UnixStream::from(line), Arc::clone(&files));
        let body = move || while serve_next(&line, &files) {};
        // Without a thread the line is closed, and the worker starts the command itself.
        threads.extend(thread::Builder::new().stack_size(STACK).spawn(body));
        threads.retain(|thread| !thread.is_finished());
    }
    for thread in threads {
        let _ = thread.join();
    }
    Ok(())
}

/// Closes everything but the standard streams: this process must not share the locks of others.
#[expect(unsafe_code, reason = "rustix does not close descriptors that nobody owns")]
fn close_inherited() {
    // SAFETY: it is called before this process opens anything.
    unsafe { libc::close_range(3, libc::c_uint::MAX, 0) };
}

/// Starts the next command and waits for its end. Returns false when there is no other.
fn serve_next(line: &UnixStream, files: &Files) -> bool {
    let Ok(Some(request)) = receive_request(line) else { return false };
    match files.start(&request) {
        // The command has its locks now. They are closed here before the worker learns of the start.
        Ok(pid) => {
            let StartRequest { note, inherited, .. } = request;
            drop(inherited);
            // A worker that is gone reads nothing, here and below.
            let _ = Reply::Started(pid.as_raw_nonzero().get()).send(line);
            let Some(status) = wait(pid) else { return false };
            // Written before the worker is told, and before the pid is free: if the worker or this process dies next, it is
            // known how the command ended.
            let ended = Some((Ending::from_wait(status), clock::now()));
            let _ = EndRecord { holder: note.holder, ended }.write(&files.ended, note.place);
            let _ = Reply::Ended(status).send(line);
            let _ = waitpid(Some(pid), WaitOptions::NOHANG);
        }
        Err(error) => {
            let _ = request.note.erase(&files.begun);
            drop(request);
            let _ = Reply::Failed(error.raw_os_error().unwrap_or(libc::EIO)).send(line);
        }
    }
    true
}

impl Files {
    /// Notes that the command may have begun, and starts it.
    fn start(&self, request: &StartRequest) -> io::Result<Pid> {
        let StartRequest { image, note, inherited } = request;
        EndRecord { holder: note.holder, ended: None }.write(&self.ended, note.place)?;
        note.write(&self.begun)?;
        // This process has more open descriptors of its own than `posix_spawn` needs places. So the received ones are above
        // these places.
        let inherited = inherited.iter().map(AsFd::as_fd).zip(first_inherited()..);
        posix_spawn::spawn(image, &inherited.collect::<Vec<_>>())
    }
}

/// Waits for the end of a command and returns its `wait(2)` status. The command stays a zombie.
fn wait(pid: Pid) -> Option<i32> {
    loop {
        match waitid(WaitId::Pid(pid), WaitIdOptions::EXITED | WaitIdOptions::NOWAIT) {
            Ok(Some(status)) => {
                let exited = status.exit_status().map(|code| (code & 0xff) << 8);
                return exited.or_else(|| status.terminating_signal());
            }
            Ok(None) | Err(rustix::io::Errno::INTR) => {}
            Err(_) => return None,
        }
    }
}
