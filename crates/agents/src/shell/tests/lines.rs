//! The simple commands of a line, and writes that are easily missed.

use super::*;

fn commands(command: &str) -> Vec<String> {
    let shown = |command: crate::writes::Command| {
        let mark = if command.background { " &" } else { "" };
        let folder = command.folder.map(|folder| folder.display().to_string()).unwrap_or_default();
        format!("{}: {}{mark}", folder.strip_prefix("/repo").unwrap_or(&folder), command.text)
    };
    read(command).commands.into_iter().map(shown).collect()
}

#[test]
fn the_simple_commands_of_a_line_are_found() {
    assert_eq!(commands("cd web && PORT=3000 npm  run 'dev'"), [": cd web", "/web: npm run dev"]);
    assert_eq!(commands("npm run dev & sleep 1"), [": npm run dev &", ": sleep 1"]);
    assert_eq!(
        commands("timeout 60 bash -lc \"cargo test $X\""),
        [": timeout 60 bash -lc …", ": bash -lc …"],
        "what only the shell knows"
    );
    assert_eq!(
        commands("env A=1 /usr/bin/cargo build; bash -c 'make a | tee log'"),
        [
            ": env A=1 /usr/bin/cargo build",
            ": cargo build",
            ": bash -c make a | tee log",
            ": make a",
            ": tee log"
        ]
    );
    assert_eq!(
        commands("(cd src; for i in 1 2; do ./m $i $(date); done)"),
        [": cd src", "/src: date", "/src: ./m 1 …", "/src: ./m 2 …"],
        "loops and substitutions"
    );
    assert_eq!(commands("lockkeeper exec db -- ./migrate"), [": lockkeeper exec db -- ./migrate"]);
}

#[test]
fn editors_archives_and_copies_write_what_they_name() {
    known(
        "rsync notes.txt a.txt; rsync -a notes.txt src/; rsync --remove-source-files src/a.rs b",
        &["a.txt", "b", "src/a.rs", "src/notes.txt/"],
    );
    not_known("rsync -a src/ docs", &[]);
    known("rsync --delete notes.txt docs", &["docs/"]);
    reads("rsync -n notes.txt a.txt; rsync notes.txt host:a.txt");
    known(
        "gawk -i inplace -v x=1 '{print}' a.txt y=2 b.txt; awk -iinplace '{print}' c",
        &["a.txt", "b.txt", "c"],
    );
    reads("awk '{print $1}' a.txt");
    known("ex -sc '%s/a/b/|x' a.txt; ed -s b.txt <<'E'\nw\nq\nE", &["a.txt", "b.txt"]);
    not_known("vim -es -c '%s/a/b/' -c wq a.txt", &["a.txt"]);
    not_known("vim -Es +'%s/a/b/' +wq a.txt b.txt", &["a.txt", "b.txt"]);
    not_known("nvim --headless -c wq a.txt", &["a.txt"]);
    known("tar xf x.tar src/a.rs; tar -xzf x.tgz -C docs a b/c", &["docs/a/", "docs/b/c/", "src/a.rs/"]);
    not_known("tar xf x.tar", &[]);
    not_known("tar xf x.tar --strip-components=1 src/a.rs", &[]);
    known("unzip x.zip a -d docs; zip out a b; zip -r out.zip a", &["docs/a/", "out.zip"]);
    not_known("unzip -o x.zip", &[]);
    reads("unzip -l x.zip; unzip -p x.zip a; tar tf x.tar; tar xOf x.tar a");
    known(
        "split -l 2 notes.txt part-; csplit -f p notes.txt 2; split notes.txt",
        &["=p??*", "=part-??*", "=x??*"],
    );
    known("perl -i.bak -pe 's/a/b/' a; perl -pi -e 's/a/b/' b", &["a", "a.bak", "b"]);
    not_known("cp --parents src/a.rs docs", &[]);
    known(
        "flock l rm a; flock l -c 'echo > b'; strace -f -o log rm c; taskset 1 rm d",
        &["a", "b", "c", "d", "log"],
    );
}

#[test]
fn folders_that_a_shell_remembers_are_followed() {
    known("cd src; cd -; echo > a; cd docs && cd - && echo > b", &["a", "b"]);
    known(
        "pushd src; echo > a; pushd ../docs; echo > b; popd; echo > c; popd; echo > d",
        &["d", "docs/b", "src/a", "src/c"],
    );
    known("pushd src; pushd; echo > a; popd; echo > b", &["a", "src/b"]);
    known("popd; echo > a", &["a"]);
    not_known("pushd +1; echo > a", &[]);
    not_known("cd -; echo > a", &[]);
}
