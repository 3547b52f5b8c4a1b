//! Forms of parameters whose values are plain: appended texts, defaults, cut ends, arrays, `read` from a text, `~+`.

use super::*;

#[test]
fn appended_texts_are_put_together() {
    known("F=src/; F+=b.rs; echo x > $F", &["src/b.rs"]);
    known("F=a; F+=b F+=c; echo x > $F", &["abc"]);
    not_known("declare -i F=1; F+=2; echo x > $F", &[]);
    not_known("F+=b; echo x > $F", &[]);
    not_known("F=$X; F+=b; echo x > $F", &[]);
}

#[test]
fn defaults_count_where_a_variable_is_empty_or_may_be_unset() {
    known("F=; echo x > ${F:-src/b.rs}", &["src/b.rs"]);
    known("F=a; echo x > \"${F:-src/b.rs}\"; echo x > ${F-b}", &["a"]);
    known("F=; echo x > ${F:=b}; echo y > $F.rs", &["b", "b.rs"]);
    known("F=a; echo x > x${F:+b}; echo x > y${F+c}", &["xb", "yc"]);
    known("F=; echo x > x${F:+b}", &["x"]);
    known("G=b; F=; echo x > \"src/${F:-$G}.rs\"", &["src/b.rs"]);
    not_known("echo x > ${OUT:-src/b.rs}", &["src/b.rs"]);
    not_known("echo x > ${OUT:=src/b.rs}; echo y > $OUT.txt", &["src/b.rs", "src/b.rs.txt"]);
    not_known("F=; echo x > ${F:-$(date)}", &[]);
    not_known("echo x > ${1:-b}", &["b"]);
    reads("F=a; cat ${F:-b}; : ${X:=b}");
}

#[test]
fn ends_are_cut_off() {
    known("F=src/b.txt; echo x > ${F%.txt}.rs; echo x > ${F%.*}.md", &["src/b.md", "src/b.rs"]);
    known(
        "F=a.b.c; echo > ${F%.*}; echo > ${F%%.*}; echo > ${F#*.}; echo > ${F##*.}",
        &["a", "a.b", "b.c", "c"],
    );
    known(
        "F=src/b.rs; echo > docs/${F##*/}; echo > ${F#src/}; echo > ${F%/*}.md",
        &["b.rs", "docs/b.rs", "src.md"],
    );
    known("F=b.rs; echo > ${F%.txt}", &["b.rs"]);
    known("for f in a.x b.x; do mv $f ${f%.x}.y; done", &["a.x/", "a.y/", "b.x/", "b.y/"]);
    not_known("F=b.rs; echo > ${F%[a-z]s}", &[]);
    not_known("F=b.rs; echo > ${F/b/c}; echo > ${F^}", &[]);
    not_known("F=b.rs; echo > ${!F}; echo > ${F:1}; echo > ${#F}", &[]);
}

#[test]
fn arrays_of_plain_words_are_followed() {
    known("A=(src/b.rs); echo x > \"${A[0]}\"", &["src/b.rs"]);
    known("A=(a 'b c'); rm \"${A[@]}\"; touch ${A[1]}; echo > $A", &["a", "b", "b c", "c"]);
    known("A=(a b); for f in \"${A[@]}\"; do echo > $f; done", &["a", "b"]);
    known("declare -a A=(a b); rm \"${A[@]}\"", &["a", "b"]);
    known("A=(a b); A=(c); rm \"${A[@]}\"", &["c"]);
    not_known("A=(a b); A[0]=c; rm \"${A[0]}\"", &[]);
    not_known("A=(a b); A+=(c); rm \"${A[@]}\"", &[]);
    not_known("A=(a b); read -a A; rm \"${A[@]}\"", &[]);
    not_known("A=(a $X); rm \"${A[@]}\"", &[]);
    not_known("A=(a *.rs); echo > \"${A[1]}\"", &[]);
    not_known("A=([3]=a); rm \"${A[3]}\"", &[]);
    not_known("A=(a); echo > ${A[1]}; echo > ${A[$i]}", &[]);
    not_known("A=(a); unset A; rm \"${A[@]}\"", &[]);
}

