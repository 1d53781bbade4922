//! Tests of pushing and finishing within the user's own transactions, with sqlx.
#![allow(clippy::unwrap_used, reason = "these are tests")]

use std::any::Any;

use sawmill::{Context, Draft, ErrorKind, Result, Sawmill};
use sawmill_conformance::bank::{ACCOUNTS, BALANCE, Bank, Books, Transfer};
use sawmill_mysql::{MysqlEngine, finish_within_sqlx, push_within_sqlx};
use sqlx::{AssertSqlSafe, Connection, MySqlConnection};

mod support;
use support::{random, server};

/// A bank with its own tables. Its address is the namespace.
struct TableBank {
    mill: Sawmill,
    address: String,
}

impl TableBank {
    async fn connect(&self) -> MySqlConnection {
        MySqlConnection::connect(&server().unwrap()).await.unwrap()
    }

    /// Runs statements.
    async fn run(&self, connection: &mut MySqlConnection, sql: String) {
        sqlx::raw_sql(AssertSqlSafe(sql)).execute(connection).await.unwrap();
    }

    async fn column<T>(&self, sql: String) -> Vec<T>
    where
        T: for<'r> sqlx::Decode<'r, sqlx::MySql> + sqlx::Type<sqlx::MySql> + Send + Unpin,
    {
        let mut connection = self.connect().await;
        sqlx::query_scalar(AssertSqlSafe(sql)).fetch_all(&mut connection).await.unwrap()
    }
}

#[async_trait::async_trait]
impl Bank for TableBank {
    fn place() -> Result<(String, Box<dyn Any>), String> {
        server().map(|_| (format!("bank{:012x}", random() >> 16), Box::new(()) as Box<dyn Any>))
    }

    async fn open(address: &str) -> Self {
        let options = Sawmill::options().engine(MysqlEngine).namespace(address);
        let mill = options.open(&server().unwrap()).await.unwrap();
        let bank = Self { mill, address: address.to_owned() };
        let accounts: Vec<String> = (0..ACCOUNTS).map(|number| format!("({number}, {BALANCE})")).collect();
        let tables = format!(
            "CREATE TABLE IF NOT EXISTS {address}_orders (what VARCHAR(100)) ENGINE=InnoDB;
             CREATE TABLE IF NOT EXISTS {address}_account (number INT PRIMARY KEY, balance BIGINT) ENGINE=InnoDB;
             CREATE TABLE IF NOT EXISTS {address}_move (id VARCHAR(100)) ENGINE=InnoDB;
             INSERT IGNORE INTO {address}_account VALUES {}",
            accounts.join(", ")
        );
        bank.run(&mut bank.connect().await, tables).await;
        bank
    }

    fn mill(&self) -> &Sawmill {
        &self.mill
    }

    async fn order(&self, order: &str, email: &Draft, commit: bool) -> Result<()> {
        let mut connection = self.connect().await;
        let mut transaction = connection.begin().await.unwrap();
        self.run(&mut transaction, format!("INSERT INTO {}_orders VALUES ('{order}')", self.address)).await;
        push_within_sqlx(&mut transaction, email).await?;
        if commit { transaction.commit().await } else { transaction.rollback().await }.unwrap();
        Ok(())
    }

    async fn orders(&self) -> Vec<String> {
        self.column(format!("SELECT what FROM {}_orders", self.address)).await
    }

    async fn transfer(&self, message: &Context, transfer: Transfer, commit: bool) -> Result<bool> {
        let mut connection = self.connect().await;
        let mut transaction = connection.begin().await.unwrap();
        if !finish_within_sqlx(&mut transaction, message).await? {
            return Ok(false);
        }
        let Transfer { from, to, amount } = transfer;
        // Ordered by account number, so two transfers never deadlock.
        let mut changes = [(from, -amount), (to, amount)];
        changes.sort();
        let address = &self.address;
        for (number, amount) in changes {
            let update =
                format!("UPDATE {address}_account SET balance = balance + {amount} WHERE number = {number}");
            self.run(&mut transaction, update).await;
        }
        self.run(&mut transaction, format!("INSERT INTO {address}_move VALUES ('{}')", message.id())).await;
        if commit { transaction.commit().await } else { transaction.rollback().await }.unwrap();
        Ok(true)
    }

    async fn books(&self) -> Books {
        let address = &self.address;
        Books {
            balances: self.column(format!("SELECT balance FROM {address}_account ORDER BY number")).await,
            moves: self.column(format!("SELECT id FROM {address}_move")).await,
        }
    }
}

sawmill_conformance::bank_suite!(TableBank);

#[path = "../examples/order_mysql.rs"]
#[allow(unreachable_pub, reason = "it is a program of its own")]
mod order;

/// Runs the example on its own database.
#[tokio::test]
async fn f6_an_order_and_its_email() {
    let Some(database) = support::database_for("f6_an_order_and_its_email").await else { return };
    assert_eq!(order::run(&database.url()).await.unwrap(), ["Thank you for a saw"]);
}

/// Errors within a transaction have the same kind as elsewhere.
#[tokio::test]
async fn what_is_refused_within_a_transaction_has_its_kind() {
    let Some(database) = support::database_for("what_is_refused_within_a_transaction").await else { return };
    let elsewhere = support::database_for("what_is_refused_within_a_transaction").await.unwrap();
    let mill = Sawmill::options().engine(MysqlEngine).open(&database.url()).await.unwrap();
    mill.create_topic("emails").await.unwrap();
    let draft = mill.draft("emails", ["hello"]).await.unwrap();
    let user = format!("u{:08x}", random() >> 32);
    database.admin(&format!("CREATE USER {user} IDENTIFIED BY 'hunter2'")).await;
    database.admin(&format!("GRANT SELECT ON {}.* TO {user}", database.name)).await;
    for (url, kind, said) in [
        (elsewhere.url(), ErrorKind::NotFound, "another database"),
        (database.url_as(&user, "hunter2"), ErrorKind::Invalid, "may not"),
    ] {
        let mut connection = MySqlConnection::connect(&url).await.unwrap();
        let mut transaction = connection.begin().await.unwrap();
        let error = push_within_sqlx(&mut transaction, &draft).await.unwrap_err();
        assert_eq!(error.kind(), kind, "{error}");
        assert!(error.to_string().contains(said), "{error}");
    }
    database.admin(&format!("DROP USER {user}")).await;
}
