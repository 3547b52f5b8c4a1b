//! The log window of a run.

use std::fs::{self, File};
use std::io::{BufWriter, Seek, SeekFrom, Write};
use std::time::Instant;

use lockkeeper_testing::http::Http;
use serde_json::{Value, json};

use super::at;
use super::chromium::Browser;
use super::server::Server;

/// Lines are all as long as this, so that a place in the file tells the line.
const LINE: u64 = 64;
/// The most text that the page keeps.
const KEPT: u64 = 6 * 64 * 1024;

/// Runs a command of one request, and gives its run.
fn run(server: &Server, script: &str) -> String {
    let body = json!({ "id": "RQ-1", "title": "long", "command": ["sh", "-c", script] });
    let run = server.post("/api/requests", &body).expect(201)["run_id"].take();
    server.post("/api/requests/RQ-1/run", &json!({})).expect(202);
    run.as_str().unwrap().to_owned()
}

fn line(number: u64) -> String {
    format!("{number:010} {:<52}\n", "of what a command wrote")
}

/// Writes lines over an output, so that it is a gigabyte long. Those in the middle, which nobody looks at, are a hole
/// in the file, unless `LOCKKEEPER_DENSE_LOG` is set. Says how many lines there are.
fn write_gigabyte(server: &Server, id: &str) -> u64 {
    let (all, edge) = (1_000_000_000 / LINE, 32 * 1024);
    let file = File::create(server.folder().join("state/runs").join(id).join("output.log")).unwrap();
    file.set_len(all * LINE).unwrap();
    let write = |from: u64, to: u64| {
        let mut writer = BufWriter::new(&file);
        writer.seek(SeekFrom::Start(from * LINE)).unwrap();
        (from..to).for_each(|number| writer.write_all(line(number).as_bytes()).unwrap());
        writer.flush().unwrap();
    };
    if std::env::var_os("LOCKKEEPER_DENSE_LOG").is_some() {
        write(0, all);
    } else {
        write(0, edge);
        write(all - edge, all);
    }
    all
}

#[test]
fn a_gigabyte_of_output_is_looked_at_through_a_small_window() {
    let (server, mut browser) = (Server::start(), Browser::start());
    let id = run(&server, "true");
    while server.get(&format!("/api/runs/{id}")).expect(200)["run"]["completed_at"] == Value::Null {
        server.get(&format!("/api/runs/{id}/log?wait=1"));
    }
    let lines = write_gigabyte(&server, &id);
    let log = "document.querySelector('#log')";
    let begun = Instant::now();
    browser.open(&at(&server, &format!("/runs/{id}")));
    browser.wait(&format!("{log}.textContent.includes('{:010}')", lines - 1));
    eprintln!("opened within {:?}", begun.elapsed());
    browser.wait("!document.querySelector('#log-begin').hidden");
    let keeps_little = |browser: &mut Browser| {
        let kept = browser.run(&format!("{log}.textContent.length")).as_u64().unwrap();
        assert!(kept <= KEPT, "{kept}");
    };
    // Back, piece by piece, from where it is.
    for _ in 0..8 {
        let first = browser.run(&format!("{log}.firstChild.textContent.slice(0, 10)"));
        browser.run(&format!("{log}.scrollTop = 0"));
        browser.wait(&format!("{log}.firstChild.textContent.slice(0, 10) !== '{}'", first.as_str().unwrap()));
        keeps_little(&mut browser);
    }
    let begun = Instant::now();
    browser.press("#log-begin", &format!("{log}.textContent.startsWith('{:010}')", 0));
    eprintln!("at the beginning within {:?}", begun.elapsed());
    // Forth, and nothing is left out or shown twice.
    for _ in 0..8 {
        let last = browser.run(&format!("{log}.lastChild.textContent.slice(0, 10)"));
        browser.run(&format!("{log}.scrollTop = {log}.scrollHeight"));
        browser.wait(&format!("{log}.lastChild.textContent.slice(0, 10) !== '{}'", last.as_str().unwrap()));
        keeps_little(&mut browser);
    }
    let shown = browser.run(&format!("{log}.textContent"));
    let numbers: Vec<u64> = shown
        .as_str()
        .unwrap()
        .lines()
        .map(|line| line[..10].parse().unwrap_or_else(|_| panic!("cut within a line: {line}")))
        .collect();
    assert!(numbers.windows(2).all(|pair| pair[1] == pair[0] + 1), "{numbers:?}");
    let begun = Instant::now();
    browser.press("#log-end", &format!("{log}.textContent.includes('{:010}')", lines - 1));
    eprintln!("at the end within {:?}", begun.elapsed());
    keeps_little(&mut browser);
    eprintln!("the page's heap: {}", browser.run("performance.memory.usedJSHeapSize"));
    assert_eq!(browser.complaints, [""; 0]);
}

#[test]
fn who_looks_at_the_end_sees_what_is_written_and_who_looks_elsewhere_is_left_there() {
    let (server, mut browser) = (Server::start(), Browser::start());
    let script = "i=0; while [ $i -lt 3000 ]; do i=$((i+1)); echo line $i; done; \
                  for go in go-1 go-2; do while [ ! -e $go ]; do sleep 0.02; done; echo after $go; done";
    let id = run(&server, script);
    browser.open(&at(&server, &format!("/runs/{id}")));
    browser.until_live();
    browser.run("window.sameDocument = true");
    let log = "document.querySelector('#log')";
    browser.wait(&format!("{log}.textContent.includes('line 3000')"));
    let at_end = format!("{log}.scrollTop + {log}.clientHeight >= {log}.scrollHeight - 8");
    browser.wait(&at_end);
    fs::write(server.folder().join("go-1"), "").unwrap();
    browser.wait(&format!("{log}.textContent.includes('after go-1')"));
    browser.wait(&at_end);
    browser.run(&format!("{log}.scrollTop = 100"));
    browser.wait("!document.querySelector('#log-end').disabled");
    fs::write(server.folder().join("go-2"), "").unwrap();
    browser.wait("document.querySelector('#run-head').innerText.includes('succeeded')");
    assert_eq!(browser.run(&format!("{log}.scrollTop")), json!(100));
    browser
        .run(&format!("{log}.dispatchEvent(new KeyboardEvent('keydown', {{ key: 'End', bubbles: true }}))"));
    browser.wait(&format!("{log}.textContent.includes('after go-2')"));
    browser.wait(&at_end);
    assert_eq!(browser.run("window.sameDocument"), json!(true));
    assert_eq!(browser.complaints, [""; 0]);
}
