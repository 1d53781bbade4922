//! Checks the page in light and dark, wide and on a phone: nothing is cut off, and text has enough contrast.
//! Set `SAWMILL_PICTURES` to a folder to save the pictures there; `cargo xtask pictures` makes those of the
//! README that way.

use std::path::PathBuf;
use std::time::Duration;

use sawmill::engine::runtime::Env;
use sawmill::{Context, Json, Outcome, Push, Worker};
use serde_json::{Value, json};

use super::chromium::Browser;
use super::make_dead;
use crate::support::{TestServer, until};

/// The maximum size of a picture, in bytes.
const MOST_BYTES: usize = 150 << 10;

/// The pictures that are saved.
const KEPT: &[&str] =
    &["overview-wide-light", "overview-wide-dark", "dead-wide-light", "overview-phone-light"];

/// Lists the texts whose contrast is below 4.5, as defined by WCAG 2.
const HARD_TO_READ: &str = "(() => {
    const part = (value) => value <= 10 ? value / 255 / 12.92 : ((value / 255 + 0.055) / 1.055) ** 2.4;
    const parts = (colour) => colour.match(/[\\d.]+/g).map(Number);
    const light = (colour) => { const [r, g, b] = parts(colour).map(part); return 0.2126 * r + 0.7152 * g + 0.0722 * b; };
    const behind = (node) => { for (; node; node = node.parentElement) {
        const colour = getComputedStyle(node).backgroundColor;
        if ((parts(colour)[3] ?? 1) > 0) return colour;
    } return getComputedStyle(document.body).backgroundColor; };
    const texts = [...document.querySelectorAll('body *')].filter((node) => node.checkVisibility() &&
        [...node.childNodes].some((child) => child.nodeType === Node.TEXT_NODE && child.textContent.trim()));
    const far = (node) => {
        const pair = [light(getComputedStyle(node).color), light(behind(node))].sort((a, b) => b - a);
        return (pair[0] + 0.05) / (pair[1] + 0.05);
    };
    return texts.filter((node) => far(node) < 4.5).map((node) => `${node.tagName} ${node.textContent.slice(0, 40)} ${far(node)}`);
})()";

/// Lists the elements that are wider than the window.
const CUT_OFF: &str =
    "document.documentElement.scrollWidth <= innerWidth ? [] : [...document.querySelectorAll('body *')]
    .filter((node) => node.getBoundingClientRect().right > innerWidth + 1)
    .map((node) => `${node.tagName} ${node.textContent.slice(0, 40)}`)";

const FAILURES: &[&str] =
    &["the card was refused: insufficient funds", "the shop is closed on Sundays", "no such article: 4711"];

/// A server with some data and activity.
struct DemoServer {
    server: TestServer,
    workers: Vec<Worker>,
}

