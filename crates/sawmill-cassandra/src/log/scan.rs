//! Scans a shard for rows that no segment names.

use sawmill_engine::Result;

use crate::log::row::{Kind, Named, RowKey};
use crate::log::tail::Window;
use crate::log::topics::Shape;
use crate::store::{Cassandra, read};

/// Rows per query. One query sees the shard at one moment.
const PAGE: i32 = 2000;
/// A range of more buckets than this is looked up in the list of existing buckets.
const FEW: i64 = 3;

/// The result of a scan.
#[derive(Debug, Default)]
pub(crate) struct Scanned {
    /// The rows that no segment names, in their order.
    pub(crate) rows: Vec<Named>,
    /// One query has read all of it, so it shows the shard at one moment.
    pub(crate) one_moment: bool,
    /// There are no rows after them.
    pub(crate) end: bool,
}

type Row = (i64, i64, i64, i32, i32, i64, Option<bool>);

impl Cassandra {
    /// The buckets of a shard that may hold rows after a key, up to a time.
    pub(crate) async fn buckets(
        &self,
        shape: &Shape,
        kind: Kind,
        shard: u16,
        after: &RowKey,
        upto: i64,
    ) -> Result<Vec<i64>> {
        let (first, last) = (shape.bucket(after.at), shape.bucket(upto));
        if last.saturating_sub(first) < FEW {
            return Ok((first..=last).collect());
        }
        let listed = self.listed_buckets(shape, kind, first, last).await?;
        Ok(listed.into_iter().filter(|(_, of)| *of == shard).map(|(bucket, _)| bucket).collect())
    }

    /// The existing buckets of all shards, ascending.
    pub(crate) async fn listed_buckets(
        &self,
        shape: &Shape,
        kind: Kind,
        first: i64,
        last: i64,
    ) -> Result<Vec<(i64, u16)>> {
        let values = (&shape.uid, kind.number(), first, last);
        let rows: Vec<(i64, i32)> = read(self.link().all(&self.link().statements.bucket_list, values).await)?;
        Ok(rows
            .into_iter()
            .filter_map(|(bucket, shard)| Some((bucket, u16::try_from(shard).ok()?)))
            .collect())
    }

    /// Scans these buckets between two keys until it has found `enough` unnamed rows, or all.
    pub(crate) async fn scan(
        &self,
        shape: &Shape,
        kind: Kind,
        shard: u16,
        (window, from, upto): (&Window, RowKey, RowKey),
        buckets: &[i64],
        enough: usize,
    ) -> Result<Scanned> {
        let mut found = Scanned { one_moment: true, ..Scanned::default() };
        let mut queries = 0;
        for bucket in buckets {
            let mut after = from;
            loop {
                let values = (
                    &shape.uid,
                    *bucket,
                    i32::from(shard),
                    kind.number(),
                    after.at,
                    after.seq,
                    after.writer,
                    upto.at,
                    upto.seq,
                    upto.writer,
                    PAGE,
                );
                let rows = self.link().execute(&self.link().statements.row_keys, values).await;
                let rows: Vec<Row> = read(rows.and_then(crate::connection::link::Answer::rows))?;
                queries += 1;
                let whole = rows.len() < PAGE as usize;
                let rows = rows.into_iter().map(|row| named(kind, row));
                for row in rows {
                    after = row.key;
                    if !window.knows(&row.key) {
                        found.rows.push(row);
                    }
                }
                if found.rows.len() >= enough {
                    found.one_moment = queries == 1;
                    found.end = whole && Some(bucket) == buckets.last();
                    return Ok(found);
                }
                if whole {
                    break;
                }
            }
        }
        found.one_moment = queries <= 1;
        found.end = true;
        Ok(found)
    }
}

fn named(kind: Kind, (at, seq, writer, many, bytes, created, slow): Row) -> Named {
    let number = |value: i32| u32::try_from(value).unwrap_or_default();
    let key = RowKey { at, seq, writer };
    Named { kind, key, many: number(many), bytes: number(bytes), created, slow: slow.unwrap_or(false) }
}
