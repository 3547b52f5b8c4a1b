//! One browser with one tab, driven by its debugging protocol over a pipe.

use std::io::{BufRead, BufReader, Write};
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};

use serde_json::{Value, json};
use tempfile::TempDir;

/// A browser; killed when dropped.
pub struct Browser {
    child: Child,
    commands: ChildStdin,
    answers: BufReader<ChildStdout>,
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
        let script = r#"exec chromium --headless --no-sandbox --disable-gpu --no-first-run --disable-dev-shm-usage \
            --remote-debugging-pipe --user-data-dir="$0" about:blank 3<&0 4>&1 </dev/null >/dev/null"#;
        let mut command = Command::new("sh");
        command.args(["-c", script]).arg(profile.path()).env("HOME", profile.path());
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::null());
        let mut child = command.spawn().unwrap();
        let (commands, answers) = (child.stdin.take().unwrap(), BufReader::new(child.stdout.take().unwrap()));
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

    /// Waits until an expression is true; every change of the page is a reason to look again.
    pub fn wait(&mut self, expression: &str) {
        let script = format!(
            "new Promise((resolve, reject) => {{
                const look = () => ({expression}) && (watch.disconnect(), clearInterval(net), resolve(true));
                const watch = new MutationObserver(look);
                watch.observe(document, {{ subtree: true, childList: true, attributes: true, characterData: true }});
                const net = setInterval(look, 200);
                setTimeout(() => reject(new Error('waited in vain for a minute')), 60000);
                look();
            }})"
        );
        // A page that is left takes the promise along; then it is asked of the next one.
        while self.run(&script) != json!(true) {}
    }

    /// What an expression is; a promise is waited for. Null when the page was left meanwhile.
    pub fn run(&mut self, expression: &str) -> Value {
        let call = json!({ "expression": expression, "awaitPromise": true, "returnByValue": true });
        let answer = self.call("Runtime.evaluate", &call);
        assert!(answer["exceptionDetails"].is_null(), "{expression}: {answer}");
        answer["result"]["value"].clone()
    }

    /// Clicks on what a selector finds, as a person does who sees it.
    pub fn click(&mut self, selector: &str) {
        self.wait(&format!("document.querySelector({selector:?}) !== null"));
        self.run(&format!("document.querySelector({selector:?}).click()"));
    }

    /// Makes the window as large as that of another device.
    pub fn resize(&mut self, width: u32, height: u32) {
        let size = json!({ "width": width, "height": height, "deviceScaleFactor": 1, "mobile": true });
        self.call("Emulation.setDeviceMetricsOverride", &size);
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
            let mut message = Vec::new();
            let read = self.answers.read_until(0, &mut message).unwrap();
            assert!(read > 0, "these tests need chromium: apt-get install chromium");
            let message: Value = serde_json::from_slice(&message[..message.len() - 1]).unwrap();
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
