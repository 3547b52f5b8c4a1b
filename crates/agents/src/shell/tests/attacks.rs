//! Writes by ways that an agent may try after a deny. Each has commands beside it that only read.

use super::*;

#[test]
fn wrappers_with_a_folder_or_a_text_are_followed() {
    known("env -C src rm a; env --chdir=docs A=1 rm b; rm c", &["c", "docs/b", "src/a"]);
    known(
        "env -S 'rm a' b; env -iS \"A=1 rm 'c d'\"; env --split-string='-C src rm e'",
        &["a", "b", "c d", "src/e"],
    );
    not_known("env -S 'rm $X'", &[]);
    known(
        "su -c 'rm a'; su bob -c 'cd src; rm b'; su --command='rm c' bob; runuser -u bob -- rm d",
        &["a", "c", "d", "src/b"],
    );
    not_known("su - bob -c 'rm a'; su", &[]);
    not_known("su -l -c 'rm /repo/a; rm b' bob", &["a"]);
    known("chroot / rm /repo/a; chroot --skip-chdir / rm b", &["a", "b"]);
    not_known("chroot /jail rm /repo/a", &[]);
    known("watch -n 1 'rm a; echo > b'; watch -x rm c; watch rm d", &["a", "b", "c", "d"]);
    known("script -qc 'rm a' log; script -c 'rm b'", &["a", "b", "log", "typescript"]);
    known(
        "unshare -r rm a; setpriv --reuid 1000 rm b; chrt -b 0 rm c; sudo -D src rm d",
        &["a", "b", "c", "src/d"],
    );
    known("nice cd src; rm a", &["a"]);
    reads(
        "env -C src ls; env -S 'cat a'; su -c 'cat a'; chroot / cat /repo/a; watch -n 1 'git status'; watch ls",
    );
}

#[test]
fn texts_that_reach_a_shell_or_xargs_are_read() {
    known("sh <<< 'rm a'; bash -s <<< \"rm b\"; X=c; sh <<< \"rm $X\"", &["a", "b", "c"]);
    known("X=a; bash <<EOF\nrm $X\nEOF", &["a"]);
    known("echo 'rm a' | sh; printf '%s\\n' 'rm b' | bash; cat <<'E' | sh\nrm c\nE", &["a", "b", "c"]);
    known(
        "echo a b | xargs rm; echo src/a.rs | xargs -I{} cp x {}.bak; ls *.o | xargs -n1 rm -f",
        &["=*.o", "a", "b", "src/a.rs.bak"],
    );
    known("find src -name '*.rs' -print0 | xargs -0 sed -i s/a/b/", &["=src/**/*.rs"]);
    not_known("bash <<EOF\nrm $(date)\nEOF", &[]);
    not_known("grep -l x src | xargs rm", &[]);
    not_known("cat list | xargs rm", &[]);
    reads(
        "echo 'rm a' | cat; sh <<< 'cat a'; cat <<< 'rm a'; find . -name '*.rs' | xargs wc -l; echo 'rm a' | grep rm",
    );
}

#[test]
fn scripts_of_sed_and_awk_are_read() {
    known("sed -n 'w out' a; sed 's/x/y/w log' b; sed -n -e '/x/w c' -e p d", &["c", "log", "out"]);
    known("sed -i 's/x/y/w log' b; sed '1e rm a' b", &["a", "b", "log"]);
    reads("sed 's/w x/e y/' a; sed -n '/w /p' a; sed 'w /dev/stdout' a");
    not_known("sed -f x.sed a", &[]);
    not_known("sed \"$X\" a", &[]);
    known(
        "awk '{print > \"a\"}' x; awk '{printf \"%s\", $1 >> \"b\"}' x; gawk '{print | \"tee c\"}' x",
        &["a", "b", "c"],
    );
    known("awk -v out=a '{print > out}' x; awk 'BEGIN{system(\"rm b\")}'", &["a", "b"]);
    reads("awk '$1 > 5 {print \"> a\"}' x; awk -F: '{print $1}' x; awk '/a|b/' x; awk 'NR>1{print}' x");
    not_known("awk -f x.awk a", &[]);
    not_known("awk '{print > $1}' a", &[]);
}

