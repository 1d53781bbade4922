//! Drives a headless Chromium by the DevTools protocol over a pipe. Each message is JSON and ends with a zero
//! byte. Complaints of the page (errors, warnings, policy violations) are collected, so that tests can check
//! for them.

use std::fs::{self, File};
use std::process::Stdio;
use std::sync::LazyLock;
use std::time::Duration;

use base64::prelude::*;
use sawmill::engine::runtime::Env;
use serde_json::{Value, json};
use tempfile::TempDir;
use tokio::io::{AsyncBufReadExt, AsyncWriteExt, BufReader};
use tokio::process::{Child, ChildStdin, ChildStdout, Command};

use crate::support::{TIMEOUT, TestServer};

/// Chromium reads the protocol from file descriptor 3 and writes to 4.
const PIPES: &str = "exec \"$@\" 3<&0 4>&1 0</dev/null 1>&2";

/// The browser only loads our own page, so it needs no sandbox. Root cannot have one.
const OPTIONS: &[&str] = &[
    "--headless",
    "--no-sandbox",
    "--disable-gpu",
    "--disable-dev-shm-usage",
    "--disable-extensions",
    "--disable-background-networking",
    // Input before the first frame must count, because that frame comes late on a busy machine. Background
    // pages must not be slowed down.
    "--allow-pre-commit-input",
    "--disable-renderer-backgrounding",
    "--disable-backgrounding-occluded-windows",
    "--no-first-run",
    "--hide-scrollbars",
    "--force-color-profile=srgb",
    "--lang=en",
    "--remote-debugging-pipe",
];

/// Page-side helpers that find elements by what a user sees.
const HELPERS: &str = "
    const label = (node) => node.getAttribute('aria-label') ?? node.textContent.trim();
    const find = (selector, text) => [...document.querySelectorAll(selector)]
        .find((node) => node.checkVisibility() && label(node).includes(text));
    const cell = (topic, name) => [...document.querySelectorAll('tbody tr')]
        .find((row) => row.firstChild.textContent === topic)?.querySelector(`td[data-name='${name}']`)?.textContent;
    const shown = document.getElementById('main')?.innerText ?? '';
";

pub(crate) struct Browser {
    to: ChildStdin,
    from: BufReader<ChildStdout>,
    env: Env,
    session: Option<String>,
    calls: u64,
    complaints: Vec<String>,
    root: String,
    // Dropped before `profile`, so that the process ends before its folder is removed.
    _process: Child,
    profile: TempDir,
}

impl Browser {
    /// Opens the page of this server. Without a browser the test is skipped, with a message.
    pub(crate) async fn of(test: &str, server: &TestServer) -> Option<Self> {
        // The first test fetches the browser; the others wait.
        static PROGRAM: LazyLock<Result<std::path::PathBuf, String>> =
            LazyLock::new(sawmill_servers::chromium);
        let program = match &*PROGRAM {
            Ok(program) => program,
            Err(why) => {
                assert!(std::env::var("CI").as_deref() != Ok("true"), "{why}");
                sawmill_conformance::skipped(test, why);
                return None;
            }
        };
        let profile = tempfile::tempdir().unwrap();
        let mut process = Command::new("sh")
            .args(["-c", PIPES, "sh"])
            .arg(program)
            .args(OPTIONS)
            .arg(format!("--user-data-dir={}", profile.path().display()))
            .arg("about:blank")
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(File::create(profile.path().join("said")).unwrap())
            .kill_on_drop(true)
            .spawn()
            .unwrap();
        let (to, from) = (process.stdin.take().unwrap(), BufReader::new(process.stdout.take().unwrap()));
        let mut browser = Self {
            to,
            from,
            env: server.env.clone(),
            session: None,
            calls: 0,
            complaints: Vec::new(),
            root: format!("http://{}/", server.address),
            _process: process,
            profile,
        };
        browser.start().await;
        Some(browser)
    }

