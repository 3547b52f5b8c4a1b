//! The table of what a command writes, row by row: what is known before, what is not, and what only reads.

mod attacks;
mod conditions;
mod lines;
mod options;
mod parameters;

use std::path::Path;

use super::*;
use crate::place::Entry;
use crate::writes::{GitPart, Staged, Target};

fn read(command: &str) -> Writes {
    let entry = |path: &Path| match path.to_str() {
        Some("/repo/src" | "/repo/docs" | "/repo/.git") => Some(Entry::Folder),
        Some("/repo/src/a.rs" | "/repo/notes.txt") => Some(Entry::File),
        _ => None,
    };
    let names = |folder: &Path| match folder.to_str() {
        Some("/repo") => ["src", "docs", "notes.txt", ".git"].map(str::to_owned).to_vec(),
        Some("/repo/src") => vec!["a.rs".to_owned()],
        _ => Vec::new(),
    };
    let text = |path: &Path| {
        (crate::place::lexical(path) == Path::new("/repo/fix.patch"))
            .then(|| "--- a/x\n+++ b/x\n--- a/src/y\n+++ b/src/y\n".to_owned())
    };
    writes(
        command,
        &Place {
            cwd: Path::new("/repo"),
            home: Some(Path::new("/home/ann")),
            entry: &entry,
            names: &names,
            text: &text,
        },
    )
}

/// The targets as short texts: `src/a.rs`, `build/` for all below, `=src/*.rs` for a pattern.
fn targets(writes: &Writes) -> Vec<String> {
    let short = |text: &str| text.strip_prefix("/repo/").unwrap_or(text).to_owned();
    let text = |target: &Target| match target {
        Target::File(path) => short(path.to_str().unwrap()),
        Target::Below(path) => format!("{}/", short(path.to_str().unwrap())),
        Target::Pattern(pattern) => format!("={}", short(pattern)),
    };
    let mut targets: Vec<String> = writes.paths.iter().map(text).collect();
    targets.sort();
    targets
}

fn sorted(expected: &[&str]) -> Vec<String> {
    let mut expected: Vec<String> = expected.iter().map(|text| (*text).to_owned()).collect();
    expected.sort();
    expected
}

/// All is known: these targets and nothing more.
#[track_caller]
fn known(command: &str, expected: &[&str]) {
    let found = read(command);
    assert_eq!(targets(&found), sorted(expected), "{command}: {found:?}");
    assert!(found.unknown.is_empty(), "{command}: {found:?}");
}

/// More may be written than these targets.
#[track_caller]
fn not_known(command: &str, expected: &[&str]) {
    let found = read(command);
    assert_eq!(targets(&found), sorted(expected), "{command}: {found:?}");
    assert!(!found.unknown.is_empty(), "{command}: {found:?}");
}

#[track_caller]
fn reads(command: &str) {
    let found = read(command);
    assert!(found.is_nothing(), "{command}: {found:?}");
}

#[test]
fn redirections_to_plain_words_are_edits() {
    for operator in [">", ">>", ">|", "&>", "&>>", "2>", "<>", ">&", "3>"] {
        known(&format!("echo x {operator} a.txt"), &["a.txt"]);
        known(&format!("echo x {operator}a.txt"), &["a.txt"]);
    }
    known("{ echo a; } > a 2> b", &["a", "b"]);
    known("if true; then echo x; fi > out", &["out"]);
    known("exec {log}> a.txt", &["a.txt"]);
    for command in [
        "ls 2>&1",
        "ls >&2",
        "ls 2>&-",
        "cat < a.txt",
        "ls > /dev/null 2>&1",
        "cat <<< '> x'",
        "ls &>/dev/null",
    ] {
        reads(command);
    }
    known("exec 3> a; fd=3; echo x >&$fd; f=b; echo x >&$f", &["a", "b"]);
    not_known("echo x > $UNSET", &[]);
    not_known("echo x > $(date).txt", &[]);
}