impl DemoServer {
    async fn new() -> Self {
        let server = TestServer::open().await;
        for topic in ["emails", "orders", "reports", "thumbnails"] {
            server.mill.create_topic(topic).await.unwrap();
        }
        for (nth, reason) in FAILURES.iter().enumerate() {
            let order =
                format!(r#"{{"order": {}, "articles": ["plank", "beam"], "card": "…4242"}}"#, 4711 + nth);
            let push = Push::new(order).key(format!("customer-{nth}")).header("source", "shop");
            server.mill.push("orders", push).await.unwrap();
            make_dead(&server, "orders", reason).await;
        }
        server.mill.push_many("thumbnails", (0..18_250).map(|n| n.to_string())).await.unwrap();
        server.mill.push_many("reports", ["daily", "weekly"]).await.unwrap();
        server.mill.admin().pause("reports", "default").await.unwrap();
        let mut workers = Vec::new();
        for (topic, group) in [("emails", "default"), ("orders", "default"), ("emails", "audit")] {
            let worker = server.mill.worker(topic).group(group).name(format!("{group}-{topic}"));
            let worker =
                worker.concurrency(4).start(|context: Context, Json(pause): Json<Value>| async move {
                    context.note("half of it is done");
                    let millis = pause.as_u64().unwrap_or(0);
                    let is_cut =
                        Env::system().within(Duration::from_millis(millis), context.cancelled()).await;
                    if is_cut.is_some() { Outcome::retry("the worker leaves") } else { Outcome::Done }
                });
            workers.push(worker.await.unwrap());
        }
        server.mill.push("orders", "3600000").await.unwrap();
        Self { server, workers }
    }

    /// Pushes messages for a while, in waves.
    async fn push_for(&self, rounds: u32) {
        for round in 0..rounds {
            let wave = (f64::from(round) / 7.0).sin() + 1.3;
            let count = (40.0 * wave) as usize;
            self.server.mill.push_many("emails", vec!["1"; count]).await.unwrap();
            self.server.env.sleep(Duration::from_millis(250)).await;
        }
    }
}

async fn assert_readable(page: &mut Browser, what: &str) {
    for fault in [HARD_TO_READ, CUT_OFF] {
        assert_eq!(page.value(fault).await, json!([]), "{what}");
    }
}

#[tokio::test]
async fn the_page_is_easy_to_read_in_light_and_dark_wide_and_on_a_phone() {
    let demo = DemoServer::new().await;
    let Some(mut page) = Browser::of("pictures", &demo.server).await else { return };
    let folder = std::env::var_os("SAWMILL_PICTURES").map(PathBuf::from);
    // A picture for the README needs a history.
    demo.push_for(if folder.is_some() { 200 } else { 12 }).await;
    let mut letters =
        demo.server.mill.admin().dead_letters("orders", "default").await.unwrap().list(1).await.unwrap();
    let letter = format!("dead/orders/default/{}", letters.remove(0).id());
    for (size, width, height) in [("wide", 1100, 480), ("phone", 360, 720)] {
        page.resize(width, height).await;
        for scheme in ["light", "dark"] {
            page.prefer(scheme).await;
            let back = page.value("getComputedStyle(document.body).backgroundColor.match(/[0-9]+/g)").await;
            let is_light = back
                .as_array()
                .unwrap()
                .iter()
                .all(|part| part.as_str().unwrap().parse::<u8>().unwrap() > 127);
            assert_eq!(is_light, scheme == "light", "{back}");
            for (name, part, shows) in [
                ("overview", "", "thumbnails"),
                ("topic", "topic/orders", "Replay"),
                ("workers", "workers", "half of it"),
                ("dead", "dead/orders/default", "4711"),
                ("letter", letter.as_str(), "beam"),
            ] {
                let what = format!("{name}-{size}-{scheme}");
                page.value(&format!(
                    "(location.hash = '#/{part}', scrollTo(0, 0), document.activeElement.blur())"
                ))
                .await;
                page.until(&format!("document.body.innerText.includes({})", json!(shows))).await;
                assert_readable(&mut page, &what).await;
                if let Some(folder) = folder.as_ref().filter(|_| KEPT.contains(&what.as_str())) {
                    demo.push_for(8).await;
                    let picture = page.picture().await;
                    assert!(picture.len() < MOST_BYTES, "{what}: {} bytes", picture.len());
                    std::fs::write(folder.join(format!("page-{what}.png")), picture).unwrap();
                }
            }
        }
    }
    page.assert_no_complaints().await;
    for worker in &demo.workers {
        worker.abort().await;
    }
}

#[tokio::test]
async fn long_names_and_texts_do_not_widen_the_page() {
    let server = TestServer::open().await;
    let long = "a".repeat(60);
    server.mill.create_topic(&long).await.unwrap();
    let push = || Push::new("x".repeat(5000)).key("k".repeat(500)).header("long", "h".repeat(900));
    server.mill.push(&long, push()).await.unwrap();
    make_dead(
        &server,
        &long,
        "an_error_without_any_space_in_it_an_error_without_any_space_in_it_an_error_without",
    )
    .await;
    server.mill.push(&long, push()).await.unwrap();
    let Some(mut page) = Browser::of("long names", &server).await else { return };
    page.resize(360, 720).await;
    let letters = server.mill.admin().dead_letters(&long, "default").await.unwrap();
    until("it is listed", async || letters.list(9).await.unwrap().len() == 1).await;
    let id = letters.list(9).await.unwrap()[0].id();
    for (part, shows) in [
        (String::new(), long.clone()),
        (format!("topic/{long}"), "xxxxx".to_owned()),
        (format!("dead/{long}/default"), "an_error".to_owned()),
        (format!("dead/{long}/default/{id}"), "hhhhh".to_owned()),
    ] {
        for width in [320, 360, 760, 900, 1100] {
            page.resize(width, 720).await;
            page.value(&format!("(location.hash = '#/{part}')")).await;
            page.until_shown(&shows).await;
            assert_readable(&mut page, &format!("{part} {width}")).await;
        }
    }
    page.assert_no_complaints().await;
}
