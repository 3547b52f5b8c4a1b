//! Sessions of browsers: random secrets that the server made, each for one browser that has logged in.
//!
//! A browser never keeps the token. It logs in with the token, or with a code that works once, and gets a session. A session
//! ends when it was not used for a while, when it is old, when the browser logs out, when the token is rotated, and with
//! the server. The cookie is named by the port, because browsers send cookies to every port of a host.

use std::collections::HashMap;
use std::io;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use crate::token::{TokenVersion, new_secret};

/// A session that was not used for this long has ended.
const IDLE: Duration = Duration::from_secs(8 * 60 * 60);
/// A session of this age has ended, however often it is used.
const OLDEST: Duration = Duration::from_secs(7 * 24 * 60 * 60);
/// A code that was not used for this long has ended.
const CODE_LIFE: Duration = Duration::from_secs(10 * 60);
/// How many sessions and codes there are at most. A new one replaces the one that was not used for the longest time.
const MOST: usize = 1_000;

/// All sessions of a server, and the codes that begin one.
#[derive(Default)]
pub(super) struct Sessions {
    open: Mutex<HashMap<String, Session>>,
    codes: Mutex<HashMap<String, Session>>,
}

/// A session or a code.
struct Session {
    /// The token that it began with.
    version: TokenVersion,
    began_at: Instant,
    used_at: Instant,
}

impl Session {
    fn lives(&self, version: TokenVersion, idle: Duration, now: Instant) -> bool {
        self.version == version && now - self.used_at < idle && now - self.began_at < OLDEST
    }
}

impl Sessions {
    /// Begins a session, and returns its secret.
    pub(super) fn begin(&self, version: TokenVersion, now: Instant) -> io::Result<String> {
        add(&mut locked(&self.open), version, IDLE, now)
    }

    /// Whether a session goes on. Using it renews it.
    pub(super) fn renew(&self, secret: &str, version: TokenVersion, now: Instant) -> bool {
        match locked(&self.open).get_mut(secret) {
            Some(session) if session.lives(version, IDLE, now) => {
                session.used_at = now;
                true
            }
            Some(_) | None => false,
        }
    }

    /// Whether a session goes on. It is not renewed.
    pub(super) fn is_open(&self, secret: &str, version: TokenVersion, now: Instant) -> bool {
        locked(&self.open).get(secret).is_some_and(|session| session.lives(version, IDLE, now))
    }

    /// Ends a session.
    pub(super) fn end(&self, secret: &str) {
        locked(&self.open).remove(secret);
    }

    /// Makes a code that begins one session.
    pub(super) fn new_code(&self, version: TokenVersion, now: Instant) -> io::Result<String> {
        add(&mut locked(&self.codes), version, CODE_LIFE, now)
    }

    /// Uses up a code. Returns whether it was right.
    pub(super) fn use_code(&self, code: &str, version: TokenVersion, now: Instant) -> bool {
        let used = locked(&self.codes).remove(code);
        used.is_some_and(|code| code.lives(version, CODE_LIFE, now))
    }
}

fn add(
    all: &mut HashMap<String, Session>,
    version: TokenVersion,
    idle: Duration,
    now: Instant,
) -> io::Result<String> {
    let secret = new_secret()?;
    all.retain(|_, session| session.lives(version, idle, now));
    if all.len() >= MOST
        && let Some(oldest) =
            all.iter().min_by_key(|(_, session)| session.used_at).map(|(key, _)| key.clone())
    {
        all.remove(&oldest);
    }
    all.insert(secret.clone(), Session { version, began_at: now, used_at: now });
    Ok(secret)
}

fn locked<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
    use super::*;

    const ONE: TokenVersion = TokenVersion::of(1);
    const TWO: TokenVersion = TokenVersion::of(2);

    #[test]
    fn a_session_goes_on_while_it_is_used_and_no_longer_than_a_week() {
        let (sessions, mut now) = (Sessions::default(), Instant::now());
        let (used, idle) = (sessions.begin(ONE, now).unwrap(), sessions.begin(ONE, now).unwrap());
        assert_ne!(used, idle);
        let end = now + OLDEST;
        while now + IDLE / 2 < end {
            now += IDLE / 2;
            assert!(sessions.renew(&used, ONE, now));
        }
        assert!(!sessions.renew(&used, ONE, end) && !sessions.renew(&idle, ONE, now));
    }

    #[test]
    fn looking_at_a_session_does_not_renew_it() {
        let (sessions, now) = (Sessions::default(), Instant::now());
        let secret = sessions.begin(ONE, now).unwrap();
        assert!(sessions.is_open(&secret, ONE, now + IDLE / 2));
        assert!(!sessions.is_open(&secret, ONE, now + IDLE));
    }

    #[test]
    fn logging_out_and_another_token_end_a_session() {
        let (sessions, now) = (Sessions::default(), Instant::now());
        let (one, two) = (sessions.begin(ONE, now).unwrap(), sessions.begin(ONE, now).unwrap());
        sessions.end(&one);
        assert!(!sessions.renew(&one, ONE, now) && sessions.renew(&two, ONE, now));
        assert!(!sessions.renew(&two, TWO, now) && !sessions.renew("", ONE, now));
    }

    #[test]
    fn a_code_works_once_and_not_for_long() {
        let (sessions, now) = (Sessions::default(), Instant::now());
        let code = sessions.new_code(ONE, now).unwrap();
        assert!(!sessions.renew(&code, ONE, now), "it is not a session");
        assert!(sessions.use_code(&code, ONE, now) && !sessions.use_code(&code, ONE, now));
        let late = sessions.new_code(ONE, now).unwrap();
        assert!(!sessions.use_code(&late, ONE, now + CODE_LIFE));
        let rotated = sessions.new_code(ONE, now).unwrap();
        assert!(!sessions.use_code(&rotated, TWO, now));
    }

    #[test]
    fn there_are_never_too_many() {
        let (sessions, now) = (Sessions::default(), Instant::now());
        let first = sessions.begin(ONE, now).unwrap();
        for second in 1..=MOST as u64 {
            sessions.begin(ONE, now + Duration::from_secs(second)).unwrap();
        }
        assert_eq!(locked(&sessions.open).len(), MOST);
        assert!(!sessions.renew(&first, ONE, now));
    }
}
