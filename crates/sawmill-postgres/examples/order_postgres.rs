//! Two transactions with sqlx: one for an order and its e-mail, one for an e-mail and the record that it was
//! sent. Whatever crashes, there is no order without its e-mail, no e-mail without its order, and no second
//! record.
//!
//! `cargo run -p sawmill-postgres --example order_postgres -- postgres://user:password@host/database`

use std::error::Error;

use sawmill::{Context, Delivery, State};
use sawmill_postgres::{finish_within_sqlx, push_within_sqlx};
use sqlx::PgPool;

async fn note(message: Context, pool: State<PgPool>) -> Result<(), Box<dyn Error + Send + Sync>> {
    let mut transaction = pool.begin().await?;
    // False if an earlier run has finished the message: nothing is left to do.
    if finish_within_sqlx(&mut transaction, &message).await? {
        let sent =
            sqlx::query("INSERT INTO sent VALUES (convert_from($1, 'UTF8'))").bind(&message.payload()[..]);
        sent.execute(&mut *transaction).await?;
        transaction.commit().await?;
    }
    Ok(())
}

/// Runs the example on this database. Returns the e-mails that were sent.
pub async fn run(url: &str) -> Result<Vec<String>, Box<dyn Error>> {
    let mill = sawmill::Sawmill::open(url).await?;
    mill.create_topic("order-emails").await?;
    let pool = PgPool::connect(url).await?;
    for table in
        ["CREATE TABLE IF NOT EXISTS orders (what text)", "CREATE TABLE IF NOT EXISTS sent (mail text)"]
    {
        sqlx::query(table).execute(&pool).await?;
    }

    // One order is committed, another one is rolled back.
    for (order, good) in [("a saw", true), ("a mill", false)] {
        let email = mill.draft("order-emails", [format!("Thank you for {order}")]).await?;
        let mut transaction = pool.begin().await?;
        sqlx::query("INSERT INTO orders VALUES ($1)").bind(order).execute(&mut *transaction).await?;
        push_within_sqlx(&mut transaction, &email).await?;
        if good {
            transaction.commit().await?;
            email.notify();
        }
    }

    let worker = mill.worker("order-emails").delivery(Delivery::ExactlyOnce).state(pool.clone());
    let worker = worker.start(note).await?;
    worker.drained().await;
    worker.stop().await;
    Ok(sqlx::query_scalar("SELECT mail FROM sent").fetch_all(&pool).await?)
}

#[tokio::main]
#[allow(dead_code, reason = "a test runs it on a database of its own")]
async fn main() -> Result<(), Box<dyn Error>> {
    let url = std::env::args().nth(1).ok_or("name the database: postgres://user:password@host/database")?;
    println!("sent: {:?}", run(&url).await?);
    Ok(())
}