#[test]
fn cd_tilde_variables_and_loops_are_followed() {
    known("cd src && echo x > new.rs", &["src/new.rs"]);
    known("cd src/../docs; echo x > a.md", &["docs/a.md"]);
    known("cd && echo x > a", &["/home/ann/a"]);
    known("echo x > ~/a; echo y > \"$HOME/b\"", &["/home/ann/a", "/home/ann/b"]);
    known("(cd src; echo x > a); echo y > b", &["b", "src/a"]);
    known("cd src | cat; echo y > b", &["b"]);
    known("cd src & echo y > b", &["b"]);
    known("cd src; cd $OLDPWD; echo x > b", &["b"]);
    known("X=src; Y=$X/b.rs; echo > $Y", &["src/b.rs"]);
    known("X='a b'; echo > \"$X\"; touch $X", &["a", "a b", "b"]);
    known("for f in a b; do echo > $f.txt; done", &["a.txt", "b.txt"]);
    known("for f in src/*.rs; do rm \"$f\"; done", &["=src/*.rs"]);
    known("cd src || exit 1; echo > x", &["src/x"]);
    known("echo x > '~/a' ; echo > \\$HOME", &["$HOME", "~/a"]);
    not_known("cd $DIR && echo x > a", &[]);
    not_known("cd $DIR; echo x > /repo/a; echo y > b", &["a"]);
    known("if true; then cd src; fi; echo x > a", &["src/a"]);
    not_known("X=a; if grep -q a b; then X=$(date); fi; echo > $X", &["a"]);
    not_known("X=$(date); X=$X.txt; echo > $X", &[]);
    not_known("echo > ~bob/a", &[]);
    not_known("read F; echo > $F", &[]);
    let changes = [
        "((i++))",
        "let i=i+1",
        "echo $((i+=1))",
        "export i=$(date)",
        "i+=1",
        "for ((i=0; i<3; i++)); do :; done",
    ];
    for change in changes {
        not_known(&format!("i=0; {change}; echo > f$i"), &[]);
    }
    not_known("IFS=,; X=a,b; touch $X", &[]);
    known("IFS=,; X=a,b; touch \"$X\"", &["a,b"]);
}

#[test]
fn quotes_and_here_documents_are_only_text() {
    reads("echo 'a > b' \"c > d\" e\\>f $'g\\'> h'");
    known(r"echo > $'src/\x61.rs'", &["src/a.rs"]);
    known(r"echo > $'src/\141.rs'", &["src/a.rs"]);
    known(r"echo > $'src/\u0061.rs'", &["src/a.rs"]);
    reads("cat <<'EOF'\na > b\n$(rm x)\n`rm y`\nEOF");
    reads("cat <<\"A B\"\n> c\nA B\n");
    known("cat <<EOF\n$(rm x)\nEOF", &["x"]);
    known("cat <<EOF > a\nit's (text\nEOF\necho > b", &["a", "b"]);
    known("cat <<-EOF > a\n\ttext\n\tEOF\necho > b", &["a", "b"]);
    known("echo \"$(echo '\"' > a)\" > b", &["a", "b"]);
    known("git commit -m \"$(cat <<'EOF'\ndon't ) stop\nEOF\n)\" && echo > a", &["a"]);
    known("x=`echo \\`rm a\\``", &["a"]);
    known("echo ${X:-$(rm a)} $((1 + $(rm b; echo 1)))", &["a", "b"]);
    known("echo a# > b # > c", &["b"]);
    known("echo \\\n x > \\\n a", &["a"]);
}

#[test]
fn programs_that_write_their_operands() {
    known("tee -a a b", &["a", "b"]);
    known("sed -i 's/x > y/z/' a b", &["a", "b"]);
    known("sed -i -e s/x/y/ a; sed -ni p b; sed --in-place s/x/y/ c", &["a", "b", "c"]);
    known("sed -i.bak s/x/y/ a", &["a", "a.bak"]);
    known("perl -pi -e 's/x/y/' a; perl -i.bak -ne print b", &["a", "b", "b.bak"]);
    known("cp a b; cp a src; cp a b src/; cp -t docs a", &["b", "docs/a", "src/a", "src/b"]);
    known("cp -r a b; cp -T a docs", &["b/", "docs"]);
    known("mkdir -p out/x && cp a out/x", &["out/x/a"]);
    known("mv a b; mv c src", &["a/", "b/", "c/", "src/c/"]);
    known("rm a; rm -rf b *.o", &["a", "b/", "=*.o/"]);
    known(
        "touch a; truncate -s 0 b; unlink c; rmdir d; chmod +x e; chmod -x f",
        &["a", "b", "c", "d", "e", "f"],
    );
    known("ln -s ../x; ln -sf x y; ln -sfn x docs", &["docs", "x", "y"]);
    known("dd if=a of=b; install -m 644 a src; install -d newdir", &["b", "src/a"]);
    known("/usr/bin/tee a; command rm b; \\rm c", &["a", "b", "c"]);
    known("sort -o a b; uniq b c; curl -so d http://x; yq -i .x e", &["a", "c", "d", "e"]);
    known("patch a < p; patch -p1 <<'E'\n--- a/x\n+++ b/x\nE", &["a", "x"]);
    known(
        "apply_patch <<'E'\n*** Begin Patch\n*** Add File: n\n+x\n*** Update File: o\n*** Move to: m\n*** End Patch\nE",
        &["m", "n", "o"],
    );
    reads(
        "sed -n p a; sed s/i/e/ a; sort a; uniq a; curl -s http://x; cp --help; patch --dry-run a; tar tf x",
    );
    not_known("rm $(cat list)", &[]);
    not_known("rm \"$X\" b", &["b"]);
    not_known("./tee a", &[]);
    not_known("tar xf a.tar", &[]);
    not_known("cp -r x/. .; rsync -a x/ .; scp host:x .; mv -b a b", &["a/", "b/"]);
    known("curl -o a http://x -o b http://y", &["a", "b"]);
    not_known("mktemp ./x.XXXX; tree -o y; git format-patch -1", &[]);
    reads("mktemp; mktemp -d; tree -L 2; rsync -a x host:y");
}

