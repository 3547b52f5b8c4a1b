//! Links the command statically in release builds on Linux with glibc, because a static program starts faster. See
//! docs/decisions/0021-the-command-is-linked-statically.md.
//!
//! It changes nothing if the system has no static C library, or if `LOCKKEEPER_LINK=dynamic` is set.

use std::env;
use std::ffi::OsString;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

/// The system libraries that Rust's standard library links dynamically, and the archive that takes the place of each.
const LIBRARIES: [(&str, &str); 7] = [
    ("gcc_s", "gcc_eh"),
    ("c", "c"),
    ("m", "m"),
    ("rt", "rt"),
    ("pthread", "pthread"),
    ("dl", "dl"),
    ("util", "util"),
];

fn main() {
    println!("cargo::rerun-if-changed=build.rs");
    println!("cargo::rerun-if-env-changed=LOCKKEEPER_LINK");
    if !is_wanted() {
        return;
    }
    let folder = PathBuf::from(env::var_os("OUT_DIR").unwrap_or_default());
    if write_linker_scripts(&folder).is_ok() && works(&folder) {
        for argument in arguments(&folder) {
            println!("cargo::rustc-link-arg-bins={}", argument.to_string_lossy());
        }
    }
}

/// Release builds for this system. Debug builds stay dynamic, so that tools such as faketime(1) work with them.
fn is_wanted() -> bool {
    let is = |name: &str, value: &str| env::var(name).is_ok_and(|found| found == value);
    is("PROFILE", "release")
        && is("CARGO_CFG_TARGET_OS", "linux")
        && is("CARGO_CFG_TARGET_ENV", "gnu")
        && env::var_os("HOST") == env::var_os("TARGET")
        && env::var_os("CARGO_FEATURE_CLI").is_some()
        && !is("LOCKKEEPER_LINK", "dynamic")
}

/// Rust passes `-Bdynamic -lgcc_s -lc …` to the linker. So the folder has a linker script for each of these names, which
/// names the static archives. The archives need each other, hence the group.
fn write_linker_scripts(folder: &Path) -> std::io::Result<()> {
    for (library, archive) in LIBRARIES {
        let script = format!("GROUP(-l:lib{archive}.a -l:libgcc_eh.a -l:libgcc.a -l:libc.a)\n");
        fs::write(folder.join(format!("lib{library}.so")), script)?;
    }
    Ok(())
}

fn arguments(folder: &Path) -> [OsString; 3] {
    let mut search = OsString::from("-L");
    search.push(folder);
    [search, "-static".into(), "-no-pie".into()]
}

/// Whether a small program can be linked in this way, and runs.
fn works(folder: &Path) -> bool {
    let (source, program) = (folder.join("probe.c"), folder.join("probe"));
    let text = "#include <math.h>\nint main(int n, char **v) { return sin(n * 1e-9) > 1 || !v; }\n";
    let linker = env::var_os("RUSTC_LINKER").unwrap_or_else(|| "cc".into());
    let libraries = LIBRARIES.iter().map(|(library, _)| format!("-l{library}"));
    let mut link = Command::new(linker);
    link.arg("-o").arg(&program).arg(&source).args(["-nodefaultlibs", "-pie", "-Wl,-Bdynamic"]);
    link.args(libraries).args(arguments(folder));
    fs::write(&source, text).is_ok() && succeeds(&mut link) && succeeds(&mut Command::new(&program))
}

fn succeeds(command: &mut Command) -> bool {
    let quiet = command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
    quiet.status().is_ok_and(|status| status.success())
}
