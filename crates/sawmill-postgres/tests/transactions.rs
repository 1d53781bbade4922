//! Tests of pushing and finishing within the user's own transactions, with tokio-postgres and sqlx.
#![allow(clippy::unwrap_used, reason = "these are tests")]

use std::any::Any;

use sawmill::{Context, Draft, ErrorKind, Result, Sawmill};
use sawmill_conformance::bank::{ACCOUNTS, BALANCE, Bank, Books, Transfer};
use sawmill_postgres::{PostgresEngine, finish_within, finish_within_sqlx, push_within, push_within_sqlx};
use sqlx::{Connection, PgConnection};
use tokio_postgres::Client;

mod support;
use support::{namespace, plain_client, server};

/// A bank with its own schema. Its address is the namespace.
struct TableBank {
    mill: Sawmill,
    schema: String,
}

impl TableBank {
    fn at(address: &str, mill: Sawmill) -> Self {
        Self { mill, schema: format!("\"bank_{address}\"") }
    }

    async fn connect(&self) -> Client {
        plain_client(&server().unwrap()).await
    }

    async fn column(&self, sql: String) -> Vec<String> {
        let rows = self.connect().await.query(&sql, &[]).await.unwrap();
        rows.iter().map(|row| row.get(0)).collect()
    }

    async fn read_books(&self) -> Books {
        let schema = &self.schema;
        let balances =
            self.column(format!("SELECT balance::text FROM {schema}.account ORDER BY number")).await;
        let balances = balances.iter().map(|balance| balance.parse().unwrap()).collect();
        Books { balances, moves: self.column(format!("SELECT id FROM {schema}.move")).await }
    }

    /// The statements of a transfer.
    fn moves(&self, message: &Context, transfer: Transfer) -> String {
        let Transfer { from, to, amount } = transfer;
        let (schema, id) = (&self.schema, message.id());
        // Ordered by account number, so two transfers never deadlock.
        let update = |number: u32, amount: i64| {
            (
                number,
                format!("UPDATE {schema}.account SET balance = balance + {amount} WHERE number = {number};"),
            )
        };
        let mut updates = [update(from, -amount), update(to, amount)];
        updates.sort();
        let [(_, first), (_, second)] = updates;
        format!("{first} {second} INSERT INTO {schema}.move VALUES ('{id}')")
    }
}

async fn open_tables(address: &str) -> TableBank {
    let options = Sawmill::options().engine(PostgresEngine::default()).namespace(address);
    let bank = TableBank::at(address, options.open(&server().unwrap()).await.unwrap());
    let schema = &bank.schema;
    let tables = format!(
        "BEGIN; SELECT pg_advisory_xact_lock(hashtext('{address}'));
         CREATE SCHEMA IF NOT EXISTS {schema};
         CREATE TABLE IF NOT EXISTS {schema}.orders (what text);
         CREATE TABLE IF NOT EXISTS {schema}.account (number int4 PRIMARY KEY, balance int8 NOT NULL);
         CREATE TABLE IF NOT EXISTS {schema}.move (id text NOT NULL);
         INSERT INTO {schema}.account SELECT i, {BALANCE} FROM generate_series(0, {ACCOUNTS} - 1) AS i
         ON CONFLICT DO NOTHING;
         COMMIT"
    );
    bank.connect().await.batch_execute(&tables).await.unwrap();
    bank
}

fn place() -> Result<(String, Box<dyn Any>), String> {
    server().map(|_| (namespace().as_str().to_owned(), Box::new(()) as Box<dyn Any>))
}

mod tokio_postgres_transactions {
    use super::*;

    struct Native(TableBank);

    #[async_trait::async_trait]
    impl Bank for Native {
        const CHILD: &'static str = "tokio_postgres_transactions::bank_child";

        fn place() -> Result<(String, Box<dyn Any>), String> {
            place()
        }

        async fn open(address: &str) -> Self {
            Self(open_tables(address).await)
        }

        fn mill(&self) -> &Sawmill {
            &self.0.mill
        }

        async fn order(&self, order: &str, email: &Draft, commit: bool) -> Result<()> {
            let mut client = self.0.connect().await;
            let transaction = client.transaction().await.unwrap();
            let insert = format!("INSERT INTO {}.orders VALUES ($1)", self.0.schema);
            transaction.execute(&insert, &[&order]).await.unwrap();
            push_within(&transaction, email).await?;
            if commit { transaction.commit().await } else { transaction.rollback().await }.unwrap();
            Ok(())
        }

        async fn orders(&self) -> Vec<String> {
            self.0.column(format!("SELECT what FROM {}.orders", self.0.schema)).await
        }

        async fn transfer(&self, message: &Context, transfer: Transfer, commit: bool) -> Result<bool> {
            let mut client = self.0.connect().await;
            let transaction = client.transaction().await.unwrap();
            if !finish_within(&transaction, message).await? {
                return Ok(false);
            }
            transaction.batch_execute(&self.0.moves(message, transfer)).await.unwrap();
            if commit { transaction.commit().await } else { transaction.rollback().await }.unwrap();
            Ok(true)
        }