#[test]
fn formatters_write_their_paths_or_what_they_find() {
    for command in [
        "cargo fmt",
        "prettier --write .",
        "black .",
        "ruff check --fix",
        "ruff format",
        "gofmt -w .",
        "npx eslint --fix",
    ] {
        let found = read(command);
        assert_eq!(found.formats.len(), 1, "{command}");
        assert_eq!(found.formats[0].folder, Path::new("/repo"), "{command}");
        assert!(found.paths.is_empty() && found.unknown.is_empty(), "{command}: {found:?}");
    }
    known("prettier --write src/a.ts docs", &["docs/", "src/a.ts/"]);
    known(
        "python3 -m black a.py; uv run ruff format b.py; pnpm exec prettier -w c.ts",
        &["a.py/", "b.py/", "c.ts/"],
    );
    known(
        "rustfmt --edition 2024 src/a.rs; gofmt -w x.go; clang-format -i y.c",
        &["src/a.rs/", "x.go/", "y.c/"],
    );
    reads(
        "cargo fmt --check; cargo fmt -- --check; black --check .; prettier --check .; gofmt -l .; ruff check; eslint .",
    );
    known("prettier --write 'src/**/*.{ts,tsx}' '!src/x.ts'", &["=src/**/*.{ts,tsx}"]);
    not_known("cargo clippy", &[]);
}

fn git(command: &str) -> (Vec<GitPart>, bool, Staged) {
    let found = read(command);
    assert_eq!(found.git.len(), 1, "{command}: {found:?}");
    let used = found.git.into_iter().next().unwrap();
    (used.parts.into_iter().collect(), used.whole_tree, used.staged)
}

#[test]
fn git_commands_that_rewrite_the_tree() {
    use GitPart::{Head, Index};
    let commands = [
        "git switch other",
        "git checkout other",
        "git reset --hard",
        "git merge x",
        "git rebase main",
        "git pull",
        "git cherry-pick x",
        "git revert HEAD",
        "git checkout -b new origin/main",
    ];
    for command in commands {
        let (parts, whole_tree, _) = git(command);
        assert!(whole_tree && parts.contains(&Head), "{command}");
    }
    for command in [
        "git stash",
        "git stash pop",
        "git clean -fd",
        "git restore .",
        "git checkout -- .",
        "git checkout .",
    ] {
        assert!(git(command).1, "{command}");
    }
    assert_eq!(git("git reset"), (vec![Index], false, Staged::Nothing));
    for command in ["git checkout -b new", "git switch -c new"] {
        let (parts, whole_tree, _) = git(command);
        assert!(!whole_tree && parts.contains(&Head), "{command}");
    }
    let elsewhere = read("git -C docs switch x").git;
    assert_eq!(elsewhere[0].folder, Path::new("/repo/docs"));
    reads(
        "git clean -n; git stash list; git status; git log; git diff; git -C docs show; git branch; git push",
    );
}

#[test]
fn git_commands_that_write_paths() {
    known("git checkout -- src/a.rs", &["src/a.rs/"]);
    known("git checkout src/a.rs", &["src/a.rs/"]);
    known("git checkout HEAD~1 -- x y", &["x/", "y/"]);
    known("git restore x; git restore --source=HEAD~1 y", &["x/", "y/"]);
    known("git rm x; git mv a b; git mv c src", &["a/", "b/", "c/", "src/c/", "x/"]);
    known("git apply <<'E'\n--- a/x\n+++ b/x\nE", &["x"]);
    known("git rm --cached x; git restore --staged y", &[]);
    reads("git apply --check x.patch; git rm -n x");
    known("git clean -fd build; git stash push -m wip -- x y", &["build/", "x/", "y/"]);
    not_known("git apply x.patch", &[]);
    known("git checkout -- '*.rs'", &["=**/*.rs/"]);
    known("git rm ':(glob)**/x'", &["=**/x/"]);
    known("git diff --output=a; git log --output=b", &["a", "b"]);
}

