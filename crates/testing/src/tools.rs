//! What a test needs from the machine, and how it says that it cannot run.

use std::process::Command;

/// Says visibly that a test checked nothing, and what it needs. The test returns after this.
pub fn skip(needs: &str) {
    eprintln!("SKIPPED: needs {needs}; nothing was checked");
}

/// The same for a server that CI has to have: there it is a failure.
///
/// # Panics
/// With `CI=true`.
pub fn skip_server(needs: &str) {
    assert!(std::env::var("CI").as_deref() != Ok("true"), "this test needs {needs}");
    skip(needs);
}

/// Whether a program is on the `PATH`.
#[must_use]
pub fn is_installed(program: &str) -> bool {
    let path = std::env::var_os("PATH").unwrap_or_default();
    std::env::split_paths(&path).any(|folder| folder.join(program).is_file())
}

/// Whether the tests run as root.
#[must_use]
pub fn is_root() -> bool {
    rustix::process::geteuid().is_root()
}

/// The command that runs one test of this test program in a process of its own.
///
/// Such a test plays a role for other tests. It is marked `#[ignore]`, so that it runs only when they start it.
/// The harness prints lines around its output: read with [`crate::Started::line_with`].
#[must_use]
pub fn this_test(name: &str) -> Command {
    let mut command = Command::new(std::env::current_exe().unwrap());
    command.args(["--exact", name, "--include-ignored", "--nocapture", "--quiet", "--test-threads=1"]);
    command
}

/// The same command as a line of shell.
#[must_use]
pub fn this_test_line(name: &str) -> String {
    let command = this_test(name);
    let words = std::iter::once(command.get_program()).chain(command.get_args());
    words.map(|word| format!("'{}' ", word.to_str().expect("the path is text"))).collect()
}
