//! Uses the page like a person, in a real browser: with the mouse, with the keyboard only, on a phone, and in
//! dark mode.

mod chromium;
mod pictures;

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use sawmill::admin::Access;
use sawmill::{Context, Outcome, Push};
use serde_json::json;
use tokio::sync::Notify;

use crate::support::{TestServer, until};
use chromium::Browser;

/// Text that has an effect if it is treated as markup.
const MARKUP: &str =
    "<img src=x onerror=\"window.ran = 1\"><script>window.ran = 1</script></pre></td><b>bold</b>";

/// Makes the page record every request, event stream and timer that it starts from now on.
const NOTE_WHAT_IT_BEGINS: &str = "(() => {
    window.begun = [];
    const note = (real) => (first, ...more) => { window.begun.push(String(first)); return real(first, ...more); };
    window.fetch = note(window.fetch);
    window.setTimeout = note(window.setTimeout);
    window.setInterval = note(window.setInterval);
    window.EventSource = class extends EventSource {
        constructor(url) { super(url); window.begun.push(url); }
    };
    return 0;
})()";

/// Turns all waiting messages into dead letters with this reason.
async fn make_dead(server: &TestServer, topic: &str, reason: &'static str) {
    let waiting = server.mill.admin().status(topic, "default").await.unwrap().waiting;
    let dead = async || server.mill.admin().status(topic, "default").await.unwrap().dead;
    let before = dead().await;
    let worker = server.mill.worker(topic).start(move |_: Context| async move { Outcome::dead(reason) });
    let worker = worker.await.unwrap();
    until("they are dead", async || dead().await == before + waiting).await;
    worker.stop().await;
}

#[tokio::test]
async fn the_overview_changes_while_it_is_looked_at() {
    let server = TestServer::open().await;
    server.mill.create_topic("emails").await.unwrap();
    let Some(mut page) = Browser::of("the overview", &server).await else { return };
    page.until("cell('emails', 'Waiting') === '0'").await;
    page.value("window.same = true").await;
    server.mill.push_many("emails", ["x"; 1234]).await.unwrap();
    page.until("cell('emails', 'Waiting') === '1,234' && cell('emails', 'Verdict') === 'no groups'").await;
    server.mill.create_topic("orders").await.unwrap();
    let worker = server.mill.worker("emails").start(|_: Context| async {}).await.unwrap();
    page.until("cell('emails', 'Waiting') === '0' && cell('orders', 'Waiting') === '0'").await;
    page.until("cell('emails', 'Workers') === '1'").await;
    // While work goes on, the page shows the rate and its history.
    let pushes = async {
        loop {
            server.mill.push_many("emails", ["x"; 50]).await.unwrap();
            server.env.sleep(std::time::Duration::from_millis(200)).await;
        }
    };
    let seen = async {
        page.until("parseFloat(cell('emails', 'Rate')) > 0 && cell('emails', 'Rate').endsWith('/s')").await;
        page.until("document.querySelector('td[data-name=Finished] svg polyline')?.points.length > 1").await;
        page.until("/[1-9]/.test(document.querySelector('td[data-name=Finished] svg').ariaLabel)").await;
    };
    tokio::select! {
        () = pushes => {}
        () = seen => {}
    }
    worker.stop().await;
    page.until("cell('emails', 'Oldest') === '–' || cell('emails', 'Waiting') !== '0'").await;
    server.mill.push("emails", "x").await.unwrap();
    page.until(
        "/^[1-9][0-9]* s$/.test(cell('emails', 'Oldest')) && cell('emails', 'Verdict') === 'no workers'",
    )
    .await;
    let told = "performance.getEntriesByType('resource').map((entry) => new URL(entry.name).pathname)";
    assert_eq!(page.value(&format!("{told}.includes('/api/v1/status')")).await, false, "it does not ask");
    assert_eq!(page.value("window.same").await, true, "it was not loaded anew");
    assert_eq!(page.value("document.getElementById('live').textContent").await, "live");
    page.assert_no_complaints().await;
}

#[tokio::test]
async fn workers_are_shown_with_their_slots_claims_and_beats() {
    let server = TestServer::open().await;
    server.mill.create_topic("emails").await.unwrap();
    server.mill.push_many("emails", ["x", "y"]).await.unwrap();
    let busy = |context: Context| async move { context.cancelled().await };
    let worker = server.mill.worker("emails").name("pbx").concurrency(7).start(busy).await.unwrap();
    let Some(mut page) = Browser::of("workers", &server).await else { return };
    page.click("nav a", "Workers").await;
    page.until("find('td[data-name=Worker]', 'pbx') && find('td[data-name=Topics] a', 'emails')").await;
    let cell = |name: &str| format!("document.querySelector('td[data-name=\"{name}\"]').textContent");
    assert_eq!(page.value(&cell("Concurrency")).await, "7");
    page.until(&format!("{} === '2'", cell("Claimed"))).await;
    page.until(&format!("/^[0-9]+ s ago$/.test({})", cell("Last heartbeat"))).await;
    worker.abort().await;
    page.until_shown("There are no workers.").await;
    page.assert_no_complaints().await;
}

