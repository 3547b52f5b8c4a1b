//! Access token of a server: stored in a file that only its owner can read, compared in constant time.
//!
//! The file is looked at before each use. Replacing or removing it rotates the token: the old token and every session
//! that began with it are refused from then on. A removed file is made again with a new token.

use std::fmt;
use std::fs::{self, File, Metadata, OpenOptions};
use std::hint::black_box;
use std::io::{self, Read, Write};
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use lockkeeper_platform::fs::{NO_FOLLOW, NO_WAIT};
use lockkeeper_platform::random;
use thiserror::Error;

/// The shortest token, in characters.
const MIN_LENGTH: usize = 16;
/// The largest token file.
const MAX_BYTES: u64 = 4096;
/// A new secret has this many times 64 random bits.
const WORDS: usize = 4;

/// A secret that clients have to send. Clones share what is known of its file.
#[derive(Clone)]
pub struct AccessToken(Arc<TokenFile>);

struct TokenFile {
    path: PathBuf,
    known: Mutex<Known>,
}

/// What was read from the file.
struct Known {
    /// None while the file cannot be used: then nobody is let in.
    secret: Option<String>,
    stamp: Option<Stamp>,
    /// Counts the tokens that this process has read.
    version: TokenVersion,
}

/// The number of a token. It grows each time that the token in the file is replaced.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct TokenVersion(u64);

#[cfg(test)]
impl TokenVersion {
    pub(super) const fn of(number: u64) -> Self {
        Self(number)
    }
}

/// Identity of a file and of its content: a file with another stamp is read again.
#[derive(Clone, Copy, PartialEq, Eq)]
struct Stamp {
    device: u64,
    inode: u64,
    changed: (i64, i64),
}

impl AccessToken {
    /// Reads the token from a file, or creates the file with a new token.
    pub fn load_or_create(path: &Path) -> Result<Self, TokenError> {
        let (secret, stamp) = read_or_create(path)?;
        let known = Known { secret: Some(secret), stamp: Some(stamp), version: TokenVersion(0) };
        Ok(Self(Arc::new(TokenFile { path: path.to_owned(), known: Mutex::new(known) })))
    }

    /// The version of the token, if the text is the token that the file has now.
    pub(super) fn check(&self, text: &str) -> Option<TokenVersion> {
        let known = self.known();
        let secret = known.secret.as_ref()?;
        is_same_secret(secret, text).then_some(known.version)
    }

    /// The version of the token that the file has now.
    pub(super) fn version(&self) -> TokenVersion {
        self.known().version
    }

    /// What the file has now. It is read again when it was changed.
    fn known(&self) -> MutexGuard<'_, Known> {
        let mut known = self.0.known.lock().unwrap_or_else(PoisonError::into_inner);
        let stamp = fs::symlink_metadata(&self.0.path).ok().map(|facts| Stamp::of(&facts));
        if stamp.is_some() && stamp == known.stamp {
            return known;
        }
        let (secret, stamp) = match read_or_create(&self.0.path) {
            Ok((secret, stamp)) => (Some(secret), Some(stamp)),
            Err(error) => {
                tracing::error!(%error, hint = error.hint(), "nobody is let in");
                (None, stamp)
            }
        };
        known.stamp = stamp;
        if known.secret != secret {
            known.secret = secret;
            known.version.0 += 1;
        }
        known
    }
}

/// Makes a new secret of 256 random bits, as hexadecimal digits.
pub(super) fn new_secret() -> io::Result<String> {
    let mut secret = String::with_capacity(16 * WORDS);
    for _ in 0..WORDS {
        secret.push_str(&format!("{:016x}", random::number()?));
    }
    Ok(secret)
}

/// Compares in constant time: the duration does not depend on how many characters are right.
fn is_same_secret(own: &str, given: &str) -> bool {
    let (own, given) = (own.as_bytes(), given.as_bytes());
    let pairs = own.iter().zip(given);
    let differing = pairs.fold(0, |differing, (a, b)| black_box(differing | (a ^ b)));
    own.len() == given.len() && differing == 0
}

fn read_or_create(path: &Path) -> Result<(String, Stamp), TokenError> {
    match read(path) {
        Err(TokenError::Io { source, .. }) if source.kind() == io::ErrorKind::NotFound => write_new(path),
        read => read,
    }
}

fn read(path: &Path) -> Result<(String, Stamp), TokenError> {
    let failed = |source| TokenError::Io { action: "read", path: path.to_owned(), source };
    let mut options = OpenOptions::new();
    let mut file = options.read(true).custom_flags(NO_FOLLOW | NO_WAIT).open(path).map_err(failed)?;
    let facts = file.metadata().map_err(failed)?;
    if !facts.is_file() {
        return Err(failed(io::Error::other("it is not a regular file")));
    }
    if facts.mode() & 0o077 != 0 {
        return Err(TokenError::Exposed { path: path.to_owned(), mode: facts.mode() & 0o7777 });
    }
    let mut text = String::new();
    Read::by_ref(&mut file).take(MAX_BYTES).read_to_string(&mut text).map_err(failed)?;
    let token = text.trim();
    if token.len() < MIN_LENGTH || token.contains(|c: char| !c.is_ascii_graphic()) {
        return Err(TokenError::Weak { path: path.to_owned() });
    }
    Ok((token.to_owned(), Stamp::of(&facts)))
}

