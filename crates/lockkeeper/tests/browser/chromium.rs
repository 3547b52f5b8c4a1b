//! A headless Chromium with one tab, driven by the DevTools protocol over a pipe.

use std::io::{BufRead, BufReader, Write};
use std::process::{Child, ChildStdin, Command, Stdio};
use std::sync::mpsc::{Receiver, channel};
use std::thread;
use std::time::{Duration, Instant};

use serde_json::{Value, json};
use tempfile::TempDir;

/// A browser that says nothing for so long will not say anything any more.
const PATIENCE: Duration = Duration::from_secs(120);
/// How often a page is looked at that is waited for.
const LOOK_EVERY: Duration = Duration::from_millis(50);

/// A browser; killed when dropped.
pub struct Browser {
    child: Child,
    commands: ChildStdin,
    answers: Receiver<Value>,
    session: Value,
    last: u64,
    /// What the browser complained about.
    pub complaints: Vec<String>,
    _profile: TempDir,
}

impl Browser {
    pub fn start() -> Self {
        let profile = tempfile::tempdir().unwrap();
        // The protocol is spoken on descriptors 3 and 4.
        // The browser makes no requests of its own, and treats the tab as visible.
        let script = r#"exec chromium --headless --no-sandbox --disable-gpu --no-first-run --disable-dev-shm-usage \
            --disable-background-networking --disable-component-update --disable-sync --disable-quic \
            --disable-background-timer-throttling --disable-renderer-backgrounding \
            --disable-backgrounding-occluded-windows --remote-debugging-pipe --user-data-dir="$0" about:blank 3<&0 4>&1 </dev/null >/dev/null"#;
        let mut command = Command::new("sh");
        command.args(["-c", script]).arg(profile.path()).env("HOME", profile.path());
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::null());
        let mut child = command.spawn().unwrap();
        let commands = child.stdin.take().unwrap();
        let mut pipe = BufReader::new(child.stdout.take().unwrap());
        let (told, answers) = channel();
        thread::spawn(move || {
            let mut message = Vec::new();
            while pipe.read_until(0, &mut message).is_ok_and(|read| read > 0) {
                let Ok(value) = serde_json::from_slice(&message[..message.len() - 1]) else { return };
                if told.send(value).is_err() {
                    return;
                }
                message.clear();
            }
        });
        let mut browser = Self {
            child,
            commands,
            answers,
            session: Value::Null,
            last: 0,
            complaints: Vec::new(),
            _profile: profile,
        };
        let tab = browser.call("Target.createTarget", &json!({ "url": "about:blank" }));
        let attached =
            browser.call("Target.attachToTarget", &json!({ "targetId": tab["targetId"], "flatten": true }));
        browser.session = attached["sessionId"].clone();
        for domain in ["Page.enable", "Runtime.enable", "Log.enable"] {
            browser.call(domain, &json!({}));
        }
        browser
    }

    /// Opens an address and waits until it is loaded.
    pub fn open(&mut self, address: &str) {
        self.call("Page.navigate", &json!({ "url": address }));
        self.wait("document.readyState === 'complete' && location.href !== 'about:blank'");
    }

    /// Waits until the page's module listens to events.
    pub fn until_live(&mut self) {
        self.wait("document.querySelector('#live')?.dataset.liveState === 'on'");
    }

    /// Waits until an expression is true. It is asked of whatever page is there: one that is left answers nothing.
    pub fn wait(&mut self, expression: &str) {
        let until = Instant::now() + PATIENCE;
        let script = format!("Boolean({expression})");
        while self.ask(&script)["result"]["value"] != json!(true) {
            assert!(Instant::now() < until, "waited in vain for {expression}: {}", self.state());
            thread::sleep(LOOK_EVERY);
        }
    }

    /// What an expression is. Null when the page was left meanwhile.
    pub fn run(&mut self, expression: &str) -> Value {
        let answer = self.ask(expression);
        assert!(answer["exceptionDetails"].is_null(), "{expression}: {answer}");
        answer["result"]["value"].clone()
    }

    /// What a promise comes to.
    pub fn promise(&mut self, expression: &str) -> Value {
        let asked = json!({ "expression": expression, "returnByValue": true, "awaitPromise": true });
        let answer = self.call("Runtime.evaluate", &asked);
        assert!(answer["exceptionDetails"].is_null(), "{expression}: {answer}");
        answer["result"]["value"].clone()
    }

    fn ask(&mut self, expression: &str) -> Value {
        self.call("Runtime.evaluate", &json!({ "expression": expression, "returnByValue": true }))
    }

    /// Clicks on what a selector finds until an expression is true, as a person does who sees that nothing happened:
    /// the page may have been drawn anew in that moment.
    pub fn press(&mut self, selector: &str, expression: &str) {
        let until = Instant::now() + PATIENCE;
        let click = format!("document.querySelector({selector:?})?.click()");
        let done = format!("Boolean({expression})");
        while self.ask(&done)["result"]["value"] != json!(true) {
            assert!(Instant::now() < until, "pressed {selector} in vain for {expression}: {}", self.state());
            self.ask(&click);
            for _ in 0..20 {
                if self.ask(&done)["result"]["value"] == json!(true) {
                    return;
                }
                thread::sleep(LOOK_EVERY);
            }
        }
    }

    /// Makes the window as large as that of another device.
    pub fn resize(&mut self, width: u32, height: u32) {
        let size = json!({ "width": width, "height": height, "deviceScaleFactor": 1, "mobile": true });
        self.call("Emulation.setDeviceMetricsOverride", &size);
    }

    /// Prefers `light` or `dark`, as the settings of a system do.
    pub fn prefer(&mut self, scheme: &str) {
        let features = json!([{ "name": "prefers-color-scheme", "value": scheme }]);
        self.call("Emulation.setEmulatedMedia", &json!({ "features": features }));
    }

    /// Where the browser is and what it shows, for a test that fails.
    fn state(&mut self) -> Value {
        let state = "JSON.stringify([location.href, document.readyState, \
            document.querySelector('#live')?.dataset.liveState, document.body?.innerText.slice(0, 400)])";
        json!([self.ask(state), self.complaints])
    }

    /// All text that is seen.
    pub fn text(&mut self) -> String {
        self.run("document.body.innerText").as_str().unwrap_or_default().to_owned()
    }

    fn call(&mut self, method: &str, params: &Value) -> Value {
        self.last += 1;
        let id = self.last;
        let mut command = json!({ "id": id, "method": method, "params": params });
        if self.session.is_string() {
            command["sessionId"] = self.session.clone();
        }
        let started = self.commands.write_all(format!("{command}\0").as_bytes());
        started.expect("these tests need chromium: apt-get install chromium");
        loop {
            let message = self.answers.recv_timeout(PATIENCE);
            let message = message.expect("these tests need chromium: apt-get install chromium");
            self.note(&message);
            if message["id"] == id {
                return if message["error"].is_null() { message["result"].clone() } else { Value::Null };
            }
        }
    }

    /// Keeps what the browser complains about by itself: scripts that fail, and what the policy forbids.
    fn note(&mut self, message: &Value) {
        let complaint = match message["method"].as_str() {
            Some("Runtime.exceptionThrown") => &message["params"]["exceptionDetails"],
            Some("Log.entryAdded") if message["params"]["entry"]["source"] == "security" => {
                &message["params"]["entry"]["text"]
            }
            Some(_) | None => return,
        };
        self.complaints.push(complaint.to_string());
    }
}

impl Drop for Browser {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
