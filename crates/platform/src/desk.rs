//! A desk where whoever waits anyway does errands for others, so that one process does what many would.
//!
//! The file `clerk` is locked by the process that sits there and names its FIFO, in which others leave their errands.
//! Each errand says where its answer is to go, and until when it may be done. The FIFO is taken down with the seat, so
//! that an errand which was not read by then is never done by a later clerk.

use std::fs::{File, TryLockError};
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};
use std::time::{Duration, Instant};

use lockkeeper_core::id::BellId;
use lockkeeper_core::time::Moment;

use super::bell::{Bell, Ringer, leave, open_to_ring};
use super::fs::open_private;
use super::{clock, poll};

/// The longest message: as much as a FIFO takes whole.
const LONGEST: usize = 4096;
/// The number of no clerk.
const NOBODY: u64 = 0;
/// How an answer says what became of an errand.
const DONE: u8 = b'+';
const YOURSELF: u8 = b'-';
/// Its length, who sent it, its number, and until when it is good.
const HEADING: usize = 2 + 8 + 8 + 8;
/// How long an errand may take. Nobody is this slow who is not stopped, or starved.
pub const GOOD_FOR: Duration = Duration::from_millis(20);

/// The desk of one store.
#[derive(Debug)]
pub struct Desk {
    dir: PathBuf,
    file: OnceLock<File>,
    /// The kernel's lock belongs to the open file: it would let two threads that share it sit down.
    is_ours: AtomicBool,
    ringer: Ringer,
    /// The clerk that was asked last.
    known: Mutex<Option<(BellId, Arc<OwnedFd>)>>,
    /// A clerk that did not answer in time; zero when there was none.
    slow: AtomicU64,
    /// FIFOs for answers that nobody waits for now.
    boxes: Mutex<Vec<Bell>>,
    asked: AtomicU64,
}

/// Where an errand is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Left {
    /// The clerk does it, unless it is killed or stopped before [`GOOD_FOR`] is over.
    WithClerk,
    /// There was nobody to leave it with.
    Nowhere,
    /// The clerk was leaving: it did it, or nobody ever will.
    Doubtful,
}

/// What became of an errand.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Answer {
    /// The clerk did it.
    Done,
    /// Nobody did it, and nobody will.
    Yourself,
    /// Either the clerk did it, or nobody ever will.
    None,
}

impl Desk {
    /// The desk of the store at `dir`; nothing is made there before somebody sits down.
    pub fn new(dir: &Path) -> Arc<Self> {
        Arc::new(Self {
            dir: dir.to_owned(),
            file: OnceLock::new(),
            is_ours: AtomicBool::new(false),
            ringer: Ringer::new(dir),
            known: Mutex::new(None),
            slow: AtomicU64::new(0),
            boxes: Mutex::new(Vec::new()),
            asked: AtomicU64::new(0),
        })
    }

    /// Sits down if nobody does.
    pub fn sit(self: &Arc<Self>) -> io::Result<Option<Seat>> {
        if self.is_ours.swap(true, Ordering::SeqCst) {
            return Ok(None);
        }
        let seated = self.sit_alone();
        if !matches!(seated, Ok(Some(_))) {
            self.is_ours.store(false, Ordering::SeqCst);
        }
        seated
    }

    /// Whether somebody of this process sits there.
    pub fn is_ours(&self) -> bool {
        self.is_ours.load(Ordering::Relaxed)
    }

    fn sit_alone(self: &Arc<Self>) -> io::Result<Option<Seat>> {
        let file = self.file()?;
        match file.try_lock() {
            Ok(()) => {}
            Err(TryLockError::WouldBlock) => return Ok(None),
            Err(TryLockError::Error(error)) => return Err(error),
        }
        let named = Bell::create(&self.dir).and_then(|tray| self.name(tray.id()).map(|()| tray));
        match named {
            Ok(tray) => Ok(Some(Seat { desk: Arc::clone(self), tray: Some(tray) })),
            Err(error) => {
                let _ = file.unlock();
                Err(error)
            }
        }
    }

    fn name(&self, clerk: BellId) -> io::Result<()> {
        self.file()?.write_all_at(format!("{:020}", clerk.0).as_bytes(), 0)
    }

