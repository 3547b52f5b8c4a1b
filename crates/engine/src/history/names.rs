//! Rename tracking: maps the names of a file in older commits to its newest name.

use std::collections::HashMap;

use lockkeeper_core::predict::PathId;

/// The names of all files. Commits are read from the newest to the oldest.
#[derive(Default)]
pub(super) struct Names {
    /// The file that each name means in the commit that was read last.
    files: HashMap<Box<[u8]>, PathId>,
    newest: Vec<Box<[u8]>>,
}

impl Names {
    /// The file with this name.
    ///
    /// After a rename, a new file may use the old name. It counts as the same file, because users declare names.
    pub(super) fn file(&mut self, name: &[u8]) -> PathId {
        if let Some(file) = self.files.get(name) {
            return *file;
        }
        let file = PathId(u32::try_from(self.newest.len()).expect("git keeps fewer paths than 2^32"));
        self.newest.push(name.into());
        self.files.insert(name.into(), file);
        file
    }

    /// A commit renamed a file: older commits have it under `from`.
    pub(super) fn renamed(&mut self, from: &[u8], to: &[u8]) -> PathId {
        let file = self.file(to);
        self.files.insert(from.into(), file);
        file
    }

    /// The newest name of each file, by its number.
    pub(super) fn into_newest(self) -> Vec<Box<[u8]>> {
        self.newest
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_is_known_by_all_its_names() {
        let mut names = Names::default();
        let file = names.file(b"c");
        assert_eq!(names.renamed(b"b", b"c"), file);
        assert_eq!(names.renamed(b"a", b"b"), file);
        assert_eq!(names.file(b"a"), file);
        assert_ne!(names.file(b"other"), file);
        assert_eq!(names.into_newest(), [b"c".as_slice().into(), b"other".as_slice().into()]);
    }

    #[test]
    fn a_name_that_was_used_again_is_two_files() {
        let mut names = Names::default();
        let new = names.file(b"a");
        let moved = names.renamed(b"a", b"b");
        assert_ne!(new, moved);
        assert_eq!(names.file(b"a"), moved, "before the rename");
    }

    #[test]
    fn files_that_changed_places_keep_a_name_each() {
        let mut names = Names::default();
        let (a, b) = (names.file(b"a"), names.file(b"b"));
        names.renamed(b"a", b"b");
        names.renamed(b"b", b"a");
        assert_ne!(a, b);
        assert_eq!(names.into_newest().len(), 2);
    }
}