#[tokio::test]
async fn a_letter_is_dropped_where_it_is_read_once_that_was_said_twice() {
    let server = TestServer::open().await;
    server.mill.create_topic("emails").await.unwrap();
    let id = server.mill.push("emails", "x").await.unwrap();
    make_dead(&server, "emails", "no such address").await;
    let dead = async || server.mill.admin().status("emails", "default").await.unwrap().dead;
    let Some(mut page) = Browser::of("dropping a letter", &server).await else { return };
    page.visit(&format!("#/dead/emails/default/{id}")).await;
    page.click("button", "Drop").await;
    page.until_shown(&format!("Drop dead letter {id}. This cannot be undone.")).await;
    page.click("dialog button", "Cancel").await;
    page.until("!document.querySelector('dialog').open").await;
    assert_eq!(dead().await, 1, "nothing is dropped yet");
    page.click("main button", "Drop").await;
    page.click("dialog button", "Drop").await;
    page.until_shown("Dropped.").await;
    page.until("find('h1', 'Dead letters of') && shown.includes('There are no dead letters.')").await;
    assert_eq!(dead().await, 0);
    page.assert_no_complaints().await;
}

#[tokio::test]
async fn a_dead_letter_is_found_looked_at_resent_and_worked() {
    let server = TestServer::open().await;
    server.mill.create_topic("emails").await.unwrap();
    for name in ["alice", "bob", "carol"] {
        let push = Push::new(format!("{{\"to\":\"{name}\"}}")).key(name).header("lang", "en");
        server.mill.push("emails", push).await.unwrap();
    }
    make_dead(&server, "emails", "no such address").await;
    let Some(mut page) = Browser::of("dead letters", &server).await else { return };
    page.click("nav a", "Dead letters").await;
    page.click("td a", "3").await;
    page.until("document.querySelectorAll('tbody tr').length === 3").await;
    page.click("input", "Search").await;
    page.write("bob").await;
    page.click("button", "Search").await;
    page.until("document.querySelectorAll('tbody tr').length === 1").await;
    page.click("td[data-name=Id] a", "").await;
    for text in ["no such address", "\"to\": \"bob\"", "lang: en", "once", "Attempt 1"] {
        page.until_shown(text).await;
    }
    page.click("button", "Retry").await;
    page.until_shown("Retried.").await;
    page.until("document.querySelectorAll('tbody tr').length === 2 && !shown.includes('bob')").await;
    let (worked, seen) = (Arc::new(AtomicUsize::new(0)), Arc::new(Notify::new()));
    let (counted, told) = (worked.clone(), seen.clone());
    let worker = server.mill.worker("emails").start(move |payload: String| {
        assert!(payload.contains("bob"));
        counted.fetch_add(1, Ordering::SeqCst);
        told.notify_one();
        async {}
    });
    let worker = worker.await.unwrap();
    server.env.within(crate::support::TIMEOUT, seen.notified()).await.expect("test timed out: it is worked");
    // Dropping the chosen letters needs a confirmation.
    page.click("button", "Drop chosen").await;
    page.until_shown("Choose dead letters first.").await;
    page.click("input", "Choose").await;
    page.click("button", "Drop chosen").await;
    page.until_shown("This cannot be undone.").await;
    page.click("dialog button", "Cancel").await;
    page.until("!document.querySelector('dialog').open").await;
    assert_eq!(
        server.mill.admin().status("emails", "default").await.unwrap().dead,
        2,
        "nothing is dropped yet"
    );
    page.click("button", "Drop chosen").await;
    page.click("dialog button", "Drop").await;
    page.until("document.querySelectorAll('tbody tr').length === 1").await;
    assert_eq!(server.mill.admin().status("emails", "default").await.unwrap().dead, 1);
    assert_eq!(worked.load(Ordering::SeqCst), 1);
    page.assert_no_complaints().await;
    worker.stop().await;
}

