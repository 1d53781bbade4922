//! An e-mail that is sent at most once: a unique name keeps it from being pushed twice, at-most-once delivery
//! never starts it twice, and the mail server uses the token to refuse a worker that was declared dead and
//! comes too late.
//!
//! `cargo run -p sawmill --features sqlite --example once_only`

use std::collections::BTreeMap;
use std::error::Error;
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use sawmill::{Context, Delivery, MessageId, Push, State};
use sawmill_engine::model::Token;

/// A server that stores the token with which each mail was sent.
#[derive(Default)]
struct MailServer {
    sent: Mutex<BTreeMap<MessageId, Token>>,
}

impl MailServer {
    fn send(&self, id: MessageId, token: Token, text: &str) -> Result<(), String> {
        let mut sent = self.sent.lock().unwrap_or_else(PoisonError::into_inner);
        if sent.get(&id).is_some_and(|newest| *newest >= token) {
            return Err(format!("{token} is too old: {id} was sent already"));
        }
        sent.insert(id, token);
        println!("sent {text:?}, token {token}");
        Ok(())
    }
}

#[tokio::main]
async fn main() -> Result<(), Box<dyn Error>> {
    let folder = tempfile::tempdir()?;
    let mill = sawmill::Sawmill::open(&format!("sqlite:{}", folder.path().join("jobs.db").display())).await?;
    mill.create_topic("invoices").await?;

    // A user clicks twice. Within an hour, the second push adds nothing and returns the id of the first.
    let invoice = || Push::new("invoice 7").unique_for("invoice-7", Duration::from_secs(3600));
    let first = mill.push("invoices", invoice()).await?;
    let second = mill.push("invoices", invoice()).await?;
    assert_eq!(first, second, "a second click adds no second mail");

    let worker = mill
        .worker("invoices")
        .delivery(Delivery::AtMostOnce)
        .state(MailServer::default())
        .start(|mail: Context, server: State<MailServer>| async move {
            let text = String::from_utf8_lossy(mail.payload());
            server.send(mail.id(), mail.token(), &text)?;
            // A worker that was suspended since an earlier claim would have an older token.
            let late = server.send(mail.id(), Token(mail.token().0 - 1), &text);
            println!("a late worker: {late:?}");
            assert!(late.is_err(), "an older token is refused");
            // The failed message becomes a dead letter for a person to decide on. It is not started a second
            // time.
            Err::<(), _>("the server hung up before it said that all is well".to_owned())
        })
        .await?;
    worker.drained().await;
    let counts = worker.stop().await;

    assert_eq!((counts.started, counts.dead), (1, 1), "started once, and never again");
    let letters = mill.admin().dead_letters("invoices", "default").await?;
    println!("for a person to decide: {}", letters.show(first).await?.reason());
    Ok(())
}
