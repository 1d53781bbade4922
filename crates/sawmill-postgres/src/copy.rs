//! Many new messages at once, by COPY. For the server that is about half of the work of an INSERT, and it writes less to its
//! log; but it takes three round trips instead of one, so it is for large batches.

use std::pin::pin;

use bytes::{BufMut, BytesMut};
use futures_util::SinkExt;
use futures_util::future::{join, join3};
use sawmill::log::Record;
use tokio_postgres::Client;

use crate::error::Failure;
use crate::row::{from_shard, from_time};

/// From so many messages on, it is worth it.
pub(crate) const MANY: usize = 500;

/// About how many bytes are sent at a time.
const PORTION: usize = 256 << 10;
/// What a binary COPY begins with: its name, no flags, nothing more.
const HEAD: &[u8] = b"PGCOPY\n\xff\r\n\0\0\0\0\0\0\0\0\0";
const FIELDS: i16 = 10;
/// What it ends with: a row of no fields.
const END: i16 = -1;

/// Appends new messages to a table in a transaction of its own. `number` is a query for the number that they carry.
///
/// COPY needs a statement with a name. It is closed before the transaction ends, so that behind a pooler nobody else meets it.
pub(crate) async fn copy(
    client: &Client,
    table: &str,
    columns: &str,
    number: &str,
    records: &[Record],
) -> Result<(), Failure> {
    let statement = format!("COPY {table} (xid, n, {columns}) FROM STDIN BINARY");
    let begin = client.batch_execute("BEGIN ISOLATION LEVEL READ COMMITTED");
    let (begun, number, statement) =
        join3(begin, client.query_typed_one(number, &[]), client.prepare(&statement)).await;
    begun?;
    let (xid, statement): (i64, _) = (number?.try_get(0)?, statement?);
    let mut sink = pin!(client.copy_in(&statement).await?);
    drop(statement);
    let mut out = BytesMut::from(HEAD);
    // What is read together shall lie together, and in the index too. The numbers keep the order of the push.
    let mut numbered: Vec<(i64, &Record)> = (1i64..).zip(records).collect();
    numbered.sort_by_key(|(_, record)| record.shard);
    for (n, record) in numbered {
        put(&mut out, xid, n, record);
        if out.len() >= PORTION {
            sink.send(out.split().freeze()).await?;
        }
    }
    out.put_i16(END);
    sink.send(out.freeze()).await?;
    // If the copy fails, so does the commit.
    let (copied, committed) = join(sink.as_mut().finish(), client.batch_execute("COMMIT")).await;
    copied?;
    committed?;
    Ok(())
}

fn put(out: &mut BytesMut, xid: i64, n: i64, record: &Record) {
    let message = &record.message;
    out.put_i16(FIELDS);
    field(out, &xid.to_be_bytes());
    field(out, &n.to_be_bytes());
    field(out, &from_shard(record.shard).to_be_bytes());
    field(out, &message.id.as_u128().to_be_bytes());
    field(out, &from_time(message.created).to_be_bytes());
    maybe(out, message.due.map(|due| from_time(due).to_be_bytes()));
    field(out, &[record.repeatable.into()]);
    maybe(out, message.key.as_ref());
    maybe(out, (!message.headers.is_empty()).then(|| message.headers.encode()));
    field(out, &message.payload);
}

fn field(out: &mut BytesMut, bytes: &[u8]) {
    // More than fits does not get here: messages have a largest size.
    out.put_i32(i32::try_from(bytes.len()).unwrap_or(i32::MAX));
    out.put_slice(bytes);
}

fn maybe(out: &mut BytesMut, bytes: Option<impl AsRef<[u8]>>) {
    match bytes {
        Some(bytes) => field(out, bytes.as_ref()),
        None => out.put_i32(-1),
    }
}
