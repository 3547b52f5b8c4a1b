//! The pattern engine against git on generated patterns, by way of `.gitattributes`; needs `git`.
//!
//! Each pattern sets an attribute of its own, and one `git check-attr` prints all attributes of all paths. Patterns are
//! written with a leading `/`, because ours always begin at the root. [`git_differs_where_it_is_meant_to`] lists and
//! checks the intended differences.
#![expect(clippy::disallowed_methods, reason = "core starts no process, this test asks git")]

use std::collections::{BTreeMap, BTreeSet};
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use lockkeeper_core::pattern::Pattern;
use lockkeeper_testing::Dice;

const PATTERNS: usize = 400;
const PATHS: usize = 2_000;
const NAMES: [&str; 12] = ["a", "b", "ab", "ba", "abc", ".a", "a.b", "b.ts", "a-b", "B", "[a]", "x*y"];

/// A repository with no files, whose attributes are asked for.
struct Repository {
    folder: PathBuf,
}

impl Repository {
    fn new(name: &str) -> Self {
        let name = format!("overlap_attributes-{name}-{}", std::process::id());
        let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join(name);
        std::fs::create_dir_all(&folder).expect("the target folder can be written");
        let made = git(&folder).args(["init", "--quiet"]).status().expect("git is needed");
        assert!(made.success(), "git init failed");
        Self { folder }
    }

    /// Returns for each path the numbers of the lists that have a pattern for it.
    fn ask(&self, lists: &[Vec<String>], paths: &BTreeSet<String>) -> BTreeMap<String, BTreeSet<usize>> {
        let lines = lists.iter().enumerate().flat_map(|(number, patterns)| {
            patterns.iter().map(move |pattern| format!("/{pattern} p{number}\n"))
        });
        std::fs::write(self.folder.join(".gitattributes"), lines.collect::<String>())
            .expect("it can be written");
        let mut child = git(&self.folder)
            .args(["check-attr", "-z", "--stdin", "--all"])
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .expect("git is needed");
        let mut input = child.stdin.take().expect("the input is a pipe");
        let asked: String = paths.iter().map(|path| format!("{path}\0")).collect();
        // Git answers before it has read all of its input. So a thread writes while this one reads.
        let asking = std::thread::spawn(move || input.write_all(asked.as_bytes()));
        let output = child.wait_with_output().expect("git ends");
        asking.join().expect("asking does not panic").expect("git reads its input");
        assert!(output.status.success(), "git check-attr failed");
        let text = String::from_utf8(output.stdout).expect("the paths are UTF-8");
        let mut matched: BTreeMap<String, BTreeSet<usize>> = BTreeMap::new();
        let fields: Vec<&str> = text.split_terminator('\0').collect();
        for answer in fields.chunks(3) {
            let [path, attribute, value] = answer else { panic!("{answer:?}") };
            assert_eq!(*value, "set", "{answer:?}");
            let number = attribute.strip_prefix('p').and_then(|number| number.parse().ok());
            matched.entry((*path).to_owned()).or_default().insert(number.expect("a number of a list"));
        }
        matched
    }

    /// Says whether one pattern of git matches a path.
    fn matches(&self, pattern: &str, path: &str) -> bool {
        !self.ask(&[vec![pattern.to_owned()]], &BTreeSet::from([path.to_owned()])).is_empty()
    }
}

impl Drop for Repository {
    fn drop(&mut self) {
        drop(std::fs::remove_dir_all(&self.folder));
    }
}

fn git(folder: &Path) -> Command {
    let mut command = Command::new("git");
    command
        .current_dir(folder)
        .env("GIT_CONFIG_GLOBAL", "/dev/null")
        .env("GIT_CONFIG_NOSYSTEM", "1")
        .env("GIT_ATTR_NOSYSTEM", "1")
        .env("XDG_CONFIG_HOME", folder)
        .env_remove("GIT_DIR")
        .env_remove("GIT_WORK_TREE");
    command
}

