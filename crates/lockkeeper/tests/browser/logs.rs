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
/// The most text that the page keeps: ten thousand lines, and what one step loads at either end.
const KEPT: u64 = 20_000 * LINE;

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

/// Scrolls the output as a person does, with a wheel.
fn scroll(browser: &mut Browser, to: &str) {
    let wheel = "log.dispatchEvent(new WheelEvent('wheel', { bubbles: true }))";
    browser.run(&format!("{{ const log = document.querySelector('#log'); {wheel}; log.scrollTop = {to} }}"));
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
        scroll(&mut browser, "0");
        browser.wait(&format!("{log}.firstChild.textContent.slice(0, 10) !== '{}'", first.as_str().unwrap()));
        keeps_little(&mut browser);
    }
    let begun = Instant::now();
    browser.press("#log-begin", &format!("{log}.textContent.startsWith('{:010}')", 0));
    eprintln!("at the beginning within {:?}", begun.elapsed());
    // Forth, and nothing is left out or shown twice.
    for _ in 0..8 {
        let last = browser.run(&format!("{log}.lastChild.textContent.slice(0, 10)"));
        scroll(&mut browser, "log.scrollHeight");
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
    scroll(&mut browser, "100");
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

/// While it follows, the page keeps the last ten thousand lines, and earlier ones come by scrolling.
#[test]
fn ten_thousand_lines_are_kept_while_following_and_the_view_never_stops() {
    let (server, mut browser) = (Server::start(), Browser::start());
    let script = "i=0; while [ $i -lt 30000 ]; do i=$((i+1)); echo line $i; done; while [ ! -e go ]; do sleep 0.02; done; echo the end";
    let id = run(&server, script);
    browser.open(&at(&server, &format!("/runs/{id}")));
    let log = "document.querySelector('#log')";
    browser.wait(&format!("{log}.textContent.includes('line 30000')"));
    let lines = format!("{log}.textContent.split('\\n').length");
    // The server draws the end of the output; the script loads the rest.
    browser.wait(&format!("{lines} >= 10000"));
    let kept = browser.run(&lines).as_u64().unwrap();
    assert!(kept < 27_000, "{kept}");
    let at_end = format!("{log}.scrollTop + {log}.clientHeight >= {log}.scrollHeight - 8");
    browser.wait(&at_end);
    // The window changes its size: that is no wish to stop following.
    browser.resize(500, 400);
    fs::write(server.folder().join("go"), "").unwrap();
    browser.wait(&format!("{log}.textContent.includes('the end')"));
    browser.wait(&at_end);
    // Scrolled up, earlier lines come, and the end is followed again when it is reached.
    for _ in 0..40 {
        scroll(&mut browser, "0");
        browser.wait(&format!("{log}.scrollTop > 0 || {log}.textContent.startsWith('line 1\\n')"));
    }
    browser.wait(&format!("{log}.textContent.startsWith('line 1\\n')"));
    assert_eq!(browser.complaints, [""; 0]);
}

#[test]
fn colours_are_shown_and_markup_of_a_command_is_text() {
    let (server, mut browser) = (Server::start(), Browser::start());
    let script = r"printf '\033[1;31merror\033[0m <img src=x onerror=window.owned=1> \033[32mgreen'; printf ' still\033[39m off\033[?25h\n'";
    let id = run(&server, script);
    browser.open(&at(&server, &format!("/runs/{id}")));
    let log = "document.querySelector('#log')";
    browser.wait(&format!("{log}.querySelector('.a-red.a-bold')?.textContent === 'error'"));
    assert_eq!(browser.run(&format!("{log}.querySelector('.a-green').textContent")), "green still");
    let text = browser.run(&format!("{log}.textContent"));
    assert_eq!(text, "error <img src=x onerror=window.owned=1> green still off\n");
    assert_eq!(browser.run("typeof window.owned"), "undefined");
    assert_eq!(browser.complaints, [""; 0]);
}

#[test]
fn a_carriage_return_writes_over_the_line_as_in_a_terminal() {
    let (server, mut browser) = (Server::start(), Browser::start());
    let script = r#"i=0; while [ $i -lt 30 ]; do i=$((i+1)); printf 'progress %d%%\r' $i; done; printf 'progress 30%%\r\n'
        printf '\033[31mlong line\r\033[0mAB\n'; printf 'all\r\033[Kgone? yes\n'; printf '|\b/\b-\r\n'; printf '多い字\r少な\n'
        printf 'half '; while [ ! -e go ]; do sleep 0.02; done; printf 'way\rdone    \n'"#;
    let id = run(&server, script);
    browser.open(&at(&server, &format!("/runs/{id}")));
    // The server draws the output before the script does.
    let becomes = |browser: &mut Browser, expected: &str| {
        browser.wait(&format!("document.querySelector('#log').textContent === {}", json!(expected)));
    };
    let lines = "progress 30%\nABng line\ngone? yes\n-\n少な字\n";
    becomes(&mut browser, &format!("{lines}half "));
    assert_eq!(browser.run("document.querySelector('#log .a-red').textContent"), "ng line");
    // The rest of the line comes later, in another piece.
    fs::write(server.folder().join("go"), "").unwrap();
    becomes(&mut browser, &format!("{lines}done    \n"));
    assert_eq!(browser.complaints, [""; 0]);
}

/// The policy of the page allows no inline style: colours have classes.
#[test]
fn inverse_and_256_and_true_colours_are_shown_and_can_be_read_in_both_themes() {
    let (server, mut browser) = (Server::start(), Browser::start());
    let script = r"printf '\033[7minverse\033[27m \033[38;5;226myellow\033[m \033[38;2;255;135;1mtrue\033[m \033[38:2::0:0:254mcolon\033[m \033[1;48;5;20;32mgreen\033[0m\n'";
    let id = run(&server, script);
    browser.open(&at(&server, &format!("/runs/{id}")));
    browser.wait("document.querySelector('#log .a-inverse')");
    let class_of = |browser: &mut Browser, text: &str| {
        let find = format!(
            "[...document.querySelectorAll('#log span')].find((one) => one.textContent === '{text}' && one.className)"
        );
        browser.run(&format!("{find}?.className"))
    };
    let found = ["inverse", "yellow", "true", "colon", "green"].map(|text| class_of(&mut browser, text));
    assert_eq!(found, ["a-inverse", "a-own a-c226", "a-own a-c208", "a-own a-c21", "a-bold a-green"]);
    // Contrast of the text with what is behind it, as WCAG defines it, by a canvas that knows all notations of colours.
    let contrast = "(selector, behind) => {
        const canvas = Object.assign(document.createElement('canvas'), { width: 1, height: 1 }).getContext('2d', { willReadFrequently: true });
        const light = (colour) => {
            canvas.fillStyle = colour;
            canvas.fillRect(0, 0, 1, 1);
            const part = (value) => value <= 10 ? value / 255 / 12.92 : ((value / 255 + 0.055) / 1.055) ** 2.4;
            const [r, g, b] = [...canvas.getImageData(0, 0, 1, 1).data].map(part);
            return 0.2126 * r + 0.7152 * g + 0.0722 * b;
        };
        const of = (one, name) => light(getComputedStyle(document.querySelector(one))[name]);
        const both = [of(selector, 'color'), of(behind, 'backgroundColor')].sort((a, b) => b - a);
        return (both[0] + 0.05) / (both[1] + 0.05);
    }";
    for scheme in ["light", "dark"] {
        browser.prefer(scheme);
        for (selector, behind) in
            [(".a-c226", "#log"), (".a-c208", "#log"), (".a-c21", "#log"), (".a-inverse", ".a-inverse")]
        {
            let found =
                browser.run(&format!("({contrast})('#log {selector}', '{behind}')")).as_f64().unwrap();
            assert!(found >= 4.5, "{selector} in {scheme}: {found}");
        }
        let colours =
            "['.a-c226', '.a-c21'].map((one) => getComputedStyle(document.querySelector(one)).color)";
        let colours = browser.run(colours);
        assert_ne!(colours[0], colours[1], "{colours}");
    }
    assert_eq!(browser.complaints, [""; 0]);
}

