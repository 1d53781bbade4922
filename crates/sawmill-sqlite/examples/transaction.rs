//! One transaction for an order and its e-mail, and one for an e-mail and the note that it was sent: whatever crashes, there
//! is no order without its e-mail, no e-mail without its order, and no second note.
//!
//! `cargo run -p sawmill-sqlite --example transaction`

use std::error::Error;
use std::path::{Path, PathBuf};
use std::time::Duration;

use sawmill::{Context, Delivery, State};
use sawmill_sqlite::rusqlite::{self, Connection, TransactionBehavior};
use sawmill_sqlite::{finish_within, push_within};

/// The shop's tables are in the file that Sawmill has open.
fn connect(path: &Path) -> rusqlite::Result<Connection> {
    let shop = Connection::open(path)?;
    shop.busy_timeout(Duration::from_secs(10))?;
    Ok(shop)
}

async fn note(message: Context, path: State<PathBuf>) -> Result<(), Box<dyn Error + Send + Sync>> {
    let mut shop = connect(&path)?;
    let transaction = shop.transaction_with_behavior(TransactionBehavior::Immediate)?;
    // False if an earlier run has done it: then there is nothing left to do.
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
    let mill = sawmill_sqlite::open(&format!("sqlite:{}", path.display())).await?;
    mill.create_topic("emails").await?;
    let mut shop = connect(&path)?;
    shop.execute_batch("CREATE TABLE orders (what TEXT); CREATE TABLE sent (mail TEXT);")?;

    // An order is made, and another one that comes to nothing.
    for (order, good) in [("a saw", true), ("a mill", false)] {
        let email = mill.draft("emails", [format!("Thank you for {order}")]).await?;
        let transaction = shop.transaction_with_behavior(TransactionBehavior::Immediate)?;
        transaction.execute("INSERT INTO orders VALUES (?1)", [order])?;
        push_within(&transaction, &email)?;
        if good {
            transaction.commit()?;
            email.announce();
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
