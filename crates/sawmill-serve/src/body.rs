//! Reads the whole body of a request before its handler runs, within limits for length, time, and the memory
//! of all bodies together.

use std::sync::Arc;

use axum::body::Body;
use axum::http::{HeaderMap, StatusCode, header};
use bytes::{Bytes, BytesMut};
use http_body_util::BodyExt;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

use crate::App;
use crate::answer::{Answer, Problem};

/// How much of a refused body is read and dropped, so that the client gets to read the refusal.
const MAX_DROPPED: usize = 64 << 20;
/// The unit in which memory is counted, in bytes.
const UNIT: usize = 1 << 10;

/// Memory for received bodies, or for jobs that were handed out.
pub(crate) struct MemoryBudget {
    free: Arc<Semaphore>,
}

/// Memory reserved in a budget. Dropping it frees the memory.
#[derive(Default)]
pub(crate) struct Reservation {
    units: usize,
    taken: Option<OwnedSemaphorePermit>,
}

impl MemoryBudget {
    pub(crate) fn new(bytes: usize) -> Self {
        Self { free: Arc::new(Semaphore::new(bytes.div_ceil(UNIT).min(Semaphore::MAX_PERMITS))) }
    }

    /// Grows a reservation to this size. Returns false instead of waiting if too little memory is free: a
    /// waiter would hold memory that other waiters need.
    pub(crate) fn grow(&self, reservation: &mut Reservation, bytes: usize) -> bool {
        let more = bytes.div_ceil(UNIT).saturating_sub(reservation.units);
        let Ok(wanted) = u32::try_from(more) else { return false };
        let Ok(permit) = self.free.clone().try_acquire_many_owned(wanted) else { return false };
        reservation.units += more;
        match &mut reservation.taken {
            Some(taken) => taken.merge(permit),
            None => reservation.taken = Some(permit),
        }
        true
    }
}

/// Reads the whole body within the limits for length and time, and returns it with its memory reservation.
pub(crate) async fn whole(
    app: &App,
    most: usize,
    headers: &HeaderMap,
    body: Body,
) -> Answer<(Bytes, Reservation)> {
    let declared = headers.get(header::CONTENT_LENGTH).and_then(|length| length.to_str().ok()?.parse().ok());
    let reading = read(&app.memory, most, declared.unwrap_or(0), body);
    let slow = || {
        Problem::new(
            StatusCode::REQUEST_TIMEOUT,
            format!("the body did not arrive within {:?}", app.options.patience),
            "send it faster, or less at once",
        )
    };
    app.env.within(app.options.patience, reading).await.ok_or_else(slow)?
}

async fn read(
    memory: &MemoryBudget,
    most: usize,
    declared: usize,
    mut body: Body,
) -> Answer<(Bytes, Reservation)> {
    let (mut bytes, mut reservation, mut dropped) = (BytesMut::new(), Reservation::default(), 0);
    let mut refusal = (declared > most).then(|| too_long(most));
    while let Some(frame) = body.frame().await {
        let frame = frame
            .map_err(|error| Problem::bad(format!("the body was cut short: {error}"), "send all of it"))?;
        let Ok(data) = frame.into_data() else { continue };
        let length = bytes.len() + data.len();
        if refusal.is_none() && length > most {
            refusal = Some(too_long(most));
        }
        if refusal.is_none() && !memory.grow(&mut reservation, length) {
            refusal = Some(memory_exhausted());
        }
        if refusal.is_none() {
            bytes.extend_from_slice(&data);
            continue;
        }
        (bytes, reservation) = Default::default();
        dropped += data.len();
        if dropped > MAX_DROPPED {
            break;
        }
    }
    match refusal {
        None => Ok((bytes.freeze(), reservation)),
        Some(refusal) => Err(refusal),
    }
}

fn too_long(most: usize) -> Problem {
    Problem::new(
        StatusCode::PAYLOAD_TOO_LARGE,
        format!("the body is longer than {most} bytes"),
        "send less at once",
    )
}

fn memory_exhausted() -> Problem {
    Problem::new(
        StatusCode::SERVICE_UNAVAILABLE,
        "too much is being sent to this server at once",
        "nothing was done: send it again in a moment",
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn all_bodies_together_have_the_room_there_is() {
        let memory = MemoryBudget::new(10 * UNIT);
        let (mut one, mut other) = (Reservation::default(), Reservation::default());
        assert!(memory.grow(&mut one, 1) && memory.grow(&mut one, 6 * UNIT));
        assert!(memory.grow(&mut one, 6 * UNIT), "it is as large already");
        assert!(memory.grow(&mut other, 4 * UNIT) && !memory.grow(&mut other, 4 * UNIT + 1));
        drop(one);
        assert!(memory.grow(&mut other, 10 * UNIT) && !memory.grow(&mut other, usize::MAX));
    }

    #[tokio::test]
    async fn who_finds_no_room_is_told_and_leaves_none_taken() {
        let memory = MemoryBudget::new(4 * UNIT);
        let body = |units: usize| Body::from(vec![b'x'; units * UNIT]);
        let (_, reservation) = read(&memory, usize::MAX, 0, body(3)).await.unwrap();
        let refused = read(&memory, usize::MAX, 0, body(2)).await.err().unwrap();
        assert_eq!(refused.status, StatusCode::SERVICE_UNAVAILABLE);
        drop(reservation);
        assert_eq!(read(&memory, usize::MAX, 0, body(4)).await.unwrap().0.len(), 4 * UNIT);
    }
}
