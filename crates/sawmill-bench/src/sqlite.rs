//! SQLite, alone and under Sawmill.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use async_trait::async_trait;
use rusqlite::{Connection, params};
use sawmill::Sawmill;
use sawmill::engine::runtime::Env;

use crate::Failure;
use crate::PAYLOAD;
use crate::subject::{Goals, Opened, Raw, RowQueue, Subject, Tally};

pub(crate) struct Sqlite {
    folder: PathBuf,
    tables: AtomicU64,
}

impl Sqlite {
    /// Creates a subject whose files are in this folder.
    pub(crate) fn new(folder: &str) -> Self {
        Self { folder: folder.into(), tables: AtomicU64::new(0) }
    }
}

#[async_trait]
impl Subject for Sqlite {
    fn name(&self) -> &'static str {
        "SQLite"
    }

    fn goals(&self) -> Goals {
        Goals {
            end_to_end: 0.4,
            row_queue: None,
            single: 5.0,
            p50_ms: 1.0,
            p99_ms: 3.0,
            idle_timers: Some(1.0),
        }
    }

    fn gathers_pushes(&self) -> bool {
        true
    }

    fn store(&self, name: &str) -> String {
        self.folder.join(format!("{name}.db")).to_string_lossy().into_owned()
    }

    async fn open(&self, store: &str, env: Env) -> Result<Box<dyn Opened>, Failure> {
        let sqlite = Arc::new(sawmill_sqlite::Sqlite::open(Path::new(store), &Default::default())?);
        let mill = Sawmill::from_parts(sqlite.clone(), sqlite.clone(), env);
        Ok(Box::new(Store { mill, sqlite }))
    }

    async fn remove(&self, store: &str) -> Result<(), Failure> {
        remove(Path::new(store))
    }

    async fn raw(&self) -> Result<Box<dyn Raw>, Failure> {
        let number = self.tables.fetch_add(1, Ordering::Relaxed);
        Ok(Box::new(Table::create(self.folder.join(format!("raw-{number}.db")))?))
    }

    /// Only one process writes at a time, so there is nothing to skip.
    async fn row_queue(&self) -> Result<Option<Box<dyn RowQueue>>, Failure> {
        Ok(None)
    }
}

struct Store {
    mill: Sawmill,
    sqlite: Arc<sawmill_sqlite::Sqlite>,
}

#[async_trait]
impl Opened for Store {
    fn mill(&self) -> &Sawmill {
        &self.mill
    }

    async fn tally(&self) -> Result<Tally, Failure> {
        let activity = self.sqlite.activity();
        Ok(Tally {
            queries: activity.reads + activity.writes,
            commits: activity.writes,
            looks: activity.looks,
            log_bytes: 0,
        })
    }

    async fn close(self: Box<Self>) -> Result<Tally, Failure> {
        self.tally().await
    }
}

/// Removes a database and its side files.
fn remove(path: &Path) -> Result<(), Failure> {
    for end in ["", "-wal", "-shm"] {
        let path = format!("{}{end}", path.display());
        if let Err(error) = std::fs::remove_file(&path)
            && error.kind() != std::io::ErrorKind::NotFound
        {
            return Err(format!("{path}: {error}").into());
        }
    }
    Ok(())
}

struct Table {
    path: PathBuf,
    connection: Connection,
    made: u128,
}

impl Table {
    fn create(path: PathBuf) -> Result<Self, Failure> {
        let connection = Connection::open(&path)?;
        connection.execute_batch(
            "PRAGMA journal_mode = WAL; PRAGMA synchronous = FULL;
             CREATE TABLE message (pos INTEGER PRIMARY KEY, topic INTEGER, id BLOB, created_ms INTEGER, due_ms INTEGER,
                                   key BLOB, headers BLOB, payload BLOB, repeatable INTEGER)",
        )?;
        Ok(Self { path, connection, made: 0 })
    }
}

#[async_trait]
impl Raw for Table {
    async fn insert(&mut self, rows: usize) -> Result<(), Failure> {
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

    /// Sequential: SQLite has one writer.
    async fn insert_singly(&mut self, rows: usize) -> Result<(), Failure> {
        for _ in 0..rows {
            self.insert(1).await?;
        }
        Ok(())
    }

    async fn insert_one(&mut self) -> Result<(), Failure> {
        self.insert(1).await
    }

    async fn read_all(&mut self) -> Result<usize, Failure> {
        let mut select = self
            .connection
            .prepare("SELECT id, created_ms, due_ms, key, headers, payload FROM message ORDER BY pos")?;
        let mut rows = select.query([])?;
        let mut bytes = 0;
        while let Some(row) = rows.next()? {
            let payload: Vec<u8> = row.get(5)?;
            let _id: [u8; 16] = row.get(0)?;
            bytes += payload.len();
        }
        Ok(bytes)
    }

    async fn log_bytes(&mut self) -> Result<u64, Failure> {
        Ok(0)
    }

    async fn remove(self: Box<Self>) -> Result<(), Failure> {
        drop(self.connection);
        remove(&self.path)
    }
}
