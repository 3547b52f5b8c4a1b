//! Process descriptions for people: command, user and folder.

use std::os::unix::fs::MetadataExt;
use std::path::PathBuf;

use crate::process_table;

/// A process as people know it. What the system does not show is missing.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ProcessDescription {
    /// Its command line.
    pub words: Vec<String>,
    /// The number of its user.
    pub user: Option<u32>,
    /// Its current folder.
    pub folder: Option<PathBuf>,
}

/// Describes the process that has this pid now. Only Linux shows users and folders of processes in its file system.
pub fn describe(pid: u32) -> ProcessDescription {
    ProcessDescription {
        words: process_table::arguments(pid),
        user: std::fs::metadata(format!("/proc/{pid}")).ok().map(|found| found.uid()),
        folder: std::fs::read_link(format!("/proc/{pid}/cwd")).ok(),
    }
}

/// The name of a user, if the file of users has it.
pub fn user_name(user: u32) -> Option<String> {
    let users = std::fs::read_to_string("/etc/passwd").ok()?;
    let number = user.to_string();
    let named = users.lines().map(|line| line.split(':').collect::<Vec<_>>());
    named
        .into_iter()
        .find(|fields| fields.get(2) == Some(&number.as_str()))
        .map(|fields| fields[0].to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    #[cfg(target_os = "linux")]
    fn this_process_is_known() {
        let own = describe(std::process::id());
        assert_eq!(own.words, std::env::args().collect::<Vec<_>>());
        assert_eq!(own.user, Some(crate::process::user()));
        assert_eq!(own.folder, std::env::current_dir().ok());
        assert_eq!(describe(u32::MAX), ProcessDescription::default());
        assert_eq!(user_name(0).as_deref(), Some("root"));
    }
}