fn write_new(path: &Path) -> Result<(String, Stamp), TokenError> {
    let failed = |source| TokenError::Io { action: "write", path: path.to_owned(), source };
    let token = new_secret().map_err(failed)?;
    // Written to a temporary file and linked: of two servers that start at the same moment, the second reads the
    // whole token of the first.
    let aside = path.with_extension(format!("{:016x}", random::number().map_err(failed)?));
    let written = File::options().write(true).create_new(true).mode(0o600).open(&aside);
    let linked = written
        .and_then(|mut file| {
            file.write_all(token.as_bytes())?;
            file.write_all(b"\n")?;
            file.sync_all()
        })
        .and_then(|()| fs::hard_link(&aside, path));
    let _ = fs::remove_file(&aside);
    match linked {
        Ok(()) => read(path),
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists => read(path),
        Err(source) => Err(failed(source)),
    }
}

impl Stamp {
    fn of(facts: &Metadata) -> Self {
        Self { device: facts.dev(), inode: facts.ino(), changed: (facts.ctime(), facts.ctime_nsec()) }
    }
}

impl fmt::Debug for AccessToken {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("AccessToken(…)")
    }
}

/// Why a token file cannot be used.
#[derive(Debug, Error)]
pub enum TokenError {
    /// The file cannot be read or written.
    #[error("cannot {action} the token in {}", path.display())]
    Io {
        /// What was attempted.
        action: &'static str,
        /// The file.
        path: PathBuf,
        /// The error of the system.
        source: io::Error,
    },
    /// Other users can read the file.
    #[error("the token in {} can be read by others (mode {mode:o})", path.display())]
    Exposed {
        /// The file.
        path: PathBuf,
        /// The mode of the file.
        mode: u32,
    },
    /// The file has no usable token.
    #[error("{} holds no token of at least {MIN_LENGTH} characters", path.display())]
    Weak {
        /// The file.
        path: PathBuf,
    },
}

impl TokenError {
    /// What the user can do about it.
    pub fn hint(&self) -> String {
        match self {
            Self::Io { .. } => "choose a file in a folder of your own with --token-file".to_owned(),
            Self::Exposed { path, .. } => {
                format!("others may know it: remove {} and start again for a new one", path.display())
            }
            Self::Weak { path } => format!("remove {} and start again for a new one", path.display()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::PermissionsExt;

    #[test]
    fn a_new_token_file_is_readable_by_its_owner_only() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("token");
        let made = AccessToken::load_or_create(&path).unwrap();
        assert_eq!(fs::metadata(&path).unwrap().permissions().mode() & 0o7777, 0o600);
        let text = fs::read_to_string(&path).unwrap();
        let again = AccessToken::load_or_create(&path).unwrap();
        assert!(made.check(text.trim()).is_some() && again.check(text.trim()).is_some());
        assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 1);
        assert!(!format!("{made:?}").contains(text.trim()));
    }

    #[test]
    fn only_the_whole_token_matches() {
        let token = "0123456789abcdef";
        for wrong in ["", "0", "0123456789abcdeF", "0123456789abcdef0", "0123456789abcde"] {
            assert!(!is_same_secret(token, wrong), "{wrong}");
        }
        assert!(is_same_secret(token, "0123456789abcdef"));
    }

    #[test]
    fn a_replaced_file_rotates_the_token_and_a_removed_one_is_made_again() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("token");
        let token = AccessToken::load_or_create(&path).unwrap();
        let first = fs::read_to_string(&path).unwrap();
        let began = token.check(first.trim()).unwrap();
        AccessToken::load_or_create(&folder.path().join("other")).unwrap();
        fs::rename(folder.path().join("other"), &path).unwrap();
        let second = fs::read_to_string(&path).unwrap();
        assert!(token.check(first.trim()).is_none() && token.check(second.trim()).is_some());
        assert_ne!(token.version(), began);
        fs::remove_file(&path).unwrap();
        assert!(token.check(second.trim()).is_none());
        let third = fs::read_to_string(&path).unwrap();
        assert!(third != second && token.check(third.trim()).is_some());
        fs::set_permissions(&path, fs::Permissions::from_mode(0o644)).unwrap();
        assert!(token.check(third.trim()).is_none(), "others may know it");
    }

    #[test]
    fn a_token_that_others_can_read_or_guess_is_refused() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("token");
        AccessToken::load_or_create(&path).unwrap();
        fs::set_permissions(&path, fs::Permissions::from_mode(0o640)).unwrap();
        assert!(matches!(AccessToken::load_or_create(&path), Err(TokenError::Exposed { mode: 0o640, .. })));
        fs::set_permissions(&path, fs::Permissions::from_mode(0o600)).unwrap();
        fs::write(&path, "short\n").unwrap();
        assert!(matches!(AccessToken::load_or_create(&path), Err(TokenError::Weak { .. })));
        let link = folder.path().join("link");
        std::os::unix::fs::symlink(&path, &link).unwrap();
        assert!(matches!(AccessToken::load_or_create(&link), Err(TokenError::Io { .. })));
    }
}
