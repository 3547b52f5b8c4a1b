//! Asks a program that speaks JSON-RPC on standard input and output, one message in each line.

use std::io::{self, BufRead, BufReader, Write};
use std::process::{Child, Command, Stdio};
use std::sync::mpsc;
use std::thread;
use std::time::Duration;

use serde_json::Value;

/// The longest line of an answer that is read, in bytes. No program that is asked here sends longer ones.
const MAX_LINE: u64 = 4 << 20;

/// Starts a program, sends it messages, and returns its answer with this id. None if it does not answer within the limit.
///
/// # Errors
///
/// The program does not start.
pub fn ask(command: &mut Command, messages: &[Value], id: u64, limit: Duration) -> io::Result<Option<Value>> {
    let mut child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::null()).spawn()?;
    let answer = answer_of(&mut child, messages, id, limit);
    // The program ends when its standard input is closed. If it does not, it is killed: it has nothing to finish.
    let _ = child.kill();
    let _ = child.wait();
    Ok(answer)
}

fn answer_of(child: &mut Child, messages: &[Value], id: u64, limit: Duration) -> Option<Value> {
    let (mut stdin, stdout) = (child.stdin.take()?, child.stdout.take()?);
    let (sender, receiver) = mpsc::channel();
    thread::spawn(move || {
        let mut reader = BufReader::new(stdout);
        loop {
            let mut line = String::new();
            let read = io::Read::take(&mut reader, MAX_LINE).read_line(&mut line);
            if !read.is_ok_and(|count| count > 0) {
                return;
            }
            let message = serde_json::from_str::<Value>(&line).ok();
            if let Some(answer) = message.filter(|message| message["id"] == id) {
                // After the time limit the receiver is gone.
                let _ = sender.send(answer);
                return;
            }
        }
    });
    let text: String = messages.iter().map(|message| format!("{message}\n")).collect();
    stdin.write_all(text.as_bytes()).ok()?;
    receiver.recv_timeout(limit).ok()
}
