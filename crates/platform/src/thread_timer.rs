//! Thread timer: interrupts a system call of the calling thread that has no time limit of its own, such as `flock(2)`.

use std::io;
use std::sync::OnceLock;
use std::time::Duration;

use super::signal::{self, Signal};

/// The signal that interrupts the call. Its default action is to do nothing, so it does no harm when it comes late.
const INTERRUPT: Signal = Signal::URG;

/// Interrupts the blocking calls of the thread that made it, at each interval: the call fails with `EINTR`. Ends when it is
/// dropped.
#[derive(Debug)]
pub(super) struct ThreadTimer {
    _timer: system::Timer,
}

impl ThreadTimer {
    /// Starts to interrupt this thread each time that `interval` has passed.
    pub(super) fn every(interval: Duration) -> io::Result<Self> {
        static IS_SET_UP: OnceLock<bool> = OnceLock::new();
        if !*IS_SET_UP.get_or_init(|| signal::make_interrupting(INTERRUPT).is_ok()) {
            return Err(io::Error::other("the signal cannot be handled"));
        }
        Ok(Self { _timer: system::Timer::start(interval)? })
    }
}

#[cfg(target_os = "linux")]
mod system {
    use std::io;
    use std::time::Duration;

    use super::INTERRUPT;

    /// A timer of the kernel that sends the signal to one thread.
    #[derive(Debug)]
    pub(super) struct Timer(libc::timer_t);

    impl Timer {
        #[expect(unsafe_code, reason = "rustix has no timers that send signals")]
        pub(super) fn start(interval: Duration) -> io::Result<Self> {
            // SAFETY: it holds integers and pointers, for which zero is valid.
            let mut event: libc::sigevent = unsafe { std::mem::zeroed() };
            event.sigev_notify = libc::SIGEV_THREAD_ID;
            event.sigev_signo = INTERRUPT.as_raw();
            event.sigev_notify_thread_id = rustix::thread::gettid().as_raw_nonzero().get();
            let mut timer: libc::timer_t = std::ptr::null_mut();
            // SAFETY: both point to such structures.
            if unsafe { libc::timer_create(libc::CLOCK_MONOTONIC, &raw mut event, &raw mut timer) } == -1 {
                return Err(io::Error::last_os_error());
            }
            let timer = Self(timer);
            let interval = libc::timespec {
                tv_sec: libc::time_t::try_from(interval.as_secs()).unwrap_or(libc::time_t::MAX),
                tv_nsec: interval.subsec_nanos().into(),
            };
            let times = libc::itimerspec { it_interval: interval, it_value: interval };
            // SAFETY: the timer exists, `times` is such a structure, and nobody wants the former times.
            match unsafe { libc::timer_settime(timer.0, 0, &raw const times, std::ptr::null_mut()) } {
                -1 => Err(io::Error::last_os_error()),
                _ => Ok(timer),
            }
        }
    }

    impl Drop for Timer {
        #[expect(unsafe_code, reason = "rustix has no timers that send signals")]
        fn drop(&mut self) {
            // SAFETY: the timer exists, and nobody uses it afterwards.
            unsafe { libc::timer_delete(self.0) };
        }
    }
}

#[cfg(not(target_os = "linux"))]
mod system {
    use std::io;
    use std::sync::mpsc::{RecvTimeoutError, Sender, channel};
    use std::thread::{self, JoinHandle};
    use std::time::Duration;

    use super::INTERRUPT;

    /// A thread that sends the signal to another one.
    #[derive(Debug)]
    pub(super) struct Timer {
        running: Option<Sender<()>>,
        thread: Option<JoinHandle<()>>,
    }

    impl Timer {
        pub(super) fn start(interval: Duration) -> io::Result<Self> {
            let (running, stop) = channel::<()>();
            let target = own_thread();
            let body = move || {
                while stop.recv_timeout(interval) == Err(RecvTimeoutError::Timeout) {
                    interrupt(target);
                }
            };
            let thread = thread::Builder::new().name("timer".to_owned()).spawn(body)?;
            Ok(Self { running: Some(running), thread: Some(thread) })
        }
    }

    impl Drop for Timer {
        fn drop(&mut self) {
            drop(self.running.take());
            if let Some(thread) = self.thread.take() {
                let _ = thread.join();
            }
        }
    }

    #[expect(unsafe_code, reason = "std does not tell the number of a thread")]
    fn own_thread() -> libc::pthread_t {
        // SAFETY: it takes nothing and cannot fail.
        unsafe { libc::pthread_self() }
    }

    #[expect(unsafe_code, reason = "std cannot interrupt a system call of a thread")]
    fn interrupt(thread: libc::pthread_t) {
        // SAFETY: the thread joins this one before it ends, so it exists.
        unsafe { libc::pthread_kill(thread, INTERRUPT.as_raw()) };
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs::File;
    use std::io::ErrorKind;

    #[test]
    fn a_call_that_would_wait_for_ever_is_interrupted_as_often_as_it_is_made() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("lock");
        let holder = File::create(&path).unwrap();
        holder.lock().unwrap();
        let waiter = File::open(&path).unwrap();
        let _timer = ThreadTimer::every(Duration::from_millis(5)).unwrap();
        for _ in 0..20 {
            assert_eq!(waiter.lock().unwrap_err().kind(), ErrorKind::Interrupted);
        }
    }
}