    /// Leaves an errand that is not answered. What fails was not left.
    pub fn leave(&self, errand: &[u8]) -> io::Result<Left> {
        let Some((clerk, way)) = self.way_to_clerk()? else { return Ok(Left::Nowhere) };
        if !self.leave_with(&way, BellId(NOBODY), 0, errand)? {
            return Ok(Left::Nowhere);
        }
        // Who leaves closes the desk first and then reads what was left: this may have come later.
        let is_leaving = self.clerk().is_ok_and(|named| named != Some(clerk));
        let is_over = is_leaving && poll::wait_or_hang_up(&[], &[way.as_fd()], Some(GOOD_FOR)).is_ok();
        Ok(if is_over { Left::Doubtful } else { Left::WithClerk })
    }

    /// Leaves an errand and waits for the answer.
    pub fn send(&self, errand: &[u8]) -> io::Result<Answer> {
        let Some((clerk, way)) = self.way_to_clerk()? else { return Ok(Answer::Yourself) };
        let idle = lock(&self.boxes).pop();
        let answers = idle.map_or_else(|| Bell::create(&self.dir), Ok)?;
        let number = self.asked.fetch_add(1, Ordering::Relaxed);
        let answer = match self.leave_with(&way, answers.id(), number, errand)? {
            true => wait_for_answer(&answers, &way, number)?,
            false => Some(Answer::Yourself),
        };
        lock(&self.boxes).push(answers);
        Ok(answer.unwrap_or_else(|| {
            self.slow.store(clerk.0, Ordering::Relaxed);
            Answer::None
        }))
    }

    fn leave_with(&self, way: &OwnedFd, from: BellId, number: u64, errand: &[u8]) -> io::Result<bool> {
        let until = clock::now().after(GOOD_FOR);
        let Some(message) = message(from, number, until, errand) else { return Ok(false) };
        leave(way, &message)
    }

    /// The clerk's FIFO, if there is a clerk who answers.
    fn way_to_clerk(&self) -> io::Result<Option<(BellId, Arc<OwnedFd>)>> {
        let Some(clerk) = self.clerk()? else { return Ok(None) };
        if self.slow.load(Ordering::Relaxed) == clerk.0 {
            return Ok(None);
        }
        let mut known = lock(&self.known);
        if let Some((_, way)) = known.as_ref().filter(|(id, _)| *id == clerk) {
            return Ok(Some((clerk, Arc::clone(way))));
        }
        *known = open_to_ring(&self.dir, clerk)?.map(|way| (clerk, Arc::new(way)));
        Ok(known.clone())
    }

    /// Who sits there, or was killed there.
    fn clerk(&self) -> io::Result<Option<BellId>> {
        let mut digits = [0; 20];
        let read = self.file()?.read_at(&mut digits, 0)?;
        let text = std::str::from_utf8(&digits[..read]).unwrap_or_default();
        Ok(text.parse().ok().filter(|id| *id != NOBODY).map(BellId))
    }

    fn file(&self) -> io::Result<&File> {
        if let Some(file) = self.file.get() {
            return Ok(file);
        }
        let file = File::from(open_private(&self.dir.join("clerk"))?);
        Ok(self.file.get_or_init(|| file))
    }
}

/// None when it did not come in time.
fn wait_for_answer(answers: &Bell, way: &OwnedFd, number: u64) -> io::Result<Option<Answer>> {
    // Beyond its time the errand is not begun any more.
    let until = Instant::now() + GOOD_FOR;
    loop {
        let left = until.saturating_duration_since(Instant::now());
        let ready = poll::wait_or_hang_up(&[answers.as_fd()], &[way.as_fd()], Some(left))?;
        // What was said before the clerk left counts.
        let is_left = ready.contains(1);
        let mut said = Vec::new();
        answers.read(&mut said)?;
        if let Some(answer) = messages(&said).find(|answer| answer.number == number) {
            return Ok(Some(if answer.body() == [DONE] { Answer::Done } else { Answer::Yourself }));
        }
        if is_left {
            return Ok(Some(Answer::None));
        }
        if left.is_zero() {
            return Ok(None);
        }
    }
}