#[test]
fn links_copies_and_git_plumbing_write() {
    known("link a b", &["b"]);
    known("rsync -a --delete src/ docs/; rsync --delete-after -r x/ y", &["docs/", "y/"]);
    reads("rsync -an --delete src/ docs/; rsync -a --delete src/ host:docs/");
    known(
        "git checkout-index -f -- src/a.rs notes.txt; git merge-file a b c",
        &["a", "notes.txt", "src/a.rs"],
    );
    for command in ["git checkout-index -a -f", "git read-tree -u --reset HEAD", "git read-tree -mu HEAD"] {
        assert!(git(command).1, "{command}");
    }
    assert!(!git("git read-tree HEAD").1);
    reads("git merge-file -p a b c");
}

#[test]
fn cd_goes_to_the_only_folder_that_matches() {
    known("cd sr*; rm a.rs", &["src/a.rs"]);
    known("cd /repo/d[o]cs && rm a", &["docs/a"]);
    not_known("cd *; rm a", &[]);
    not_known("cd x*; rm a", &[]);
    reads("cd sr* && ls");
}

/// A program may write anything: more is always looked at afterwards.
#[test]
fn short_programs_of_interpreters_are_searched_for_writes() {
    for command in [
        r#"python3 -c "open('a','w').write('x')""#,
        r#"python3 - <<'E'
import re
p = 'a'
text = open(p).read()
with open(p, mode="w", encoding="utf-8") as f:
    f.write(text.replace('x', 'y'))
E"#,
        r#"python3 <<'E'
from pathlib import Path
p = Path("a")
p.write_text(p.read_text().replace("b", "c"))
E"#,
        r#"python3 -c 'import os; os.remove("a")'"#,
        r#"python3 -c 'import os; os.system("rm a")'"#,
        r#"python3 -c "import shutil; shutil.copy('b', 'a')""#,
        r#"python3 -c 'from pathlib import Path; Path("a").write_text("x")'"#,
        r#"node -e 'require("fs").writeFileSync("a", "x")'"#,
        r#"node -e "const fs = require('fs'); const p = 'a'; fs.appendFileSync(p, 'x')""#,
        r#"ruby -e 'File.write("a", "x")'"#,
        r#"ruby -e 'File.open("a", "w") { |f| f.puts 1 }'"#,
        r#"perl -e 'open(my $f, ">", "a"); print $f 1'"#,
        r#"perl -e 'open(F, ">a")'"#,
        r#"php -r 'file_put_contents("a", 1);'"#,
    ] {
        not_known(command, &["a"]);
    }
    for command in [
        r#"python3 -c "print(open('a').read().replace('x', 'w'))""#,
        r#"python3 -c "print(open('a', 'rb').read())""#,
        r##"python3 -c "x = 'open(\'a\', \'w\')' # open('a', 'w')""##,
        r#"python3 -c "p = 'a'; p = 'b'; open(p, 'w')""#,
        r#"python3 -c "import os; os.chdir('/tmp'); open('a', 'w')""#,
        r#"python3 -c "open(f'{x}', 'w')""#,
        r#"node -e 'console.log(require("fs").readFileSync("a", "utf8"))'"#,
        r#"perl -e 'open(F, "<a"); print <F>'"#,
        r#"perl -ne 'print if /a/' b"#,
        "python3 x.py",
        "python3 -m http.server",
    ] {
        not_known(command, &[]);
    }
}

/// The link is made by the same command line, so it is not there when the line is read.
#[test]
fn links_that_a_script_makes_are_followed() {
    known("ln -s src/a.rs b; echo > b", &["b", "src/a.rs"]);
    known("ln src/a.rs docs/b && tee -a docs/b", &["docs/b", "src/a.rs"]);
    known("ln -s ../src docs/s; cd docs/s; echo > a.rs", &["docs/s", "docs/s/a.rs", "src/a.rs"]);
    known("cp -l src/a.rs b; echo > b", &["b", "src/a.rs"]);
    known("ln -s src/a.rs b; rm b", &["b"]);
    known("ln -s src/a.rs b; sed -i s/x/y/ b; mv b c", &["b", "b/", "c/"]);
}

