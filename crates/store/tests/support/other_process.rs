//! Another process that uses the same store: the test program starts itself again, for the test `processes::other_process`.

use std::io::{Read, Write};

use lockkeeper_testing::{Started, this_test};

const ROLE: &str = "LOCKKEEPER_CONFORMANCE_ROLE";
const BACKEND: &str = "LOCKKEEPER_CONFORMANCE_BACKEND";
const ADDRESS: &str = "LOCKKEEPER_CONFORMANCE_ADDRESS";

/// The arguments of such a process: its role, the name of its backend, and the address of the store.
pub fn given() -> (String, String, String) {
    let variable = |name| std::env::var(name).unwrap();
    (variable(ROLE), variable(BACKEND), variable(ADDRESS))
}

/// The address, or none with a message if the backend lives in one process.
pub fn address(backend: &str, address: Option<String>) -> Option<String> {
    if address.is_none() {
        println!("{backend}: left out, since it lives in one process");
    }
    address
}

/// Starts another process in a role, and waits until it says this word.
pub fn start(backend: &str, address: &str, role: &str, says: &str) -> Started {
    let mut command = this_test("processes::other_process");
    command.env(super::serving::SERVER, super::serving::address());
    command.env(ROLE, role).env(BACKEND, backend).env(ADDRESS, address);
    let mut started = Started::of(&mut command);
    started.line_with(says);
    started
}

/// Says a word to the process that started this one.
pub fn say(word: &str) {
    // The test runner has written the name of the test on this line.
    let mut out = std::io::stdout().lock();
    writeln!(out, "\n{word}").unwrap();
    out.flush().unwrap();
}

/// Waits until the process that started this one closes the pipe.
pub fn wait_for_end_of_input() {
    let _ = std::io::stdin().read_to_end(&mut Vec::new());
}