#[tokio::test]
async fn a_group_is_paused_resumed_and_made_to_begin_again() {
    let server = TestServer::open().await;
    server.mill.create_topic("emails").await.unwrap();
    server.mill.push_many("emails", ["a", "b", "c"]).await.unwrap();
    let worker = server.mill.worker("emails").start(|_: Context| async {}).await.unwrap();
    worker.drained().await;
    worker.stop().await;
    let status = async || server.mill.admin().status("emails", "default").await.unwrap();
    let Some(mut page) = Browser::of("a group", &server).await else { return };
    page.click("td a", "emails").await;
    page.click("button", "Pause").await;
    page.until("find('button', 'Resume') && cell('emails', 'Verdict') === 'paused'").await;
    assert!(status().await.paused);
    page.click("button", "Resume").await;
    page.until("find('button', 'Pause')").await;
    assert!(!status().await.paused);
    page.click("button", "Replay from the start").await;
    page.until_shown("handles every message again").await;
    page.click("dialog button", "Cancel").await;
    page.until("!document.querySelector('dialog').open").await;
    assert_eq!(status().await.waiting, 0, "nothing was asked for yet");
    page.click("button", "Replay from the start").await;
    page.click("dialog button", "Replay").await;
    page.until("cell('emails', 'Waiting') === '3'").await;
    page.assert_no_complaints().await;
}

/// Asserts that this part of the page shows the markup as text.
async fn stays_text(page: &mut Browser, part: &str) {
    page.value(&format!("(location.hash = '#/{part}')")).await;
    page.until("shown.includes('<img src=x onerror=') && shown.includes('<script>')").await;
    assert_eq!(page.value("document.querySelectorAll('main img, main script, main b').length").await, 0);
    assert_eq!(page.value("typeof window.ran").await, "undefined", "{part}");
}

#[tokio::test]
async fn q21_what_messages_say_stays_text() {
    let server = TestServer::open().await;
    server.mill.create_topic("emails").await.unwrap();
    let push = || Push::new(MARKUP).key(MARKUP).header("note", MARKUP);
    let id = server.mill.push("emails", push()).await.unwrap();
    make_dead(&server, "emails", MARKUP).await;
    server.mill.push("emails", push()).await.unwrap();
    let Some(mut page) = Browser::of("markup", &server).await else { return };
    stays_text(&mut page, "topic/emails").await;
    stays_text(&mut page, "dead/emails/default").await;
    stays_text(&mut page, &format!("dead/emails/default/{id}")).await;
    let worker = server.mill.worker("emails").start(|context: Context| async move {
        context.note(MARKUP);
        context.cancelled().await;
    });
    let worker = worker.await.unwrap();
    stays_text(&mut page, "workers").await;
    page.assert_no_complaints().await;
    // Even if the page treated it as markup, the policy would not run it, and the browser would complain.
    page.value("(document.body.insertAdjacentHTML('beforeend', `<img src=x onerror='window.ran = 1'>`), 0)")
        .await;
    let mut heard = Vec::new();
    until("the browser complains", async || {
        heard.extend(page.complaints().await);
        heard.iter().any(|text| text.contains("Content Security Policy"))
    })
    .await;
    assert_eq!(page.value("typeof window.ran").await, "undefined");
    worker.abort().await;
}

#[tokio::test]
async fn the_keyboard_is_enough() {
    let server = TestServer::open().await;
    server.mill.create_topic("emails").await.unwrap();
    server.mill.push_many("emails", ["to alice", "to bob"]).await.unwrap();
    make_dead(&server, "emails", "no such address").await;
    let Some(mut page) = Browser::of("the keyboard", &server).await else { return };
    page.until("cell('emails', 'Dead') === '2'").await;
    page.press("Tab").await;
    assert_eq!(page.value("label(document.activeElement)").await, "Skip to content");
    // The focused element keeps the focus when the page is redrawn.
    page.tab_to("emails").await;
    server.mill.push("emails", "another").await.unwrap();
    page.until("cell('emails', 'Waiting') === '1'").await;
    assert_eq!(page.value("label(document.activeElement)").await, "emails");
    page.press("3").await;
    page.until("shown.startsWith('Dead letters')").await;
    page.tab_to("2").await;
    page.press("Enter").await;
    page.until("document.getElementById('search')").await;
    page.press("/").await;
    page.write("alice").await;
    page.press("Enter").await;
    page.until("document.querySelectorAll('tbody tr').length === 1").await;
    let id = page.value("document.querySelector('td a').textContent").await;
    page.tab_to(id.as_str().unwrap()).await;
    page.press("Enter").await;
    page.until_shown("to alice").await;
    page.tab_to("Retry").await;
    page.press("Enter").await;
    page.until_shown("Retried.").await;
    page.until("document.querySelectorAll('tbody tr').length === 1 && find('h1', 'Dead letters of')").await;
    // Destructive actions ask first, and the default answer cancels.
    for answer in ["Enter", "Escape"] {
        page.tab_to("Choose 0").await;
        if answer == "Enter" {
            page.press("Space").await;
        }
        page.tab_to("Drop chosen").await;
        page.press("Enter").await;
        page.until("document.querySelector('dialog').open").await;
        page.press(answer).await;
        page.until("!document.querySelector('dialog').open").await;
        assert_eq!(
            page.value("label(document.activeElement)").await,
            "Drop chosen",
            "one goes on from there"
        );
    }
    assert_eq!(server.mill.admin().status("emails", "default").await.unwrap().dead, 1);
    page.press("Enter").await;
    page.until("document.querySelector('dialog').open").await;
    page.tab_to("Drop").await;
    page.press("Enter").await;
    page.until("shown.includes('There are no dead letters.')").await;
    let worker = server.mill.worker("emails").start(|_: Context| async {}).await.unwrap();
    until("the retried one is done", async || worker.counts().done == 2).await;
    worker.stop().await;
    page.assert_no_complaints().await;
}

