//! Pushing and finishing within a user's own transactions.
#![allow(clippy::unwrap_used, reason = "these are tests")]

use std::any::Any;
use std::path::PathBuf;
use std::time::Duration;

use rusqlite::{Connection, TransactionBehavior};
use sawmill::{Context, Draft, ErrorKind, Push, Result, Sawmill};
use sawmill_conformance::bank::{ACCOUNTS, BALANCE, Bank, Books, Transfer};
use sawmill_sqlite::{finish_within, push_within};

/// A bank in the same file.
struct FileBank {
    path: PathBuf,
    mill: Sawmill,
}

impl FileBank {
    fn connect(&self) -> Connection {
        let connection = Connection::open(&self.path).unwrap();
        connection.busy_timeout(Duration::from_secs(30)).unwrap();
        connection
    }
}

#[async_trait::async_trait]
impl Bank for FileBank {
    fn place() -> Result<(String, Box<dyn Any>), String> {
        let folder = tempfile::tempdir().unwrap();
        Ok((folder.path().join("bank.db").to_str().unwrap().to_owned(), Box::new(folder)))
    }

    async fn open(address: &str) -> Self {
        let mill = sawmill::Sawmill::open(&format!("sqlite:{address}")).await.unwrap();
        let bank = Self { path: address.into(), mill };
        let tables = format!(
            "BEGIN IMMEDIATE;
             CREATE TABLE IF NOT EXISTS orders (what TEXT);
             CREATE TABLE IF NOT EXISTS account (number INTEGER PRIMARY KEY, balance INTEGER);
             CREATE TABLE IF NOT EXISTS move (id TEXT);
             WITH RECURSIVE n(i) AS (SELECT 0 UNION ALL SELECT i + 1 FROM n WHERE i < {ACCOUNTS} - 1)
             INSERT OR IGNORE INTO account SELECT i, {BALANCE} FROM n;
             COMMIT;"
        );
        bank.connect().execute_batch(&tables).unwrap();
        bank
    }

    fn mill(&self) -> &Sawmill {
        &self.mill
    }

    async fn order(&self, order: &str, email: &Draft, commit: bool) -> Result<()> {
        let mut connection = self.connect();
        let transaction = connection.transaction_with_behavior(TransactionBehavior::Immediate).unwrap();
        transaction.execute("INSERT INTO orders VALUES (?1)", [order]).unwrap();
        push_within(&transaction, email)?;
        if commit { transaction.commit() } else { transaction.rollback() }.unwrap();
        Ok(())
    }

    async fn orders(&self) -> Vec<String> {
        let connection = self.connect();
        let mut select = connection.prepare("SELECT what FROM orders").unwrap();
        select.query_map([], |row| row.get(0)).unwrap().map(Result::unwrap).collect()
    }

    async fn transfer(&self, message: &Context, transfer: Transfer, commit: bool) -> Result<bool> {
        let mut connection = self.connect();
        let transaction = connection.transaction_with_behavior(TransactionBehavior::Immediate).unwrap();
        if !finish_within(&transaction, message)? {
            return Ok(false);
        }
        let update = "UPDATE account SET balance = balance + ?2 WHERE number = ?1";
        transaction.execute(update, (transfer.from, -transfer.amount)).unwrap();
        transaction.execute(update, (transfer.to, transfer.amount)).unwrap();
        transaction.execute("INSERT INTO move VALUES (?1)", [message.id().to_string()]).unwrap();
        if commit { transaction.commit() } else { transaction.rollback() }.unwrap();
        Ok(true)
    }

    async fn books(&self) -> Books {
        let connection = self.connect();
        let mut balances = connection.prepare("SELECT balance FROM account ORDER BY number").unwrap();
        let mut moves = connection.prepare("SELECT id FROM move").unwrap();
        Books {
            balances: balances.query_map([], |row| row.get(0)).unwrap().map(Result::unwrap).collect(),
            moves: moves.query_map([], |row| row.get(0)).unwrap().map(Result::unwrap).collect(),
        }
    }
}

sawmill_conformance::bank_suite!(FileBank);

#[tokio::test]
async fn what_cannot_be_one_transaction_is_refused() {
    let (address, _folder) = FileBank::place().unwrap();
    let bank = FileBank::open(&address).await;
    bank.mill.create_topic("emails").await.unwrap();
    let draft = bank.mill.draft("emails", ["x"]).await.unwrap();
    let refused = |connection: &Connection, draft: &Draft, said: &str| {
        let error = push_within(connection, draft).unwrap_err();
        assert!(error.to_string().contains(said), "{error}");
        error.kind()
    };
    assert_eq!(refused(&bank.connect(), &draft, "begin one first"), ErrorKind::Invalid);
    let other = Connection::open_in_memory().unwrap();
    assert_eq!(refused(&other, &draft, "another file"), ErrorKind::Invalid);

    let memory = Sawmill::open("memory:").await.unwrap();
    memory.create_topic("emails").await.unwrap();
    let elsewhere = memory.draft("emails", ["x"]).await.unwrap();
    assert_eq!(refused(&bank.connect(), &elsewhere, "another store"), ErrorKind::Unsupported);

    let unique = bank.mill.draft("emails", [Push::new("x").unique("one")]).await.unwrap_err();
    assert_eq!(unique.kind(), ErrorKind::Unsupported);
    let missing = bank.mill.draft("letters", ["x"]).await.unwrap_err();
    assert_eq!(missing.kind(), ErrorKind::NotFound);
}

#[tokio::test]
async fn what_was_finished_long_ago_is_forgotten() {
    let (address, _folder) = FileBank::place().unwrap();
    let bank = FileBank::open(&address).await;
    bank.mill.create_topic("t").await.unwrap();
    let connection = bank.connect();
    let now = sawmill_engine::runtime::Env::system().wall();
    for (id, days) in [(1, 6), (2, 8)] {
        let at = i64::try_from(now.as_millis()).unwrap() - days * 24 * 3600 * 1000;
        connection.execute("INSERT INTO finished VALUES ('default', ?1, 'g', ?2)", [id, at]).unwrap();
    }
    bank.mill.push("t", "x").await.unwrap();
    let worker = bank.mill.worker("t").start(|_: Context| async {}).await.unwrap();
    worker.drained().await;
    bank.mill.admin().trim("t").await.unwrap();
    worker.stop().await;
    let left: i64 = connection.query_row("SELECT id FROM finished", [], |row| row.get(0)).unwrap();
    assert_eq!(left, 1);
}