#[test]
fn a_text_is_found_in_a_long_output_and_what_was_cut_out_is_marked() {
    let (server, mut browser) = (Server::start(), Browser::start());
    let id = run(&server, "true");
    while server.get(&format!("/api/runs/{id}")).expect(200)["run"]["completed_at"] == Value::Null {
        server.get(&format!("/api/runs/{id}/log?wait=1"));
    }
    let folder = server.folder().join("state/runs").join(&id);
    let half: Vec<String> = (0..20_000).map(line).collect();
    let (needle, hole) = ("The Needle <b>\n", vec![b'x'; 5000]);
    let before = [half.concat().as_bytes(), needle.as_bytes(), half.concat().as_bytes()].concat();
    let all = [&before[..], &hole, needle.as_bytes(), half.concat().as_bytes()].concat();
    fs::write(folder.join("output.log"), &all).unwrap();
    let cut = json!({ "cut_from": before.len(), "cut_to": before.len() + hole.len() });
    fs::write(folder.join("output.cut"), cut.to_string()).unwrap();
    browser.open(&at(&server, &format!("/runs/{id}")));
    browser.wait("!document.querySelector('#log-find').hidden && document.querySelector('#log').textContent.includes('0000019999')");
    browser.run("document.querySelector('#log-text').value = 'needle <b>'");
    let seen = "[...CSS.highlights.get('found') ?? []].map((one) => one.toString()).join()";
    browser.run("document.querySelector('#log-find').requestSubmit()");
    browser.wait(&format!("{seen} === 'Needle <b>'"));
    let position = |browser: &mut Browser| {
        browser
            .run("document.querySelector('#log-place').textContent.split('–')[0]")
            .as_str()
            .unwrap()
            .to_owned()
    };
    let first = position(&mut browser);
    browser.press(
        "#log-next",
        &format!("document.querySelector('#log-place').textContent.split('–')[0] !== '{first}'"),
    );
    browser.wait(&format!("{seen} === 'Needle <b>'"));
    browser.wait("document.querySelector('#log .cut')?.textContent.startsWith('5,000 bytes were cut out')");
    browser.press("#log-next", "document.querySelector('#log-place').textContent === 'No further match'");
    let downloaded = server.get(&format!("/api/runs/{id}/output"));
    assert_eq!(
        downloaded.header("content-disposition").unwrap(),
        format!("attachment; filename=\"{id}.log\"")
    );
    let length =
        format!("fetch('/api/runs/{id}/output').then((one) => one.text()).then((text) => text.length)");
    assert_eq!(browser.promise(&length), all.len() - hole.len());
    assert_eq!(browser.complaints, [""; 0]);
}

