//! An e-mail that is sent once only: a name that keeps it from being pushed twice, delivery that never starts it twice, and
//! a token by which the mail server refuses a worker that was declared dead and comes too late.
//!
//! `cargo run -p sawmill-sqlite --example once_only`

use std::collections::BTreeMap;
use std::error::Error;
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use sawmill::{Context, Delivery, MessageId, Push, State, Token};

/// A server that keeps the token under which it has sent each mail.
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
    let mill = sawmill_sqlite::open(&format!("sqlite:{}", folder.path().join("jobs.db").display())).await?;
    mill.create_topic("invoices").await?;

    // Somebody clicks twice: the second push adds nothing, within an hour, and returns the id of the first.
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
            // A worker that was suspended since the claim before this one would have an older token.
            let late = server.send(mail.id(), Token(mail.token().0 - 1), &text);
            println!("a late worker: {late:?}");
            assert!(late.is_err(), "an older token is refused");
            // From here on a failure is for a person to look at: nothing is started a second time.
            Err::<(), _>("the server hung up before it said that all is well".to_owned())
        })
        .await?;
    worker.drained().await;
    let counts = worker.stop().await;

    assert_eq!((counts.started, counts.dead), (1, 1), "started once, and never again");
    let letters = mill.dead_letters("invoices", "default").await?;
    println!("for a person to decide: {}", letters.show(first).await?.reason());
    Ok(())
}
