//! A headless Chromium, told what to do by the DevTools protocol over a pipe: each message is JSON and ends with a zero byte. It
//! notes whatever the page complains of, so that no test passes over it.

use std::fs::{self, File};
use std::process::Stdio;
use std::sync::LazyLock;
use std::time::Duration;

use base64::prelude::*;
use sawmill::env::Env;
use serde_json::{Value, json};
use tempfile::TempDir;
use tokio::io::{AsyncBufReadExt, AsyncWriteExt, BufReader};
use tokio::process::{Child, ChildStdin, ChildStdout, Command};

use crate::support::{PATIENCE, Place};

/// It reads the protocol from the third file and writes to the fourth.
const PIPES: &str = "exec \"$@\" 3<&0 4>&1 0</dev/null 1>&2";

/// It sees no page but ours, so that it needs no sandbox, which root cannot have.
const OPTIONS: &[&str] = &[
    "--headless",
    "--no-sandbox",
    "--disable-gpu",
    "--disable-dev-shm-usage",
    "--disable-extensions",
    "--disable-background-networking",
    // What is typed before the first picture is painted counts, which on a busy machine comes late; and what nobody looks at does not wait.
    "--allow-pre-commit-input",
    "--disable-renderer-backgrounding",
    "--disable-backgrounding-occluded-windows",
    "--no-first-run",
    "--hide-scrollbars",
    "--force-color-profile=srgb",
    "--lang=en",
    "--remote-debugging-pipe",
];

/// What a person sees and can point at, in the page's own language.
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
    // It is ended before its folder is removed.
    _process: Child,
    profile: TempDir,
}

impl Browser {
    /// Opens the page of this server. Without a browser the test is skipped, visibly.
    pub(crate) async fn of(test: &str, place: &Place) -> Option<Self> {
        // One of the tests gets it; the others wait.
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
            env: place.env.clone(),
            session: None,
            calls: 0,
            complaints: Vec::new(),
            root: format!("http://{}/", place.address),
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
        let answer = env.within(PATIENCE, self.answer()).await;
        let mut answer =
            answer.unwrap_or_else(|| panic!("test timed out: an answer to {method}: {}", self.said()));
        assert!(answer["error"].is_null(), "{method}: {answer}");
        answer["result"].take()
    }

    /// The answer to the latest call, and on the way to it what else is told.
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

    /// What the browser itself printed.
    fn said(&self) -> String {
        fs::read_to_string(self.profile.path().join("said")).unwrap_or_default()
    }

    /// Loads a page of the server anew.
    pub(crate) async fn visit(&mut self, path: &str) {
        let url = format!("{}{path}", self.root);
        // Another part of the same page would not be loaded.
        self.call("Page.navigate", json!({ "url": "about:blank" })).await;
        self.call("Page.navigate", json!({ "url": url })).await;
        self.until("document.readyState === 'complete' && !shown.startsWith('Loading')").await;
    }

    /// The value of an expression in the page.
    pub(crate) async fn value(&mut self, expression: &str) -> Value {
        let whole = format!("(() => {{ {HELPERS} return {expression}; }})()");
        let asked = json!({ "expression": whole, "returnByValue": true, "awaitPromise": true });
        let mut answer = self.call("Runtime.evaluate", asked).await;
        assert!(answer["exceptionDetails"].is_null(), "{expression}: {answer}");
        answer["result"]["value"].take()
    }

    /// Waits until the expression holds.
    pub(crate) async fn until(&mut self, expression: &str) {
        let (env, began) = (self.env.clone(), self.env.now());
        while self.value(&format!("Boolean({expression})")).await != true {
            if env.now().since(began) > PATIENCE {
                let shown = self.value("document.body.innerText").await;
                panic!(
                    "test timed out: {expression}\nthe page: {shown}\nit complains: {:?}",
                    self.complaints
                );
            }
            env.sleep(Duration::from_millis(50)).await;
        }
    }

    /// Waits until the page shows this.
    pub(crate) async fn until_shown(&mut self, text: &str) {
        self.until(&format!("document.body.innerText.includes({})", json!(text))).await;
    }

    /// Presses the mouse button on what has this text.
    pub(crate) async fn click(&mut self, selector: &str, text: &str) {
        let wanted = format!("find({}, {})", json!(selector), json!(text));
        self.until(&wanted).await;
        let place = format!(
            "(() => {{ const node = {wanted}; node.scrollIntoView({{ block: 'center' }});
              const at = node.getBoundingClientRect(); return [at.x + at.width / 2, at.y + at.height / 2]; }})()"
        );
        let at = self.value(&place).await;
        for kind in ["mousePressed", "mouseReleased"] {
            let event = json!({ "type": kind, "x": at[0], "y": at[1], "button": "left", "clickCount": 1 });
            self.call("Input.dispatchMouseEvent", event).await;
        }
    }

    /// Presses a key and lets it go.
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

    /// Goes on with the key until what has this label has the focus, which has to be seen.
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

    /// Wants `light` or `dark`, and no colour in between.
    pub(crate) async fn prefer(&mut self, scheme: &str) {
        let features = [("prefers-color-scheme", scheme), ("prefers-reduced-motion", "reduce")];
        let features = features.map(|(name, value)| json!({ "name": name, "value": value }));
        let wanted = json!({ "features": features });
        self.call("Emulation.setEmulatedMedia", wanted).await;
    }

    /// What is seen, as a PNG.
    pub(crate) async fn picture(&mut self) -> Vec<u8> {
        let picture = self.call("Page.captureScreenshot", json!({ "format": "png" })).await;
        BASE64_STANDARD.decode(picture["data"].as_str().unwrap()).unwrap()
    }

    /// What the page complained of since this was asked before: errors, warnings, and what its policy forbade.
    pub(crate) async fn complaints(&mut self) -> Vec<String> {
        // What was said before the answer to this was said.
        self.value("0").await;
        std::mem::take(&mut self.complaints)
    }

    /// All went well.
    pub(crate) async fn is_content(&mut self) {
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