    async fn start(&mut self) {
        let page = self.call("Target.createTarget", json!({ "url": "about:blank" })).await;
        let page = json!({ "targetId": page["targetId"], "flatten": true });
        let session = self.call("Target.attachToTarget", page).await;
        self.session = Some(session["sessionId"].as_str().unwrap().to_owned());
        for domain in ["Page", "Runtime", "Log"] {
            self.call(&format!("{domain}.enable"), json!({})).await;
        }
        self.resize(1200, 800).await;
        self.visit("").await;
    }

    async fn call(&mut self, method: &str, params: Value) -> Value {
        self.calls += 1;
        let mut message = json!({ "id": self.calls, "method": method, "params": params });
        if let Some(session) = &self.session {
            message["sessionId"] = json!(session);
        }
        let mut bytes = message.to_string().into_bytes();
        bytes.push(0);
        self.to.write_all(&bytes).await.unwrap_or_else(|error| panic!("{error}: {}", self.said()));
        let env = self.env.clone();
        let answer = env.within(TIMEOUT, self.answer()).await;
        let mut answer =
            answer.unwrap_or_else(|| panic!("test timed out: an answer to {method}: {}", self.said()));
        assert!(answer["error"].is_null(), "{method}: {answer}");
        answer["result"].take()
    }

    /// Returns the answer to the latest call, and collects complaints that arrive before it.
    async fn answer(&mut self) -> Value {
        loop {
            let mut bytes = Vec::new();
            self.from.read_until(0, &mut bytes).await.unwrap();
            assert_eq!(bytes.pop(), Some(0), "it has ended: {}", self.said());
            let message: Value = serde_json::from_slice(&bytes).unwrap();
            if message["id"] == self.calls {
                return message;
            }
            self.complaints.extend(complaint(&message));
        }
    }

    /// The output of the browser process.
    fn said(&self) -> String {
        fs::read_to_string(self.profile.path().join("said")).unwrap_or_default()
    }

    /// Reloads the page at this path.
    pub(crate) async fn visit(&mut self, path: &str) {
        let url = format!("{}{path}", self.root);
        // Navigating to a fragment of the current page would not reload it.
        self.call("Page.navigate", json!({ "url": "about:blank" })).await;
        self.call("Page.navigate", json!({ "url": url })).await;
        self.until("document.readyState === 'complete' && !shown.startsWith('Loading')").await;
    }

    /// Returns the value of an expression in the page.
    pub(crate) async fn value(&mut self, expression: &str) -> Value {
        let whole = format!("(() => {{ {HELPERS} return {expression}; }})()");
        let asked = json!({ "expression": whole, "returnByValue": true, "awaitPromise": true });
        let mut answer = self.call("Runtime.evaluate", asked).await;
        assert!(answer["exceptionDetails"].is_null(), "{expression}: {answer}");
        answer["result"]["value"].take()
    }

    /// Waits until the expression is true.
    pub(crate) async fn until(&mut self, expression: &str) {
        let (env, began) = (self.env.clone(), self.env.now());
        while self.value(&format!("Boolean({expression})")).await != true {
            if env.now().since(began) > TIMEOUT {
                let shown = self.value("document.body.innerText").await;
                panic!(
                    "test timed out: {expression}\nthe page: {shown}\nit complains: {:?}",
                    self.complaints
                );
            }
            env.sleep(Duration::from_millis(50)).await;
        }
    }

    /// Waits until the page shows this text.
    pub(crate) async fn until_shown(&mut self, text: &str) {
        self.until(&format!("document.body.innerText.includes({})", json!(text))).await;
    }

