//! Transactions: one commits an order and its e-mail, another one finishes the e-mail and notes that it was
//! sent. Whatever crashes, there is no order without its e-mail, no e-mail without its order, and no second
//! note.
//!
//! `cargo run -p sawmill --features sqlite --example transaction`

use std::error::Error;
use std::path::{Path, PathBuf};
use std::time::Duration;

use sawmill::sqlite::rusqlite::{self, Connection, TransactionBehavior};
use sawmill::sqlite::{finish_within, push_within};
use sawmill::{Context, Delivery, State};

/// Opens the shop's tables, which are in the same file as Sawmill's.
fn connect(path: &Path) -> rusqlite::Result<Connection> {
    let shop = Connection::open(path)?;
    shop.busy_timeout(Duration::from_secs(10))?;
    Ok(shop)
}

async fn note(message: Context, path: State<PathBuf>) -> Result<(), Box<dyn Error + Send + Sync>> {
    let mut shop = connect(&path)?;
    let transaction = shop.transaction_with_behavior(TransactionBehavior::Immediate)?;
    // False if an earlier run has finished the message: then there is nothing left to do.
    if finish_within(&transaction, &message)? {
        transaction.execute("INSERT INTO sent VALUES (?1)", [&message.payload()[..]])?;
        transaction.commit()?;
    }
    Ok(())
}

#[tokio::main]
async fn main() -> Result<(), Box<dyn Error>> {
    let folder = tempfile::tempdir()?;
    let path = folder.path().join("shop.db");
    let mill = sawmill::Sawmill::open(&format!("sqlite:{}", path.display())).await?;
    mill.create_topic("emails").await?;
    let mut shop = connect(&path)?;
    shop.execute_batch("CREATE TABLE orders (what TEXT); CREATE TABLE sent (mail TEXT);")?;

    // One order is committed, and another one is rolled back.
    for (order, good) in [("a saw", true), ("a mill", false)] {
        let email = mill.draft("emails", [format!("Thank you for {order}")]).await?;
        let transaction = shop.transaction_with_behavior(TransactionBehavior::Immediate)?;
        transaction.execute("INSERT INTO orders VALUES (?1)", [order])?;
        push_within(&transaction, &email)?;
        if good {
            transaction.commit()?;
            email.notify();
        }
    }

    let worker = mill.worker("emails").delivery(Delivery::ExactlyOnce).state(path).start(note).await?;
    worker.drained().await;
    assert_eq!(worker.stop().await.done, 1);
    let sent: String =
        shop.query_row("SELECT group_concat(cast(mail AS TEXT)) FROM sent", [], |row| row.get(0))?;
    println!("sent: {sent}");
    assert_eq!(sent, "Thank you for a saw", "the order that was rolled back has no e-mail");
    Ok(())
}