#[test]
fn git_commands_that_take_others_work_along() {
    use GitPart::{Head, Index};
    for command in ["git add -A", "git add --all", "git add :/"] {
        assert_eq!(git(command), (vec![Index], false, Staged::Changed), "{command}");
    }
    assert_eq!(git("git add -u"), (vec![Index], false, Staged::Tracked));
    let below = |path: &str| Staged::Paths(vec![Target::Below(path.into())]);
    assert_eq!(git("git add .").2, below("/repo"));
    assert_eq!(git("git -C docs add -A .").2, below("/repo/docs"));
    for command in [
        "git commit -a -m x",
        "git -c core.hooksPath=/dev/null commit -anm x",
        "git commit -am x",
        "git commit --all --message=x",
    ] {
        assert_eq!(git(command), (vec![Head, Index], false, Staged::Tracked), "{command}");
    }
    for command in ["git commit -m x", "git commit --amend --no-edit", "git commit -m 'a -a'"] {
        assert_eq!(git(command), (vec![Head, Index], false, Staged::Index), "{command}");
    }
    let paths = Staged::Paths(vec![Target::Below("/repo/a".into()), Target::Below("/repo/b".into())]);
    assert_eq!(git("git add a b"), (vec![Index], false, paths.clone()));
    assert_eq!(git("git commit -m x a b").2, paths);
    reads("git add -n .; git commit --dry-run -a");
}

#[test]
fn shells_and_wrappers_are_looked_into() {
    known(
        "bash -c 'echo x > a'; sh -lc \"cd src; echo > b\"; bash -euo pipefail -c 'rm c'",
        &["a", "c", "src/b"],
    );
    known("bash -c 'rm \"$1\"' _ a", &["a"]);
    known(
        "env -u B A=1 rm a; sudo -u bob rm b; nice -n 5 rm c; timeout -k 1 5 rm d; nohup rm e",
        &["a", "b", "c", "d", "e"],
    );
    known("find src -name '*.rs' -exec sed -i s/a/b/ {} +", &["=src/**/*.rs"]);
    known("find . -name '*.tmp' -delete; find src -type f -exec rm {} \\;", &["=**/*.tmp", "=src/**/*"]);
    known("eval 'rm a'; eval rm b", &["a", "b"]);
    known("f() { rm \"$1\"; }; f a; f b", &["a", "b"]);
    known("trap 'rm a' EXIT", &["a"]);
    known("echo x | tee >(sort > a) > b; diff <(rm c) d", &["a", "b", "c"]);
    known("bash <<'E'\nrm a\nE", &["a"]);
    known("lockkeeper exec build -- rm a", &["a"]);
    known("lockkeeper exec build -c 'echo > a'", &["a"]);
    known("lockkeeper exec -c 'rm a' build", &["a"]);
    known("lockkeeper exec build -c'rm a'", &["a"]);
    reads(
        "xargs grep x; find . -exec cat {} \\;; bash -c 'ls; cat x'; env; command -v x; bash -n script.sh; xargs -n1 -I{} echo {}",
    );
    not_known("xargs rm", &[]);
    not_known("bash script.sh", &[]);
    not_known("bash -c \"$SCRIPT\"", &[]);
    not_known("cat x | bash", &[]);
    not_known("find . -newer a -exec rm {} +", &[]);
    not_known("find . -exec sh -c 'rm {}' \\;", &[]);
}

#[test]
fn what_only_the_shell_knows_is_said_to_be_unknown() {
    let commands = [
        "make",
        "npm test",
        "python3 - <<'E'\nx\nE",
        "python3 x.py",
        "$EDITOR a",
        "eval \"$X\"",
        ". ./env.sh",
        "awk -f x.awk a",
        "node x.js",
        "cargo build",
        "git frobnicate",
        "echo 'unclosed",
        "if true; then",
        "echo ) (",
        "echo > @(a|b)",
        "ssh host rm a",
    ];
    for command in commands {
        not_known(command, &[]);
    }
}

#[test]
fn a_known_write_beside_an_unknown_one_is_still_found() {
    not_known("make && echo x > a", &["a"]);
    not_known("python3 gen.py > out.txt", &["out.txt"]);
    not_known("cargo test 2>&1 | tee log.txt", &["log.txt"]);
}

#[test]
fn wildcards_mean_what_they_mean_to_the_shell() {
    known("rm src/*.rs", &["=src/*.rs"]);
    known("rm src/[ab].rs a?c", &["=src/[ab].rs", "=a?c"]);
    known("rm '*.rs' \\*.o", &["*.o", "*.rs"]);
    known("rm \"src/\"*", &["=src/*"]);
    known("rm **/x", &["=**/x"]);
    known("rm {a,b}.{c,d}; rm {e}; rm x{1..3}", &["a.c", "a.d", "b.c", "b.d", "x1", "x2", "x3", "{e}"]);
    known("rm '{a,b}'", &["{a,b}"]);
    known("cd src; rm ../*.o", &["=*.o"]);
    reads("[ -f x ] && [[ -d y ]]; test a = b");
}