    /// Clicks the element with this text.
    pub(crate) async fn click(&mut self, selector: &str, text: &str) {
        let wanted = format!("find({}, {})", json!(selector), json!(text));
        self.until(&wanted).await;
        let position = format!(
            "(() => {{ const node = {wanted}; node.scrollIntoView({{ block: 'center' }});
              const at = node.getBoundingClientRect(); return [at.x + at.width / 2, at.y + at.height / 2]; }})()"
        );
        let at = self.value(&position).await;
        for kind in ["mousePressed", "mouseReleased"] {
            let event = json!({ "type": kind, "x": at[0], "y": at[1], "button": "left", "clickCount": 1 });
            self.call("Input.dispatchMouseEvent", event).await;
        }
    }

    /// Presses and releases a key.
    pub(crate) async fn press(&mut self, key: &str) {
        let (key, code, number, text) = match key {
            "Tab" => (key, "Tab", 9, ""),
            "Enter" => (key, "Enter", 13, "\r"),
            "Escape" => (key, "Escape", 27, ""),
            "Space" => (" ", "Space", 32, " "),
            letter => (letter, "", 0, letter),
        };
        for kind in ["keyDown", "keyUp"] {
            let mut event =
                json!({ "type": kind, "key": key, "code": code, "windowsVirtualKeyCode": number });
            if kind == "keyDown" {
                event["text"] = json!(text);
            }
            self.call("Input.dispatchKeyEvent", event).await;
        }
    }

    pub(crate) async fn write(&mut self, text: &str) {
        for letter in text.chars() {
            self.press(letter.encode_utf8(&mut [0; 4])).await;
        }
    }

    /// Presses Tab until the element with this label has the focus, and checks that the focus is visible.
    pub(crate) async fn tab_to(&mut self, wanted: &str) {
        let mut passed = Vec::new();
        for _ in 0..60 {
            self.press("Tab").await;
            let there = self
                .value(
                    "[label(document.activeElement).slice(0, 80), getComputedStyle(document.activeElement).outlineStyle]",
                )
                .await;
            if there[0].as_str().unwrap().starts_with(wanted) {
                assert_ne!(there[1], "none", "nobody sees that {wanted} has the focus");
                return;
            }
            passed.push(there[0].clone());
        }
        panic!("no way to {wanted} by the keyboard: {passed:?}");
    }

    pub(crate) async fn resize(&mut self, width: u32, height: u32) {
        let size = json!({ "width": width, "height": height, "deviceScaleFactor": 1, "mobile": width < 600 });
        self.call("Emulation.setDeviceMetricsOverride", size).await;
    }

    /// Sets the preferred colour scheme, `light` or `dark`, and turns off transitions.
    pub(crate) async fn prefer(&mut self, scheme: &str) {
        let features = [("prefers-color-scheme", scheme), ("prefers-reduced-motion", "reduce")];
        let features = features.map(|(name, value)| json!({ "name": name, "value": value }));
        let wanted = json!({ "features": features });
        self.call("Emulation.setEmulatedMedia", wanted).await;
    }

    /// Takes a screenshot as a PNG.
    pub(crate) async fn picture(&mut self) -> Vec<u8> {
        let picture = self.call("Page.captureScreenshot", json!({ "format": "png" })).await;
        BASE64_STANDARD.decode(picture["data"].as_str().unwrap()).unwrap()
    }

    /// Takes the complaints since the last call: errors, warnings, and policy violations.
    pub(crate) async fn complaints(&mut self) -> Vec<String> {
        // Complaints are sent in order, so all earlier ones arrive before the answer to this call.
        self.value("0").await;
        std::mem::take(&mut self.complaints)
    }

    /// Asserts that the page had no complaints.
    pub(crate) async fn assert_no_complaints(&mut self) {
        assert_eq!(self.complaints().await, Vec::<String>::new());
    }
}

fn complaint(message: &Value) -> Option<String> {
    let params = &message["params"];
    let is_bad = |level: &Value| matches!(level.as_str(), Some("error" | "warning" | "assert"));
    match message["method"].as_str()? {
        "Runtime.exceptionThrown" => Some(params["exceptionDetails"].to_string()),
        "Runtime.consoleAPICalled" if is_bad(&params["type"]) => Some(params["args"].to_string()),
        "Log.entryAdded" if is_bad(&params["entry"]["level"]) => Some(params["entry"].to_string()),
        _ => None,
    }
}
