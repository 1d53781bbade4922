//! How fast it is: raw SQLite and Sawmill in one run, on the same disk, so that their ratio means something.
//!
//! `cargo xtask bench sqlite [--n N] [--json]`
//!
//! Raw: plain inserts in transactions of 1,000 into a table of the same columns, then reading all of it back. Sawmill: pushes
//! in batches of 1,000, then one worker whose handler does nothing, until everything is acknowledged. Payloads of 100 bytes.

use std::path::Path;

use rusqlite::{Connection, params};
use sawmill::env::Env;
use sawmill::{Context, Counts, Push};

type Failure = Box<dyn std::error::Error>;

const BATCH: usize = 1000;
const PAYLOAD: [u8; 100] = [b'x'; 100];

struct Settings {
    messages: usize,
    json: bool,
}

fn main() -> Result<(), Failure> {
    let settings = settings()?;
    let folder = tempfile::tempdir_in(".")?;
    let (raw_in, raw_out) = raw(&folder.path().join("raw.db"), settings.messages)?;
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build()?;
    let (pushed, worked, counts) =
        runtime.block_on(sawmill(&folder.path().join("sawmill.db"), settings.messages))?;
    let rate = |seconds: f64| settings.messages as f64 / seconds;
    let (raw_both, both) = (rate(raw_in + raw_out), rate(pushed + worked));
    if settings.json {
        let line = [
            format!("\"messages\":{}", settings.messages),
            format!("\"raw_insert_per_s\":{:.0},\"raw_read_per_s\":{:.0}", rate(raw_in), rate(raw_out)),
            format!("\"push_per_s\":{:.0},\"work_per_s\":{:.0}", rate(pushed), rate(worked)),
            format!("\"raw_end_to_end_per_s\":{raw_both:.0},\"end_to_end_per_s\":{both:.0}"),
            format!("\"ratio\":{:.3}", both / raw_both),
            format!("\"commits\":{},\"reads\":{}", counts.commits, counts.reads),
        ];
        println!("{{{}}}", line.join(","));
        return Ok(());
    }
    println!("{} messages of {} bytes, in batches of {BATCH}", settings.messages, PAYLOAD.len());
    println!("                      raw SQLite        Sawmill    ratio");
    let row = |what: &str, raw: f64, ours: f64| {
        println!("{what:<18} {raw:>11.0}/s  {ours:>11.0}/s  {:>7.2}", ours / raw);
    };
    row("insert / push", rate(raw_in), rate(pushed));
    row("read / work", rate(raw_out), rate(worked));
    row("end to end", raw_both, both);
    let per_thousand = |count: u64| count as f64 * 1000.0 / settings.messages as f64;
    println!(
        "working cost {:.2} ledger commits and {:.2} log reads per 1,000 messages",
        per_thousand(counts.commits),
        per_thousand(counts.reads)
    );
    Ok(())
}

fn settings() -> Result<Settings, Failure> {
    let mut settings = Settings { messages: 500_000, json: false };
    let mut arguments = std::env::args().skip(1);
    while let Some(argument) = arguments.next() {
        match argument.as_str() {
            "--json" => settings.json = true,
            "--n" => {
                let count = arguments.next().unwrap_or_default();
                settings.messages =
                    count.parse().map_err(|_| format!("--n wants a number of messages, not {count:?}"))?;
            }
            other => return Err(format!("{other:?} is not known here: use --n N and --json").into()),
        }
    }
    Ok(settings)
}

/// Seconds to insert, and to read back.
fn raw(path: &Path, messages: usize) -> Result<(f64, f64), Failure> {
    let env = Env::system();
    let mut connection = Connection::open(path)?;
    connection.execute_batch(
        "PRAGMA journal_mode = WAL; PRAGMA synchronous = FULL;
         CREATE TABLE message (pos INTEGER PRIMARY KEY, topic INTEGER, id BLOB, created_ms INTEGER, due_ms INTEGER,
                               key BLOB, headers BLOB, payload BLOB)",
    )?;
    let began = env.now();
    for batch in 0..messages.div_ceil(BATCH) {
        let transaction = connection.transaction()?;
        {
            let mut insert = transaction.prepare_cached(
                "INSERT INTO message (topic, id, created_ms, due_ms, key, headers, payload)
                 VALUES (1, ?1, 1, NULL, NULL, NULL, ?2)",
            )?;
            for nth in 0..BATCH.min(messages - batch * BATCH) {
                let id = ((batch * BATCH + nth) as u128).to_be_bytes();
                insert.execute(params![id, PAYLOAD])?;
            }
        }
        transaction.commit()?;
    }
    let inserted = env.now();
    let mut select = connection
        .prepare("SELECT id, created_ms, due_ms, key, headers, payload FROM message ORDER BY pos")?;
    let mut rows = select.query([])?;
    let mut bytes = 0;
    while let Some(row) = rows.next()? {
        let payload: Vec<u8> = row.get(5)?;
        let id: [u8; 16] = row.get(0)?;
        bytes += payload.len() + usize::from(id[15] > 0);
    }
    let read = env.now();
    assert!(bytes >= messages * PAYLOAD.len(), "everything is read back");
    Ok((inserted.since(began).as_secs_f64(), read.since(inserted).as_secs_f64()))
}

/// Seconds to push, and to work off.
async fn sawmill(path: &Path, messages: usize) -> Result<(f64, f64, Counts), Failure> {
    let env = Env::system();
    let mill = sawmill_sqlite::open(&format!("sqlite:{}", path.display())).await?;
    mill.create_topic("bench").await?;
    let began = env.now();
    for batch in 0..messages.div_ceil(BATCH) {
        let count = BATCH.min(messages - batch * BATCH);
        mill.push_many("bench", (0..count).map(|_| Push::new(&PAYLOAD[..]))).await?;
    }
    let pushed = env.now();
    let worker = mill.worker("bench").start(|_: Context| async {}).await?;
    worker.drained().await;
    let worked = env.now();
    let counts = worker.stop().await;
    assert_eq!(mill.status("bench", "default").await?.done, messages as u64, "everything is acknowledged");
    Ok((pushed.since(began).as_secs_f64(), worked.since(pushed).as_secs_f64(), counts))
}
