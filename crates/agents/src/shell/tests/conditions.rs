//! Folders and variables that a script changes only under a condition: every case that may happen is looked at.

use super::*;

#[test]
fn a_cd_behind_a_condition_may_not_happen() {
    known("[ -n \"$A\" ] && cd src; echo > x", &["src/x", "x"]);
    known("grep -q a b && cd src && echo > x; echo > y", &["src/x", "src/y", "y"]);
    known("cd src && grep -q a b && echo > x; echo > y", &["src/x", "src/y"]);
    known("grep -q a b || cd src; echo > x", &["src/x", "x"]);
    known(
        "false && cd src; echo > x; true || cd src; echo > y; true && cd src; echo > z",
        &["src/z", "x", "y"],
    );
    known("! true || cd src; echo > x", &["src/x"]);
    known("if grep -q a b; then cd src; else cd docs; fi; echo > x", &["docs/x", "src/x"]);
    known("if grep -q a b; then cd src; fi; echo > x", &["src/x", "x"]);
    known("if cd nowhere; then echo > x; else echo > y; fi", &["nowhere/x", "y"]);
    known("case $A in a) cd src;; b) cd docs;; esac; echo > x", &["docs/x", "src/x", "x"]);
    known("case $A in a) cd src;; *) cd docs;; esac; echo > x", &["docs/x", "src/x"]);
    known("f() { grep -q a b && return; cd src; }; f; echo > x", &["src/x", "x"]);
    known("for i in 1 2; do grep -q a b && break; cd src; done; echo > x", &["src/src/x", "src/x", "x"]);
    known("grep -q a b && eval 'cd src'; echo > x", &["src/x", "x"]);
    known("grep -q a b && pushd src; echo > x", &["src/x", "x"]);
}

#[test]
fn a_cd_to_a_folder_that_is_not_there_may_fail() {
    known("cd web; echo > x", &["web/x", "x"]);
    known("cd web && echo > x", &["web/x"]);
    known("cd web || exit 1; echo > x", &["web/x"]);
    known("cd web || { echo no; exit 1; }; echo > x", &["web/x"]);
    known("cd web || cd src; echo > x", &["src/x", "web/x"]);
    known("cd web || return; echo > x", &["web/x"]);
    known("(cd web || exit; echo > x); echo > y", &["web/x", "y"]);
    known("mkdir -p web; cd web; echo > x", &["web/x"]);
    known("mkdir web && cd web; echo > x", &["web/x"]);
    known("mkdir src && cd src; echo > x", &["src/x", "x"]);
    known("[ -d src ] && cd src; echo > x", &["src/x"]);
    known("[ -d web ] && cd web; echo > x", &["web/x", "x"]);
    known("rm -rf src; cd src; echo > x", &["src/", "src/x", "x"]);
    known("cd notes.txt; echo > x", &["notes.txt/x", "x"]);
    known("cd ..; cd; cd ~; cd /repo; echo > x", &["x"]);
    known("command cd web && echo > x", &["web/x"]);
    known("cd src && exec true; echo > x", &[]);
    known("exec > log; echo > x", &["log", "x"]);
}

#[test]
fn a_variable_behind_a_condition_may_not_be_set() {
    not_known("grep -q a b && X=a; echo > $X", &["a"]);
    known("X=a; grep -q a b && X=b; echo > $X", &["a", "b"]);
    known("X=a; if grep -q a b; then X=b; else X=c; fi; echo > $X", &["b", "c"]);
    known("X=a || X=b; echo > $X", &["a"]);
    not_known("X=$(date) || X=b; echo > f/$X", &["f/b"]);
    known("X=a; while grep -q $X b; do echo > $X; done", &["a"]);
    not_known("X=a; while grep -q a b; do echo > $X; X=$X$X; done", &["a"]);
    not_known("while grep -q a b; do cd ..; done; echo > x", &["x"]);
    not_known("while true; do cd src; break; done; echo > x", &["src/x"]);
    known("while true; do break; done; echo > x; while true; do :; done; echo > y", &["x"]);
}

#[test]
fn with_more_than_four_possible_folders_the_folder_is_not_known() {
    known("cd a; cd b; echo > x", &["a/b/x", "a/x", "b/x", "x"]);
    not_known("cd a; cd b; cd c; echo > x; echo > /repo/y", &["y"]);
}

#[test]
fn a_function_that_calls_itself_ends() {
    not_known("f() f; f", &[]);
    not_known("f() { f; f; }; f; rm a", &[]);
}