/// The clerk's seat. Errands that were not read when it is dropped are left undone for good.
#[derive(Debug)]
pub struct Seat {
    desk: Arc<Desk>,
    /// There until the seat is left.
    tray: Option<Bell>,
}

impl Seat {
    /// Takes all errands that were left, the first one first.
    pub fn errands(&self) -> io::Result<Vec<Message>> {
        let mut bytes = Vec::new();
        if let Some(tray) = &self.tray {
            tray.read(&mut bytes)?;
        }
        Ok(messages(&bytes).collect())
    }

    /// Tells whoever comes from now on that nobody sits here.
    pub fn close(&self) {
        let _ = self.desk.name(BellId(NOBODY));
    }

    /// Answers an errand. Who is not there any more, or whose box is full, sees to it alone.
    pub fn answer(&self, errand: &Message, answer: Answer) {
        let body = if answer == Answer::Done { DONE } else { YOURSELF };
        if let Some(message) = message(BellId(NOBODY), errand.number, errand.until, &[body]) {
            let _ = self.desk.ringer.bring(errand.from, &message);
        }
    }
}

/// Readable when there are errands.
impl AsFd for Seat {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.tray.as_ref().expect("it is there until the seat is left").as_fd()
    }
}

impl Drop for Seat {
    fn drop(&mut self) {
        // Nobody else may sit down while errands can be left here.
        self.tray = None;
        if let Some(file) = self.desk.file.get() {
            let _ = file.unlock();
        }
        self.desk.is_ours.store(false, Ordering::SeqCst);
    }
}

/// An errand or an answer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Message {
    from: BellId,
    number: u64,
    until: Moment,
    body: Vec<u8>,
}

impl Message {
    /// When it is too late to begin.
    pub fn until(&self) -> Moment {
        self.until
    }

    /// What it says.
    pub fn body(&self) -> &[u8] {
        &self.body
    }
}

/// None when it is too long to be left whole.
fn message(from: BellId, number: u64, until: Moment, body: &[u8]) -> Option<Vec<u8>> {
    let length = HEADING + body.len();
    if length > LONGEST {
        return None;
    }
    let mut bytes = Vec::with_capacity(length);
    bytes.extend_from_slice(&u16::try_from(length).ok()?.to_ne_bytes());
    bytes.extend_from_slice(&from.0.to_ne_bytes());
    bytes.extend_from_slice(&number.to_ne_bytes());
    bytes.extend_from_slice(&until.as_micros().to_ne_bytes());
    bytes.extend_from_slice(body);
    Some(bytes)
}