        async fn books(&self) -> Books {
            self.0.read_books().await
        }
    }

    sawmill_conformance::bank_suite!(Native);
}

mod sqlx_transactions {
    use super::*;

    struct Sqlx(TableBank);

    impl Sqlx {
        async fn connect(&self) -> PgConnection {
            PgConnection::connect(&server().unwrap()).await.unwrap()
        }
    }

    #[async_trait::async_trait]
    impl Bank for Sqlx {
        const CHILD: &'static str = "sqlx_transactions::bank_child";

        fn place() -> Result<(String, Box<dyn Any>), String> {
            place()
        }

        async fn open(address: &str) -> Self {
            Self(open_tables(address).await)
        }

        fn mill(&self) -> &Sawmill {
            &self.0.mill
        }

        async fn order(&self, order: &str, email: &Draft, commit: bool) -> Result<()> {
            let mut connection = self.connect().await;
            let mut transaction = connection.begin().await.unwrap();
            let insert = format!("INSERT INTO {}.orders VALUES ($1)", self.0.schema);
            sqlx::query(sqlx::AssertSqlSafe(insert)).bind(order).execute(&mut *transaction).await.unwrap();
            push_within_sqlx(&mut transaction, email).await?;
            if commit { transaction.commit().await } else { transaction.rollback().await }.unwrap();
            Ok(())
        }

        async fn orders(&self) -> Vec<String> {
            self.0.column(format!("SELECT what FROM {}.orders", self.0.schema)).await
        }

        async fn transfer(&self, message: &Context, transfer: Transfer, commit: bool) -> Result<bool> {
            let mut connection = self.connect().await;
            let mut transaction = connection.begin().await.unwrap();
            if !finish_within_sqlx(&mut transaction, message).await? {
                return Ok(false);
            }
            let moves = sqlx::raw_sql(sqlx::AssertSqlSafe(self.0.moves(message, transfer)));
            moves.execute(&mut *transaction).await.unwrap();
            if commit { transaction.commit().await } else { transaction.rollback().await }.unwrap();
            Ok(true)
        }

        async fn books(&self) -> Books {
            self.0.read_books().await
        }
    }

    sawmill_conformance::bank_suite!(Sqlx);
}

#[path = "../examples/order_postgres.rs"]
#[allow(unreachable_pub, reason = "it is a program of its own")]
mod order;

/// Runs the example on its own database.
#[tokio::test]
async fn f6_an_order_and_its_email() {
    let Some(url) = support::server_for("f6_an_order_and_its_email") else { return };
    let name = format!("shop_{}", namespace().as_str().replace('-', "_"));
    let admin = plain_client(&url).await;
    admin.batch_execute(&format!("CREATE DATABASE {name} TEMPLATE template0")).await.unwrap();
    let (server, _) = url.rsplit_once('/').unwrap();
    assert_eq!(order::run(&format!("{server}/{name}")).await.unwrap(), ["Thank you for a saw"]);
    admin.batch_execute(&format!("DROP DATABASE {name} WITH (FORCE)")).await.unwrap();
}

/// Errors within a transaction have the same kind as elsewhere, with every driver.
#[tokio::test]
async fn what_is_refused_within_a_transaction_has_its_kind() {
    let Some(url) = support::server_for("what_is_refused_within_a_transaction_has_its_kind") else { return };
    let options = Sawmill::options().engine(PostgresEngine::default()).namespace(namespace().as_str());
    let mill = options.open(&url).await.unwrap();
    mill.create_topic("emails").await.unwrap();
    let draft = mill.draft("emails", ["hello"]).await.unwrap();
    for (before, kind, said) in [
        ("SELECT 1/0", ErrorKind::Invalid, "failed before"),
        ("SET TRANSACTION READ ONLY", ErrorKind::Unavailable, "takes no writes"),
        ("CREATE ROLE nobody_#; SET LOCAL ROLE nobody_#", ErrorKind::Invalid, "may not"),
    ] {
        let before = before.replace('#', &namespace().as_str().replace('-', "_"));
        let mut client = plain_client(&url).await;
        let transaction = client.transaction().await.unwrap();
        // Some of these statements are meant to fail.
        let _ = transaction.batch_execute(&before).await;
        let ours = push_within(&transaction, &draft).await.unwrap_err();
        let mut connection = PgConnection::connect(&url).await.unwrap();
        let mut transaction = connection.begin().await.unwrap();
        let _ = sqlx::raw_sql(sqlx::AssertSqlSafe(before)).execute(&mut *transaction).await;
        let theirs = push_within_sqlx(&mut transaction, &draft).await.unwrap_err();
        for error in [ours, theirs] {
            assert_eq!(error.kind(), kind, "{error}");
            assert!(error.to_string().contains(said), "{error}");
        }
    }
}
