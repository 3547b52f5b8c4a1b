//! Random scripts, judged by bash: the files that exist after a script are those that the shell reader announced.
#![expect(clippy::unwrap_used, reason = "a test may fail by panicking, in its helpers too")]

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use lockkeeper_agents::{Entry, Place, Target, lexical, shell_writes};
use proptest::prelude::*;

/// Commands that write one or two files, each in another way. All of them end with a new line.
fn leaf() -> impl Strategy<Value = String> {
    let name = prop::sample::select(vec!["a", "b", "c.txt", "d e", "f'g", "h$i", "*j", "ö", "k/l", "-m"]);
    (name, 0..14_usize).prop_map(|(name, way)| {
        let path = format!("./{name}");
        let single = format!("'{}'", path.replace('\'', r"'\''"));
        let double = format!("\"{}\"", path.replace('$', r"\$"));
        let escaped: String = path
            .chars()
            .map(|c| {
                if c.is_ascii_alphanumeric() || c == '/' || !c.is_ascii() {
                    c.to_string()
                } else {
                    format!("\\{c}")
                }
            })
            .collect();
        match way {
            0 => format!("echo x > {single}\n"),
            1 => format!("echo x >>{double}\n"),
            2 => format!("echo x &>{escaped}\n"),
            3 => format!("cat <<'E' > {single}\n$(echo > wrong) 'don\"t ( > wrong\nE\n"),
            4 => format!("cat > {escaped} <<E\n$HOME \\$(x) \"y\" > wrong\nE\n"),
            5 => format!("touch -- {single} {double}\n"),
            6 => format!("v={single}\necho > \"$v\"\n"),
            7 => format!("v={double}; echo > \"${{v}}\" # comment > no\n"),
            8 => format!("echo x | tee {escaped} > /dev/null\n"),
            9 => format!("for v in {single} {single}.2; do echo > \"$v\"; done\n"),
            10 => format!("bash -c 'echo > \"$1\"' _ {single}\n"),
            11 => format!("w() {{ echo > \"$1\"; }}; w {double}\n"),
            12 => format!(": > {double} && [ -f {single} ] && printf '%s' '> none'\n"),
            _ => format!("cp /dev/null {single}; echo \"$(echo 2 > {single}.3)\"\n"),
        }
    })
}

/// Scripts of scripts: lists, subshells, groups, conditions, loops, functions, substitutions, changed folders.
fn script() -> impl Strategy<Value = String> {
    leaf().prop_recursive(4, 24, 3, |inner| {
        (prop::collection::vec(inner, 1..3), 0..16_usize).prop_map(|(parts, way)| {
            let body = parts.concat();
            match way {
                0 => body,
                1 => format!("(\n{body})\n"),
                2 => format!("{{\n{body}}}\n"),
                3 => format!("if true; then\n{body}fi\n"),
                4 => format!("if [ 1 = 1 ]\nthen {body}else echo no\nfi\n"),
                5 => format!("f() {{\n{body}}}\nf\n"),
                // bash 5.2 prints and reads a substitution again, and gets it wrong with here-documents.
                6 if !body.contains("<<") => format!("x=$(\n{body})\n"),
                6 => format!("(\n{body}) < /dev/null\n"),
                7 => format!("{{\n{body}}} | cat\n"),
                8 => format!("(cd sub\n{body})\n"),
                9 => format!("pushd sub > /dev/null\n{body}popd > /dev/null\n"),
                10 => format!("cd sub\n{body}cd ..\n"),
                11 => format!("for i in 1 2; do\n{body}done\n"),
                12 => format!("case x in\n  a|b) echo no;;\n  (x)\n{body};;\nesac\n"),
                13 => format!("{{\n{body}}} &\nwait\n"),
                // The name of the end differs from those within.
                14 => format!("bash <<'S{0}'\n{body}S{0}\n", body.len()),
                _ => format!("! false && {{\n{body}}}; echo \"`echo x`\"\n"),
            }
        })
    })
}

fn files(folder: &Path) -> BTreeSet<PathBuf> {
    let mut found = BTreeSet::new();
    for entry in fs::read_dir(folder).unwrap().map(Result::unwrap) {
        if entry.file_type().unwrap().is_dir() {
            found.extend(files(&entry.path()));
        } else {
            found.insert(entry.path());
        }
    }
    found
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(200))]

    #[test]
    fn the_files_of_a_script_are_those_that_were_announced(script in script()) {
        let folder = tempfile::tempdir().unwrap();
        let root = folder.path().canonicalize().unwrap();
        // Folders to change into, wherever the script is when it does.
        for path in ["sub/sub/sub/sub/sub/k", "sub/sub/sub/sub/k", "sub/sub/sub/k", "sub/sub/k", "sub/k", "k"] {
            fs::create_dir_all(root.join(path)).unwrap();
        }
        let entry = |path: &Path| if path.is_dir() { Some(Entry::Folder) } else { path.exists().then_some(Entry::File) };
        let writes = shell_writes(&script, &Place { cwd: &root, home: None, entry: &entry, names: &|_: &Path| Vec::new(), text: &|_: &Path| None });
        prop_assert!(writes.unknown.is_empty(), "{:?} of\n{}", writes.unknown, script);
        let mut announced = BTreeSet::new();
        for target in &writes.paths {
            match target {
                Target::File(path) => announced.insert(lexical(path)),
                other => panic!("{other:?}"),
            };
        }
        let mut bash = Command::new("bash");
        bash.args(["-c", &script]).current_dir(&root).env_clear().env("PATH", "/usr/bin:/bin");
        bash.stdin(Stdio::null()).stdout(Stdio::null());
        let output = bash.output().unwrap();
        prop_assert_eq!(files(&root), announced, "{}{}", script, String::from_utf8_lossy(&output.stderr));
    }
}