/// The messages in what was read. What is none of ours ends them: its sender goes without an answer.
fn messages(mut bytes: &[u8]) -> impl Iterator<Item = Message> {
    std::iter::from_fn(move || {
        let length = usize::from(u16::from_ne_bytes(*bytes.first_chunk()?));
        let (message, rest) = bytes.split_at_checked(length).filter(|_| length >= HEADING)?;
        bytes = rest;
        let number_at = |place: usize| message[place..].first_chunk().copied().map(u64::from_ne_bytes);
        Some(Message {
            from: BellId(number_at(2)?),
            number: number_at(10)?,
            until: Moment::from_micros(number_at(18)?.cast_signed()),
            body: message[HEADING..].to_vec(),
        })
    })
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::thread;

    fn wait_for_errands(seat: &Seat) -> Vec<Message> {
        assert!(poll::wait(&[seat.as_fd()], None).unwrap().any());
        seat.errands().unwrap()
    }

    #[test]
    fn an_errand_is_read_by_the_clerk_and_its_answer_comes_back() {
        let dir = tempfile::tempdir().unwrap();
        let (clerk, sender) = (Desk::new(dir.path()), Desk::new(dir.path()));
        assert_eq!(sender.send(b"nobody is there").unwrap(), Answer::Yourself);
        let seat = clerk.sit().unwrap().unwrap();
        for answer in [Answer::Done, Answer::Yourself] {
            thread::scope(|scope| {
                let sent = scope.spawn(|| sender.send(b"do it").unwrap());
                let errands = wait_for_errands(&seat);
                assert_eq!(errands.iter().map(Message::body).collect::<Vec<_>>(), [b"do it"]);
                seat.answer(&errands[0], answer);
                // On a machine that is too busy to answer in time it stays open whether it was done.
                assert!([answer, Answer::None].contains(&sent.join().unwrap()));
            });
            sender.slow.store(NOBODY, Ordering::Relaxed);
        }
    }

    #[test]
    fn one_sits_at_a_time_and_errands_come_in_their_order() {
        let dir = tempfile::tempdir().unwrap();
        let (one, other) = (Desk::new(dir.path()), Desk::new(dir.path()));
        let seat = one.sit().unwrap().unwrap();
        assert!(one.sit().unwrap().is_none() && other.sit().unwrap().is_none());
        for errand in [b"1", b"2", b"3"] {
            assert_eq!(other.leave(errand).unwrap(), Left::WithClerk);
        }
        let errands = wait_for_errands(&seat);
        assert_eq!(errands.iter().map(Message::body).collect::<Vec<_>>(), [b"1", b"2", b"3"]);
        drop(seat);
        assert!(other.sit().unwrap().is_some());
    }

    #[test]
    fn what_a_clerk_did_not_read_is_never_read_by_the_next() {
        let dir = tempfile::tempdir().unwrap();
        let (one, other, sender) = (Desk::new(dir.path()), Desk::new(dir.path()), Desk::new(dir.path()));
        let seat = one.sit().unwrap().unwrap();
        assert_eq!(sender.leave(b"unread").unwrap(), Left::WithClerk);
        drop(seat);
        let seat = other.sit().unwrap().unwrap();
        assert_eq!(sender.leave(b"later").unwrap(), Left::WithClerk);
        let errands = wait_for_errands(&seat);
        assert_eq!(errands.iter().map(Message::body).collect::<Vec<_>>(), [b"later"]);
        seat.close();
        assert_eq!(sender.leave(b"closed").unwrap(), Left::Nowhere);
        assert_eq!(sender.send(b"closed").unwrap(), Answer::Yourself);
    }

    #[test]
    fn whoever_waits_sees_the_clerk_leave() {
        let dir = tempfile::tempdir().unwrap();
        let (clerk, sender) = (Desk::new(dir.path()), Desk::new(dir.path()));
        let seat = clerk.sit().unwrap().unwrap();
        thread::scope(|scope| {
            let sent = scope.spawn(|| sender.send(b"do it").unwrap());
            wait_for_errands(&seat);
            drop(seat);
            assert_eq!(sent.join().unwrap(), Answer::None);
        });
    }

    #[test]
    fn a_clerk_that_does_not_answer_is_not_asked_again() {
        let dir = tempfile::tempdir().unwrap();
        let (clerk, sender) = (Desk::new(dir.path()), Desk::new(dir.path()));
        let seat = clerk.sit().unwrap().unwrap();
        assert_eq!(sender.send(b"asked").unwrap(), Answer::None);
        assert_eq!(sender.send(b"not asked").unwrap(), Answer::Yourself);
        let errands = wait_for_errands(&seat);
        assert_eq!(errands.iter().map(Message::body).collect::<Vec<_>>(), [b"asked"]);
        assert!(errands[0].until() < clock::now(), "its time is over");
    }

    #[test]
    fn what_is_too_long_or_no_message_goes_nowhere() {
        let dir = tempfile::tempdir().unwrap();
        let (clerk, sender) = (Desk::new(dir.path()), Desk::new(dir.path()));
        let seat = clerk.sit().unwrap().unwrap();
        assert_eq!(sender.leave(&[0; LONGEST]).unwrap(), Left::Nowhere);
        assert_eq!(sender.send(&[0; LONGEST]).unwrap(), Answer::Yourself);
        let tray = seat.tray.as_ref().unwrap().id();
        for garbage in [&b"x"[..], b"\0\0", &[0xff; 40], &[1, 0, 3]] {
            assert!(sender.ringer.bring(tray, garbage).unwrap());
            assert_eq!(seat.errands().unwrap(), []);
        }
        assert_eq!(sender.leave(b"an errand").unwrap(), Left::WithClerk);
        assert_eq!(seat.errands().unwrap().len(), 1);
    }
}
