//! Files and their repositories: symlinks, `..`, new folders, case, several repositories.

use std::os::unix::fs::symlink;

use super::*;

struct Scratch {
    temp: tempfile::TempDir,
}

impl Scratch {
    fn new() -> Self {
        let scratch = Self { temp: tempfile::tempdir().unwrap() };
        scratch.repository("repo", true);
        scratch
    }

    fn root(&self) -> PathBuf {
        self.temp.path().canonicalize().unwrap()
    }

    fn repository(&self, name: &str, takes_part: bool) {
        let git = self.root().join(name).join(".git");
        fs::create_dir_all(git.join("objects")).unwrap();
        fs::write(git.join("HEAD"), "ref: refs/heads/main\n").unwrap();
        if takes_part {
            fs::create_dir_all(git.join("lockkeeper/agents")).unwrap();
        }
    }

    fn shown(&self, path: &str) -> Option<String> {
        wanted_file(&self.root().join(path), None).map(|wanted| wanted.shown)
    }
}

#[test]
fn one_file_has_one_name() {
    let scratch = Scratch::new();
    let repo = scratch.root().join("repo");
    fs::create_dir_all(repo.join("src/deep")).unwrap();
    fs::write(repo.join("src/a.rs"), "").unwrap();
    symlink("src", repo.join("link")).unwrap();
    symlink("src/a.rs", repo.join("a-link")).unwrap();
    symlink(&repo, scratch.root().join("other-way")).unwrap();
    symlink("src/new.rs", repo.join("to-new")).unwrap();
    symlink("src/deep", repo.join("deep")).unwrap();
    for path in [
        "repo/src/a.rs",
        "repo/./src/../src/a.rs",
        "repo/link/a.rs",
        "repo/a-link",
        "other-way/src/a.rs",
        "repo/deep/../a.rs",
    ] {
        assert_eq!(scratch.shown(path).as_deref(), Some("src/a.rs"), "{path}");
    }
    for path in ["repo/src/new.rs", "repo/link/new.rs", "repo/to-new", "repo/none/../src/new.rs"] {
        assert_eq!(scratch.shown(path).as_deref(), Some("src/new.rs"), "{path}");
    }
    assert_eq!(scratch.shown("repo/x/y/z [1].rs").as_deref(), Some("x/y/z [1].rs"));
}

#[test]
fn circles_of_links_end() {
    let scratch = Scratch::new();
    symlink("b", scratch.root().join("repo/a")).unwrap();
    symlink("a", scratch.root().join("repo/b")).unwrap();
    assert!(scratch.shown("repo/a").is_some());
}

#[test]
fn the_file_decides_which_repository_it_is() {
    let scratch = Scratch::new();
    scratch.repository("second", true);
    scratch.repository("stranger", false);
    let of = |path: &str| wanted_file(&scratch.root().join(path), None).map(|wanted| wanted.location.root);
    assert_eq!(of("second/a"), Some(scratch.root().join("second")));
    assert_eq!(of("repo/../second/a"), Some(scratch.root().join("second")));
    for outside in ["stranger/a", "a", "repo/.git/config", "repo/.git/lockkeeper/x", "repo"] {
        assert_eq!(of(outside), None, "{outside}");
    }
    let long = format!("repo/{}", "a/".repeat(9_000_000));
    assert_eq!(of(&long), None);
    assert!(wanted_file(Path::new("relative"), None).is_none());
}

#[test]
fn a_pattern_character_in_a_name_is_only_a_character() {
    let scratch = Scratch::new();
    let wanted = wanted_file(&scratch.root().join("repo/a*[1]{b}?.rs"), None).unwrap();
    let Claimed::Path(pattern) = &wanted.resources[0].target else { panic!("a path") };
    assert!(pattern.is_literal() && pattern.matches("a*[1]{b}?.rs") && !pattern.matches("ax1b.rs"));
    let back = wanted_file(&scratch.root().join("repo/a\\b"), None).unwrap();
    assert_eq!(back.shown, "a\\b");
}

#[test]
fn where_case_is_ignored_all_spellings_meet() {
    let scratch = Scratch::new();
    fs::write(scratch.root().join("repo/.git/config"), "[core]\n\tignorecase = true\n").unwrap();
    let resources = |path: &str| wanted_file(&scratch.root().join(path), None).unwrap().resources;
    let (one, other) = (resources("repo/Src/New.rs"), resources("repo/src/new.RS"));
    assert!(one.iter().any(|one| other.iter().any(|other| one.excludes(other).is_some())));
    assert!(
        one.iter().any(|one| one.target.as_str() == "Src/New.rs"),
        "patterns by hand meet the written name"
    );
}

#[test]
fn folders_and_patterns_are_checked_and_not_claimed() {
    let scratch = Scratch::new();
    fs::create_dir_all(scratch.root().join("repo/src")).unwrap();
    let below = |path: &str| wanted(&Target::Below(scratch.root().join(path)), None).unwrap();
    assert!(below("repo/src").only_checked && !below("repo/file").only_checked);
    assert_eq!(below("repo").resources[0].target.as_str(), "**");
    let text = format!("{}/*.rs", scratch.root().join("repo/src").display());
    let pattern = wanted(&Target::Pattern(text), None).unwrap();
    assert_eq!((pattern.resources[0].target.as_str(), pattern.only_checked), ("src/*.rs", true));
    assert_eq!(wanted_tree(&scratch.root().join("repo/src"), None).unwrap().shown, "**");
}
