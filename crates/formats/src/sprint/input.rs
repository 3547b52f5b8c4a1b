//! Input of a sprint command, validated before anything is touched.

use std::io;
use std::path::PathBuf;

use rustix::fs::{Access, access};

use super::problem::Problem;
use super::status::Mode;
use crate::safe_open::FileName;

/// The name of the lock file, unless another is given.
pub const LOCK_FILE_NAME: &str = ".sprint-running";
/// The suffix of the temporary file of other programs.
const TEMPORARY: &str = ".tmp";
/// The most bytes of a session or an epic.
const MAX_TEXT: usize = 1000;

/// The input as the user gave it.
#[derive(Clone, Debug, Default)]
pub struct Input {
    /// `acquire`, `release` or `check`.
    pub mode: String,
    /// The folder of the lock file.
    pub project_root: Option<PathBuf>,
    /// The session. Required to acquire.
    pub session_id: Option<String>,
    /// What the sprint works on. Required to acquire.
    pub epic_spec: Option<String>,
    /// Whether to take over a zombie without a confirmation, and a running sprint with one.
    pub force: bool,
    /// Another name for the lock file.
    pub lock_file_name: Option<String>,
}

/// Valid input. To acquire, it has a session and an epic.
#[derive(Clone, Debug)]
pub struct Call {
    pub(super) mode: Mode,
    pub(super) root: PathBuf,
    pub(super) session_id: Option<String>,
    pub(super) epic_spec: Option<String>,
    pub(super) force: bool,
    pub(super) name: FileName,
    pub(super) temporary: FileName,
}

impl Input {
    /// Validates everything, in the order of the format.
    pub fn check(&self) -> Result<Call, Problem> {
        let mode: Mode = self.mode.parse()?;
        let root = self.root()?;
        let given = |text: &Option<String>| text.clone().filter(|text| !text.trim().is_empty());
        let (session_id, epic_spec) = (given(&self.session_id), given(&self.epic_spec));
        match mode {
            Mode::Acquire => {
                one_line("session_id", session_id.as_ref().ok_or(Problem::SessionRequired)?)?;
                one_line("epic_spec", epic_spec.as_ref().ok_or(Problem::EpicRequired)?)?;
            }
            Mode::Release | Mode::Check => {}
        }
        let name = self.lock_file_name.as_deref().unwrap_or(LOCK_FILE_NAME);
        let temporary = FileName::around("", name, TEMPORARY).map_err(|_| Problem::BadFileName)?;
        let name = FileName::new(name).map_err(|_| Problem::BadFileName)?;
        Ok(Call { mode, root, session_id, epic_spec, force: self.force, name, temporary })
    }

    /// Says whether a file exists at the lock's path, as far as it can be seen.
    pub fn something_is_there(&self) -> bool {
        let name = self.lock_file_name.as_deref().unwrap_or(LOCK_FILE_NAME);
        let path =
            self.project_root.as_ref().filter(|_| FileName::new(name).is_ok()).map(|root| root.join(name));
        path.is_some_and(|path| path.symlink_metadata().is_ok())
    }

    fn root(&self) -> Result<PathBuf, Problem> {
        let root = self.project_root.as_ref().filter(|root| !root.as_os_str().is_empty());
        let root = root.ok_or(Problem::RootNotAccessible(None))?;
        let metadata = root.metadata().map_err(|error| Problem::RootNotAccessible(Some(error)))?;
        if !metadata.is_dir() {
            return Err(Problem::RootNotAccessible(Some(io::ErrorKind::NotADirectory.into())));
        }
        access(root, Access::READ_OK | Access::WRITE_OK | Access::EXEC_OK)
            .map_err(|error| Problem::RootNotAccessible(Some(error.into())))?;
        Ok(root.clone())
    }
}

impl Call {
    /// Returns its mode.
    pub const fn mode(&self) -> Mode {
        self.mode
    }
}

fn one_line(field: &'static str, text: &str) -> Result<(), Problem> {
    let fits = text.len() <= MAX_TEXT && !text.chars().any(char::is_control);
    if fits { Ok(()) } else { Err(Problem::BadText(field)) }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn input(mode: &str, root: &std::path::Path) -> Input {
        let text = |text: &str| Some(text.to_owned());
        Input {
            mode: mode.to_owned(),
            project_root: Some(root.to_owned()),
            session_id: text("s"),
            epic_spec: text("e"),
            ..Input::default()
        }
    }

    fn refusal(input: &Input) -> String {
        input.check().unwrap_err().to_string()
    }

    /// Requirements 1, 2, 3, 4.
    #[test]
    fn missing_input_is_reported_in_the_order_of_the_format() {
        let root = tempfile::tempdir().unwrap();
        let mut asked = Input { mode: "status".to_owned(), ..Input::default() };
        assert_eq!(refusal(&asked), "Invalid mode");
        asked.mode = "acquire".to_owned();
        assert_eq!(refusal(&asked), "Project root not accessible");
        asked.project_root = Some(root.path().join("missing"));
        assert_eq!(refusal(&asked), "Project root not accessible");
        std::fs::write(root.path().join("file"), "").unwrap();
        asked.project_root = Some(root.path().join("file"));
        assert_eq!(refusal(&asked), "Project root not accessible");
        asked.project_root = Some(root.path().to_owned());
        for empty in [None, Some(String::new()), Some(" \t".to_owned())] {
            let asked = Input { session_id: empty.clone(), epic_spec: None, ..asked.clone() };
            assert_eq!(refusal(&asked), "session_id required for acquire mode");
            let asked = Input { session_id: Some("s".to_owned()), epic_spec: empty, ..asked };
            assert_eq!(refusal(&asked), "epic_spec required for acquire mode");
        }
    }

    /// Requirements 5, 6.
    #[test]
    fn only_acquire_needs_a_session_and_an_epic() {
        let root = tempfile::tempdir().unwrap();
        for mode in ["release", "check"] {
            let asked = Input { session_id: None, epic_spec: None, ..input(mode, root.path()) };
            let call = asked.check().unwrap();
            assert_eq!(
                (call.name.as_str(), call.temporary.as_str()),
                (".sprint-running", ".sprint-running.tmp")
            );
        }
        let call = input("acquire", root.path()).check().unwrap();
        assert_eq!((call.mode(), call.force), (Mode::Acquire, false));
    }

    /// Requirement 204.
    #[test]
    fn names_that_lead_elsewhere_are_refused_in_every_mode() {
        let root = tempfile::tempdir().unwrap();
        let long = "x".repeat(252);
        for name in ["", ".", "..", "a/b", "/etc/passwd", "../x", "a\0b", "a\nb", "a..b", &long] {
            for mode in ["acquire", "release", "check"] {
                let asked = Input { lock_file_name: Some(name.to_owned()), ..input(mode, root.path()) };
                assert_eq!(refusal(&asked), "Invalid lock_file_name", "{name:?}");
                assert!(!asked.something_is_there());
            }
        }
    }

    #[test]
    fn long_texts_and_control_characters_are_refused() {
        let root = tempfile::tempdir().unwrap();
        for text in ["a\nb", "\u{1b}[2J", "a\0", &"x".repeat(1001)] {
            let asked = Input { session_id: Some(text.to_owned()), ..input("acquire", root.path()) };
            assert_eq!(refusal(&asked), "Invalid session_id");
            let asked = Input { epic_spec: Some(text.to_owned()), ..input("acquire", root.path()) };
            assert_eq!(refusal(&asked), "Invalid epic_spec");
        }
    }
}