#[test]
fn other_spellings_of_a_path_are_the_same_path() {
    known("echo > /proc/self/cwd/src/a.rs", &["src/a.rs"]);
    known("echo > /proc/self/root/repo/src/a.rs", &["src/a.rs"]);
    known("cd /proc/self/root/repo/src; rm a.rs", &["src/a.rs"]);
    known("echo x >! a; noglob rm b", &["a", "b"]);
    known("F=a sh -c 'rm $F'; F=b; rm $F; F=c true; rm $F", &["a", "b"]);
    known("set -- a b; rm \"$2\" $1", &["a", "b"]);
    known("rm $(echo a b) \"$(echo c d)\" `echo e`", &["a", "b", "c d", "e"]);
    known("bash -c \"$(cat <<'E'\nrm a\nE\n)\"; eval \"$(printf '%s\\n' 'rm b')\"", &["a", "b"]);
    known("cd src; rm \"$(git rev-parse --show-toplevel)/a\"", &["a"]);
    known(
        "git checkout-index --prefix=out/ -a; git checkout-index --prefix=./ src/a.rs",
        &["out/", "src/a.rs"],
    );
    not_known("perl -Mstrict -ne 'print' a", &[]);
    not_known("ruby -rjson -ne 'print' a", &[]);
    known("perl -Mstrict -pi -e 's/x/y/' a", &["a"]);
    reads("cat /proc/self/cwd/a; echo x > /proc/self/fd/2; F=a sh -c 'cat $F'; cat $(echo a)");
}

/// In a pathspec a `*` also matches `/`, and `:/` is the top of the work tree.
#[test]
fn pathspecs_of_git_are_read() {
    known("git checkout -- '*.rs'; git restore 'src/*.md'", &["=**/*.rs/", "=src/**/*.md/"]);
    known("git checkout -- 'src/*' 'do*s' 'a*/b'", &["=a*/**/b/", "=do{*,*/**/*}s/", "=src/**/"]);
    known("cd src; git restore :/docs ':(top)notes.txt' ':(top)*.md'", &["=**/*.md/", "docs/", "notes.txt/"]);
    known("git restore ':(glob)src/*.rs' ':(literal)a*' ':(top,glob)**/x'", &["=**/x/", "=src/*.rs/", "a*/"]);
    known("git checkout -- *.txt", &["=*.txt/"]);
    // The shell finds nothing, so git gets the wildcard.
    known("git checkout -- *.rs", &["=**/*.rs/"]);
    known("git restore 'a{b}*'", &[r"=a\{b\}*/"]);
    assert_eq!(
        read("git add '*.rs'").git[0].staged,
        Staged::Paths(vec![Target::Pattern("/repo/**/*.rs/".into())])
    );
    for command in [
        "git restore ':!src/a.rs' src",
        "git restore src ':(exclude)src/a.rs'",
        "git restore ':(icase)A'",
        "git restore ':(attr:x)a'",
        "git restore '[a'",
        "git restore --pathspec-from-file=list",
        "git rm --pathspec-from-file=list",
        "git commit --pathspec-from-file=- -m x",
    ] {
        not_known(command, &[]);
    }
}

#[test]
fn xargs_puts_names_and_patterns_where_it_is_told() {
    not_known("ls *.o | xargs -I{} mv {} {}.bak", &["=*.o.bak/", "=*.o/"]);
    not_known("find src -name '*.rs' | xargs -I % cp % %.orig", &["=src/**/*.rs.orig"]);
    known("find src -name '*.rs' | xargs -I % sed -i s/a/b/ %", &["=src/**/*.rs"]);
    known("ls *.o | xargs -I{} touch {}.done", &["=*.o.done"]);
    known("echo a | xargs -i cp x {}; echo b | xargs --replace=@ cp x @", &["a", "b"]);
    known("ls *.o | xargs -I{} sh -c 'rm a'", &["a"]);
    not_known("ls *.o | xargs -I{} sh -c 'rm {}'", &[]);
    reads("ls *.o | xargs -I{} cat {}");
}

#[test]
fn a_patch_through_a_pipe_is_read() {
    known("cat fix.patch | git apply; cat fix.patch | patch -p1", &["src/y", "x"]);
    known("cat <<'E' | git apply -\n--- a/z\n+++ b/z\nE", &["z"]);
    not_known("git diff HEAD~1 | git apply -R", &[]);
    not_known("echo > fix.patch; cat fix.patch | git apply", &["fix.patch"]);
    reads("cat fix.patch | git apply --check; cat fix.patch | grep x");
}