#[test]
fn a_text_that_is_read_is_a_value() {
    known("read F <<< src/b.rs; echo x > $F", &["src/b.rs"]);
    known("read -r F <<< '  a b '; echo x > \"$F\"", &["a b"]);
    known("read -r F <<'E'\na\nb\nE\necho x > $F", &["a"]);
    not_known("read -r F G <<< 'a b'; echo x > $F", &[]);
    not_known("read F <<< 'a\\b'; echo x > $F", &[]);
    not_known("IFS=:; read F <<< a:b; echo x > $F", &[]);
    not_known("read F < list; echo x > $F", &[]);
    not_known("read -d x F <<< axb; echo x > $F", &[]);
}

#[test]
fn tildes_of_the_working_folder_are_followed() {
    known("echo x > ~+/src/b.rs; cd src; echo x > ~+/c; echo x > ~-/d", &["d", "src/b.rs", "src/c"]);
    not_known("echo x > ~-/d", &[]);
    not_known("echo x > ~bob/a", &[]);
}

#[test]
fn texts_that_are_not_utf_8_are_not_known() {
    known(r"echo x > $'\xc3\xa9.txt'; echo x > $'\303\251.md'", &["é.md", "é.txt"]);
    not_known(r"echo x > $'\xff.txt'", &[]);
    not_known(r"echo x > $'a\377'; rm $'\xc3'a", &[]);
}

#[test]
fn outputs_of_compilers_and_others_are_known() {
    not_known("gcc -O2 -Wall -o src/b x.c; clang++ -ob x.cc", &["b", "src/b"]);
    known("fallocate -l 10 a; iconv -f latin1 -t utf-8 -o b c; iconv --output=d c", &["a", "b", "d"]);
    reads("iconv -f latin1 -t utf-8 c");
}

#[test]
fn perl_opens_files_without_parentheses() {
    for program in [
        r#"open my $f, ">", "a" or die; print $f "x""#,
        r#"open F, ">a" or die; print F "x""#,
        r#"open F, ">a""#,
        r#"open my $f, ">>", "a""#,
        r#"open my $f, ">:utf8", "a" or die "no""#,
        r#"open $f, ">", "a" || die"#,
        r#"open our $f, "+<", "a"; close $f"#,
        r#"if (open my $f, ">", "a") { print $f 1 }"#,
    ] {
        not_known(&format!("perl -e '{program}'"), &["a"]);
    }
    for program in [r#"open my $f, "<", "a" or die"#, r#"open F, "a""#, r#"print "open", ">", "a""#] {
        not_known(&format!("perl -e '{program}'"), &[]);
    }
}

#[test]
fn parts_of_a_split_have_longer_names() {
    let writes = |command: &str, name: &str| {
        read(command).paths.iter().any(|target| target.covers(&Path::new("/repo").join(name)))
    };
    let command = "split -b 1k README.md src/b.rs";
    assert!(writes(command, "src/b.rsaa") && !writes(command, "src/b.rs") && !writes(command, "src/b.rsa"));
    assert!(writes("split -a 1 README.md x", "xa") && !writes("split -a 3 README.md x", "xaa"));
    assert!(writes("csplit notes.txt 2", "xx00") && !writes("csplit notes.txt 2", "xx"));
}

#[test]
fn a_stash_of_paths_takes_only_these() {
    known("git stash push a.txt; git stash push -m m b.txt", &["a.txt/", "b.txt/"]);
    for command in ["git stash push a.txt", "git stash push -m m a.txt", "git stash -- a.txt"] {
        assert!(!git(command).1, "{command}");
    }
    for command in ["git stash push", "git stash push -m m", "git stash save a.txt"] {
        assert!(git(command).1, "{command}");
    }
    reads("git stash push --help; git stash pop --help; git worktree add --help");
}