#[tokio::test]
async fn q21_the_page_is_for_those_who_have_a_token() {
    let server = TestServer::guarded().await;
    server.mill.create_topic("emails").await.unwrap();
    server.mill.push("emails", "secret").await.unwrap();
    make_dead(&server, "emails", "no such address").await;
    let (admin, reader) =
        (server.credential(None, Access::Admin).await, server.credential(None, Access::Read).await);
    let Some(mut page) = Browser::of("the login", &server).await else { return };
    page.until("document.activeElement.id === 'key'").await;
    assert_eq!(page.value("Boolean(find('nav a', ''))").await, false);
    page.write("sawmill_wrong_key").await;
    page.press("Enter").await;
    page.until_shown("this access key is not known, or was revoked").await;
    let complaints = page.complaints().await;
    assert!(
        complaints.iter().all(|text| text.contains("401")),
        "the browser tells of no more: {complaints:?}"
    );
    for (credential, may) in [(reader, false), (admin, true)] {
        page.value("(location.hash = '#/')").await;
        page.value("(document.getElementById('key').value = '', 0)").await;
        page.click("input", "Access key").await;
        page.write(&credential).await;
        page.click("button", "Log in").await;
        page.until("cell('emails', 'Dead') === '1'").await;
        assert_eq!(page.value("document.cookie").await, "", "no script can read the key");
        page.visit("#/dead/emails/default").await;
        page.until("document.querySelectorAll('tbody tr').length === 1").await;
        assert_eq!(page.value("Boolean(find('button', 'Drop'))").await, may);
        page.click("td[data-name=Id] a", "").await;
        page.until_shown("secret").await;
        assert_eq!(page.value("Boolean(find('button', 'Retry'))").await, may);
        page.click("button", "Log out").await;
        page.until("find('h1', 'Log in') && !find('nav a', '')").await;
        assert!(!page.value("document.body.innerText").await.as_str().unwrap().contains("secret"));
    }
    page.assert_no_complaints().await;
}

#[tokio::test]
async fn q21_who_may_only_push_is_told_that_there_is_nothing_to_see() {
    let server = TestServer::guarded().await;
    let credential = server.credential(None, Access::Write).await;
    let Some(mut page) = Browser::of("a login for pushing", &server).await else { return };
    page.value(NOTE_WHAT_IT_BEGINS).await;
    page.write(&credential).await;
    page.press("Enter").await;
    page.until("find('h1', 'This access key is for pushing')").await;
    // The page requests nothing that it may not see, and starts nothing that would retry later.
    assert_eq!(page.value("window.begun").await, json!(["api/v1/session", "api/v1/session"]));
    page.assert_no_complaints().await;
    page.click("button", "Log out").await;
    page.until("find('h1', 'Log in')").await;
}

#[tokio::test]
async fn q21_an_open_page_asks_for_a_token_once_there_are_some() {
    let server = TestServer::open().await;
    server.mill.create_topic("emails").await.unwrap();
    let Some(mut page) = Browser::of("a door that is closed", &server).await else { return };
    page.until("cell('emails', 'Waiting') === '0'").await;
    server.credential(None, Access::Read).await;
    page.until("find('h1', 'Log in')").await;
}

#[tokio::test]
async fn who_may_not_look_any_more_is_shown_the_door() {
    let server = TestServer::guarded().await;
    server.mill.create_topic("emails").await.unwrap();
    let credential = server.credential(None, Access::Read).await;
    let Some(mut page) = Browser::of("a revoked login", &server).await else { return };
    page.write(&credential).await;
    page.press("Enter").await;
    page.until("cell('emails', 'Waiting') === '0'").await;
    // The page shows the login by itself when access is revoked.
    server.mill.admin().revoke_access_key(credential.split('_').nth(1).unwrap()).await.unwrap();
    page.until("find('h1', 'Log in')").await;
}
