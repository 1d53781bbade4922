//! Raw SQLite: a table of the same columns without an index, written as durably as Sawmill writes.

use std::path::Path;
use std::time::Duration;

use rusqlite::{Connection, params};
use sawmill::env::Env;

use crate::{BATCH, Failure, PAYLOAD};

pub(crate) struct Raw {
    connection: Connection,
    made: u128,
}

impl Raw {
    pub(crate) fn create(path: &Path) -> Result<Self, Failure> {
        let connection = Connection::open(path)?;
        connection.execute_batch(
            "PRAGMA journal_mode = WAL; PRAGMA synchronous = FULL;
             CREATE TABLE message (pos INTEGER PRIMARY KEY, topic INTEGER, id BLOB, created_ms INTEGER, due_ms INTEGER,
                                   key BLOB, headers BLOB, payload BLOB, repeatable INTEGER)",
        )?;
        Ok(Self { connection, made: 0 })
    }

    /// Inserts rows in one transaction.
    fn insert(&mut self, rows: usize) -> Result<(), Failure> {
        let transaction = self.connection.transaction()?;
        {
            let mut insert = transaction.prepare_cached(
                "INSERT INTO message (topic, id, created_ms, due_ms, key, headers, payload, repeatable)
                 VALUES (1, ?1, 1, NULL, NULL, NULL, ?2, NULL)",
            )?;
            for _ in 0..rows {
                self.made += 1;
                insert.execute(params![self.made.to_be_bytes(), PAYLOAD])?;
            }
        }
        Ok(transaction.commit()?)
    }

    /// Seconds to insert rows in transactions of a batch each.
    pub(crate) fn insert_batches(&mut self, rows: usize) -> Result<f64, Failure> {
        let env = Env::system();
        let began = env.now();
        for done in (0..rows).step_by(BATCH) {
            self.insert(BATCH.min(rows - done))?;
        }
        Ok(env.now().since(began).as_secs_f64())
    }

    /// Seconds to insert rows in a transaction each.
    pub(crate) fn insert_singly(&mut self, rows: usize) -> Result<f64, Failure> {
        let env = Env::system();
        let began = env.now();
        for _ in 0..rows {
            self.insert(1)?;
        }
        Ok(env.now().since(began).as_secs_f64())
    }

    /// How long each of these transactions of one row takes, in milliseconds, with a pause after each.
    pub(crate) async fn commit_now_and_then(
        &mut self,
        count: usize,
        pause: Duration,
    ) -> Result<Vec<f64>, Failure> {
        let env = Env::system();
        let mut took = Vec::with_capacity(count);
        for _ in 0..count {
            let began = env.now();
            self.insert(1)?;
            took.push(env.now().since(began).as_secs_f64() * 1e3);
            env.sleep(pause).await;
        }
        Ok(took)
    }

    /// Seconds to read everything back.
    pub(crate) fn read_all(&self) -> Result<f64, Failure> {
        let env = Env::system();
        let began = env.now();
        let mut select = self
            .connection
            .prepare("SELECT id, created_ms, due_ms, key, headers, payload FROM message ORDER BY pos")?;
        let mut rows = select.query([])?;
        let mut bytes = 0;
        while let Some(row) = rows.next()? {
            let payload: Vec<u8> = row.get(5)?;
            let id: [u8; 16] = row.get(0)?;
            bytes += payload.len() + usize::from(id[15] > 0);
        }
        assert!(bytes as u128 >= self.made * PAYLOAD.len() as u128, "everything is read back");
        Ok(env.now().since(began).as_secs_f64())
    }
}
