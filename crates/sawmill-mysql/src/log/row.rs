//! Conversions between Sawmill's values and columns. Stored values are validated when read.

use bytes::Bytes;
use mysql_async::Row;
use mysql_async::prelude::FromValue;
use sawmill_engine::model::{Headers, Message, MessageId, Topic};
use sawmill_engine::runtime::Timestamp;

use crate::connection::sql::Sql;
use crate::error::{Failure, corrupt};

/// The columns of a message that [`message`] reads after its number.
pub(crate) const MESSAGE: &str = "id, created_ms, due_ms, msg_key, headers, payload";
/// The columns of a message that [`write_message`] writes.
pub(crate) const STORED: &str = "id, created_ms, due_ms, repeatable, size, msg_key, headers, payload";

/// Reads a column of a row.
pub(crate) fn field<T: FromValue>(row: &mut Row, column: usize) -> Result<T, Failure> {
    match row.take_opt(column) {
        Some(Ok(value)) => Ok(value),
        _ => Err(corrupt(format!("something strange in column {column} of a row"))),
    }
}

/// Returns the only row of an answer, if there is one.
pub(crate) fn only(rows: Vec<Row>) -> Option<Row> {
    rows.into_iter().next()
}

/// Extracts the id from the topic's uid. A uid that this engine did not create means a missing topic.
pub(crate) fn topic_id(topic: &Topic) -> Result<u64, Failure> {
    let id = topic.uid.strip_prefix('t').and_then(|digits| digits.parse().ok());
    // Accept only the canonical form, so no two uids mean the same topic.
    id.filter(|id| uid(*id) == topic.uid).ok_or_else(|| topic.missing().into())
}

/// Returns the uid of the topic with this id.
pub(crate) fn uid(id: u64) -> String {
    format!("t{id}")
}

/// A message id as it is stored.
pub(crate) fn id_bytes(id: MessageId) -> [u8; 16] {
    id.as_u128().to_be_bytes()
}

/// Reads the message id in a column.
pub(crate) fn id_of(bytes: &[u8]) -> Result<MessageId, Failure> {
    let bytes = bytes.try_into().map_err(|_| corrupt("a message with a strange id"))?;
    Ok(MessageId::from_u128(u128::from_be_bytes(bytes)))
}

/// Reads the number and the message in a row with a number and [`MESSAGE`].
pub(crate) fn message(mut row: Row) -> Result<(u64, Message), Failure> {
    let number: u64 = field(&mut row, 0)?;
    let wrong = || corrupt(format!("message number {number} with a strange set of headers"));
    let id: Vec<u8> = field(&mut row, 1)?;
    let due: Option<u64> = field(&mut row, 3)?;
    let key: Option<Vec<u8>> = field(&mut row, 4)?;
    let headers: Option<Vec<u8>> = field(&mut row, 5)?;
    let payload: Vec<u8> = field(&mut row, 6)?;
    let message = Message {
        id: id_of(&id)?,
        key: key.map(Bytes::from),
        payload: payload.into(),
        headers: headers
            .map_or(Some(Headers::default()), |bytes| Headers::decode(&bytes))
            .ok_or_else(wrong)?,
        due: due.map(Timestamp::from_millis),
        created: Timestamp::from_millis(field(&mut row, 2)?),
    };
    Ok((number, message))
}

/// The approximate size of a message, to limit how many are read at once.
pub(crate) fn size(message: &Message) -> u64 {
    let headers: usize = message.headers.iter().map(|(name, value)| name.len() + value.len()).sum();
    (message.payload.len() + message.key.as_ref().map_or(0, Bytes::len) + headers) as u64
}

/// Writes the values of [`STORED`].
pub(crate) fn write_message(sql: &mut Sql, message: &Message, repeatable: bool) {
    sql.bytes(&id_bytes(message.id)).add(format_args!(",{},", message.created.as_millis()));
    match message.due {
        Some(due) => sql.add(due.as_millis()),
        None => sql.add("NULL"),
    };
    sql.add(format_args!(",{},{},", u8::from(repeatable), size(message)));
    sql.maybe_bytes(message.key.as_deref()).add(",");
    let headers = (!message.headers.is_empty()).then(|| message.headers.encode());
    sql.maybe_bytes(headers.as_deref()).add(",").bytes(&message.payload);
}
