//! Access token of a server: stored in a file that only its owner can read, compared in constant time.

use std::fmt;
use std::fs::{self, File, OpenOptions};
use std::hint::black_box;
use std::io::{self, Read, Write};
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

use lockkeeper_platform::fs::NO_FOLLOW;
use lockkeeper_platform::random;
use thiserror::Error;

/// The shortest token, in characters.
const MIN_LENGTH: usize = 16;
/// The largest token file.
const MAX_BYTES: u64 = 4096;
/// A new token has this many times 64 random bits.
const WORDS: usize = 4;

/// A secret that clients have to send.
#[derive(Clone)]
pub struct AccessToken(String);

impl AccessToken {
    /// Reads the token from a file, or creates the file with a new token.
    pub fn load_or_create(path: &Path) -> Result<Self, TokenError> {
        match Self::read(path) {
            Err(TokenError::Io { source, .. }) if source.kind() == io::ErrorKind::NotFound => {
                Self::write_new(path)
            }
            read => read,
        }
    }

    /// Compares in constant time: the duration does not depend on how many characters are right.
    pub fn matches(&self, text: &str) -> bool {
        let (own, given) = (self.0.as_bytes(), text.as_bytes());
        let pairs = own.iter().zip(given);
        let differing = pairs.fold(0, |differing, (a, b)| black_box(differing | (a ^ b)));
        own.len() == given.len() && differing == 0
    }

    fn read(path: &Path) -> Result<Self, TokenError> {
        let failed = |source| TokenError::Io { action: "read", path: path.to_owned(), source };
        let mut file = OpenOptions::new().read(true).custom_flags(NO_FOLLOW).open(path).map_err(failed)?;
        let facts = file.metadata().map_err(failed)?;
        if !facts.is_file() || facts.mode() & 0o077 != 0 {
            return Err(TokenError::Exposed { path: path.to_owned(), mode: facts.mode() & 0o7777 });
        }
        let mut text = String::new();
        Read::by_ref(&mut file).take(MAX_BYTES).read_to_string(&mut text).map_err(failed)?;
        let token = text.trim();
        if token.len() < MIN_LENGTH || token.contains(|c: char| !c.is_ascii_graphic()) {
            return Err(TokenError::Weak { path: path.to_owned() });
        }
        Ok(Self(token.to_owned()))
    }

    fn write_new(path: &Path) -> Result<Self, TokenError> {
        let failed = |source| TokenError::Io { action: "write", path: path.to_owned(), source };
        let mut token = String::with_capacity(16 * WORDS);
        for _ in 0..WORDS {
            token.push_str(&format!("{:016x}", random::number().map_err(failed)?));
        }
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
            Ok(()) => Ok(Self(token)),
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => Self::read(path),
            Err(source) => Err(failed(source)),
        }
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
        assert!(
            made.matches(text.trim()) && AccessToken::load_or_create(&path).unwrap().matches(text.trim())
        );
        assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 1);
        assert!(!format!("{made:?}").contains(text.trim()));
    }

    #[test]
    fn only_the_whole_token_matches() {
        let token = AccessToken("0123456789abcdef".to_owned());
        for wrong in ["", "0", "0123456789abcdeF", "0123456789abcdef0", "0123456789abcde"] {
            assert!(!token.matches(wrong), "{wrong}");
        }
        assert!(token.matches("0123456789abcdef"));
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
