//! Other spellings of options, scripts of `ed`, commands that only show something, and what the guide says is known before.

use super::*;

#[test]
fn long_options_may_be_shortened() {
    known("sed --in-pl s/a/b/ x; sed --in=.bak --expr s/a/b/ y", &["x", "y", "y.bak"]);
    known(
        "cp --targ src x; cp --target-d=docs x; touch --ref a b; truncate --si 0 c",
        &["b", "c", "docs/x", "src/x"],
    );
    known("rm --recur x; chmod --recu 644 y; sort --outp z a", &["x/", "y/", "z"]);
    known("env --chd=src rm a; sudo --us bob rm b", &["b", "src/a"]);
    assert!(git("git reset --har").1);
    assert_eq!(git("git add --al").2, Staged::Changed);
    assert_eq!(git("git commit --amen --mess x").2, Staged::Index);
    reads("git rm --dry x; rsync --dry-r a b; patch --dry < x; sed --quiet p a; sort --rev a");
    known("curl --output a http://x", &["a"]);
}

#[test]
fn a_new_branch_with_force_throws_changes_away() {
    for command in [
        "git checkout -f -b new",
        "git checkout -fb new",
        "git checkout --force -B new",
        "git switch -f -c new",
    ] {
        assert!(git(command).1, "{command}");
    }
    for command in ["git switch --create new", "git checkout -b new", "git switch -C new"] {
        assert!(!git(command).1, "{command}");
    }
}

#[test]
fn scripts_of_ed_and_ex_are_read() {
    known("ed -s a <<'E'\n1,$s/x/y/\nw\nw b\nq\nE", &["a", "b"]);
    known("ed -s a <<'E'\na\nw c\n.\n/x/w b\ng/y/W d\nQ\nE", &["b", "d"]);
    known("ed a <<< 'w !tee b'; ed a <<< '!rm c'; ed a <<'E'\nf d\nE", &["b", "c", "d"]);
    known("ed <<'E'\ne src/a.rs\n1d\nw\nq\nE", &["src/a.rs"]);
    known("ex -sc '%s/a/b/|x' a; ex -sc 'w! b|q' c; ex -s d <<'E'\n:2d\n:wq\nE", &["a", "b", "d"]);
    reads("ed -s a <<< ',p'; ed a <<'E'\n/x/\n1,3p\nq\nE");
    not_known("ed -s a < script; ed b", &["a", "b"]);
    not_known("ex -sc 'source x|x' a", &["a"]);
}

#[test]
fn commands_that_only_show_something_are_never_claims() {
    reads(
        "git reset --help; git checkout -h; git --help stash; git clean --help; git commit -h; git stash --help",
    );
    reads(
        "git bisect log; git bisect terms; git rebase --show-current-patch; git am --show-current-patch; git pull --dry-run",
    );
    reads("git commit --short; git commit --porcelain; git -v");
    reads("vim -R a; vi -R a b; nvim -M a");
    not_known("vim -R -c 'w! b' a", &[]);
    not_known("vim a", &["a"]);
    assert!(git("git bisect start").1 && git("git reset --hard -h").1);
}

#[test]
fn patches_in_files_are_read() {
    known("patch -p1 < fix.patch", &["src/y", "x"]);
    known(
        "patch -p1 -i fix.patch; cd src; patch -p1 -d ../docs -i ../fix.patch",
        &["docs/src/y", "docs/x", "src/y", "x"],
    );
    known("patch < fix.patch", &["x", "y"]);
    known("git apply fix.patch; git apply --index - < fix.patch", &["src/y", "x"]);
    reads("git apply --check fix.patch; patch --dry-run -p1 < fix.patch");
    not_known("patch -p1 < other.patch", &[]);
    not_known("echo x > fix.patch; patch -p1 < fix.patch", &["fix.patch"]);
    not_known("make; git apply fix.patch", &[]);
}

#[test]
fn the_content_of_a_folder_is_copied_file_by_file() {
    known("cp -r src/. docs", &["docs/a.rs"]);
    not_known("cp -r gone/. docs", &[]);
    not_known("rm src/b.rs; cp -r src/. docs", &["src/b.rs"]);
}

#[test]
fn all_arguments_at_once_are_followed() {
    known("f() { rm \"$@\"; }; f a 'b c'", &["a", "b c"]);
    known("f() { shift; for x; do rm \"$x\"; done; }; f a b c", &["b", "c"]);
    known("bash -c 'rm \"$@\"' _ a b; set -- c d; rm $*; rm \"x$1\" ${2}", &["a", "b", "c", "d", "xc"]);
    known("f() { for x in \"$@\"; do touch $x; done; }; f src/a.rs", &["src/a.rs"]);
    not_known("rm \"$@\"", &[]);
    not_known("set -- a; grep -q x y && set -- b; rm \"$@\"", &[]);
    reads("f() { cat \"$@\"; }; f a b");
}

#[test]
fn a_variable_of_env_may_be_unknown() {
    known("env A=$B rm x; sudo PATH=$PATH:/bin rm y; env -i A=$(date) C=1 rm z", &["x", "y", "z"]);
    not_known("env $A rm x", &[]);
    not_known("env dd of=$X", &[]);
    not_known("sudo dd if=a of=$X", &[]);
}

#[test]
fn find_chooses_by_path_and_depth() {
    known("find . -path './src/*.rs' -delete", &["=src/**/*.rs"]);
    known(
        "find . -path '*/gen/*' -delete; find src -path 'src/x/*' -name '*.o' -delete",
        &["=**/gen/**/*", "=src/x/**/*.o"],
    );
    known("find . -name '*.pyc' -not -path './venv/*' -delete", &["=**/*.pyc"]);
    known(
        "find . -maxdepth 1 -name '*.log' -delete; find docs ! -name x -type f -delete",
        &["=*.log", "=docs/**/*"],
    );
    known("find . -path ./src/a.rs -delete", &["=src/a.rs"]);
    not_known("find . -path './s?c/*' -delete", &[]);
    not_known("find . -maxdepth 2 -name x -delete", &[]);
}