/// Makes a pattern of ours, and what it is for git, which has no braces: one pattern for each alternative.
fn any_pattern(dice: &mut Dice) -> (String, Vec<String>) {
    let mut ours = String::new();
    let mut theirs = vec![String::new()];
    let mut add = |written: &str, meant: &[&str]| {
        ours.push_str(written);
        theirs =
            theirs.iter().flat_map(|start| meant.iter().map(move |end| format!("{start}{end}"))).collect();
    };
    let depth = 1 + dice.index(4);
    for level in 0..depth {
        if level > 0 {
            add("/", &["/"]);
        }
        if dice.index(4) == 0 {
            add("**", &["**"]);
            continue;
        }
        let mut after_star = false;
        for _ in 0..=dice.index(3) {
            // Two stars side by side would be something else.
            let kind = if after_star { 1 + dice.index(8) } else { dice.index(9) };
            after_star = kind == 0;
            match kind {
                0 => add("*", &["*"]),
                1 => add("?", &["?"]),
                2 => {
                    let classes = [
                        "[ab]",
                        "[!a]",
                        "[^b]",
                        "[a-c]",
                        "[!a-c]",
                        "[]a]",
                        "[a-]",
                        "[[:alpha:]]",
                        "[![:lower:]]",
                        "[\\]\\[]",
                        "[[:punct:]b]",
                        "[.]",
                    ];
                    let class = classes[dice.index(classes.len())];
                    add(class, &[class]);
                }
                3 => {
                    let braces: [(&str, &[&str]); 4] = [
                        ("{a,b}", &["a", "b"]),
                        ("{a,}", &["a", ""]),
                        ("{ab,{b,a?}}", &["ab", "b", "a?"]),
                        ("{a/b,b}", &["a/b", "b"]),
                    ];
                    let (written, meant) = braces[dice.index(braces.len())];
                    add(written, meant);
                }
                4 => {
                    let escaped = ["\\*", "\\[", "\\a", "\\."][dice.index(4)];
                    add(escaped, &[escaped]);
                }
                5 => add(".", &["."]),
                _ => {
                    let name = NAMES[dice.index(9)];
                    add(name, &[name]);
                }
            }
        }
    }
    (ours, theirs)
}

fn any_path(dice: &mut Dice) -> String {
    let depth = 1 + dice.index(4);
    let names: Vec<&str> = (0..depth).map(|_| NAMES[dice.index(NAMES.len())]).collect();
    names.join("/")
}

/// Requirement 206.
#[test]
fn git_matches_the_same_generated_paths() {
    let mut dice = Dice::from_environment_or(206);
    let (mut patterns, mut lists) = (Vec::new(), Vec::new());
    while patterns.len() < PATTERNS {
        let (ours, theirs) = any_pattern(&mut dice);
        // Git differs in two cases, which are left out: a literal covers its subtree, and an empty or `.` component is ignored.
        let spelt = theirs.iter().all(|text| text.split('/').all(|name| !matches!(name, "" | "." | "\\.")));
        if let Some(pattern) = Pattern::parse(&ours).ok().filter(|pattern| spelt && !pattern.is_literal()) {
            patterns.push(pattern);
            lists.push(theirs);
        }
    }
    let paths: BTreeSet<String> = (0..PATHS).map(|_| any_path(&mut dice)).collect();
    let answers = Repository::new("generated").ask(&lists, &paths);
    let mut matches = 0;
    for path in &paths {
        let ours: BTreeSet<usize> = (0..PATTERNS).filter(|number| patterns[*number].matches(path)).collect();
        let theirs = answers.get(path).cloned().unwrap_or_default();
        let differing: Vec<String> = ours
            .symmetric_difference(&theirs)
            .map(|number| format!("{} as {:?}", patterns[*number], lists[*number]))
            .collect();
        assert!(differing.is_empty(), "{path}: {differing:?}, ours {ours:?}, git's {theirs:?}");
        matches += ours.len();
    }
    assert!(matches > PATHS && paths.len() > PATHS / 2, "{matches} matches of {} paths", paths.len());
}

/// Requirement 206.
#[test]
fn git_differs_where_it_is_meant_to() {
    let repository = Repository::new("meant");
    let ours = |pattern: &str, path: &str| Pattern::parse(pattern).is_ok_and(|pattern| pattern.matches(path));
    for (pattern, path, here, there, _why) in [
        ("src", "src/a/b", true, false, "a literal claims the folder, not only its name"),
        ("packages/*/", "packages/a/x", true, false, "a slash at the end asks for the subtree"),
        ("{a,b}", "a", true, false, "braces are alternatives, git takes them as they are"),
        ("{a,b}", "{a,b}", false, true, "and so it matches their text"),
        ("./a*", "ab", true, false, "`./` means nothing"),
        ("a//b*", "a/b", true, false, "nor does a doubled slash"),
        (
            "a**/b",
            "ax/y/b",
            false,
            true,
            "stars within a component stay in it; git compares the literal start apart",
        ),
    ] {
        assert_eq!(
            (ours(pattern, path), repository.matches(pattern, path)),
            (here, there),
            "{pattern} {path}"
        );
    }
}