#[test]
fn every_attempt_has_its_row_and_its_output() {
    let (server, mut browser) = (Server::start(), Browser::start());
    let script =
        "n=$(cat n 2>/dev/null || echo 0); n=$((n+1)); echo $n > n; echo this is attempt $n; [ $n -eq 3 ]";
    let body = json!({ "id": "RQ-1", "title": "again", "command": ["sh", "-c", script], "retries": 3, "backoff": 0.01 });
    let run = server.post("/api/requests", &body).expect(201)["run_id"].as_str().unwrap().to_owned();
    server.post("/api/requests/RQ-1/run", &json!({})).expect(202);
    browser.open(&at(&server, &format!("/runs/{run}")));
    browser.until_live();
    browser.wait("document.querySelector('#run-head').innerText.includes('succeeded')");
    browser.wait("document.querySelectorAll('#run-attempts tbody tr').length === 3");
    browser.wait("document.querySelector('#log').textContent === 'this is attempt 3\\n'");
    browser.press("#attempt-1 a", "location.search === '?attempt=1'");
    browser.wait("document.querySelector('#log').textContent === 'this is attempt 1\\n'");
    let command = browser.run("document.querySelector('#copy').dataset.copy");
    assert!(command.as_str().unwrap().starts_with("sh -c 'n=$(cat n"), "{command}");
    assert_eq!(browser.complaints, [""; 0]);
}
