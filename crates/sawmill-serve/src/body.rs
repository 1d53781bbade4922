//! Bodies: read whole before anything is done with them, within limits of length and time, and of memory for all of them
//! together.

use std::sync::Arc;

use axum::body::Body;
use axum::http::{HeaderMap, StatusCode, header};
use bytes::{Bytes, BytesMut};
use http_body_util::BodyExt;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

use crate::App;
use crate::answer::{Answer, Problem};

/// How much of a body that is refused is read and dropped, so that its sender gets to hear why.
const MOST_DROPPED: usize = 64 << 20;
/// In what pieces memory is counted.
const PIECE: usize = 1 << 10;

/// Room in memory for what is sent to us, or for what is out.
pub(crate) struct Room {
    free: Arc<Semaphore>,
}

/// What somebody takes of the room, until it is dropped.
#[derive(Default)]
pub(crate) struct Place {
    pieces: usize,
    taken: Option<OwnedSemaphorePermit>,
}

impl Room {
    pub(crate) fn new(bytes: usize) -> Self {
        Self { free: Arc::new(Semaphore::new(bytes.div_ceil(PIECE).min(Semaphore::MAX_PERMITS))) }
    }

    /// Makes a place as large as this. It is false if there is no room: who waited for it would keep what others wait for.
    pub(crate) fn widen(&self, place: &mut Place, bytes: usize) -> bool {
        let more = bytes.div_ceil(PIECE).saturating_sub(place.pieces);
        let Ok(wanted) = u32::try_from(more) else { return false };
        let Ok(permit) = self.free.clone().try_acquire_many_owned(wanted) else { return false };
        place.pieces += more;
        match &mut place.taken {
            Some(taken) => taken.merge(permit),
            None => place.taken = Some(permit),
        }
        true
    }
}

/// The whole body, if it is not too long and does not take too long, and its place in memory.
pub(crate) async fn whole(app: &App, most: usize, headers: &HeaderMap, body: Body) -> Answer<(Bytes, Place)> {
    let said = headers.get(header::CONTENT_LENGTH).and_then(|length| length.to_str().ok()?.parse().ok());
    let reading = read(&app.room, most, said.unwrap_or(0), body);
    let slow = || {
        Problem::new(
            StatusCode::REQUEST_TIMEOUT,
            format!("the body did not arrive within {:?}", app.options.patience),
            "send it faster, or less at once",
        )
    };
    app.env.within(app.options.patience, reading).await.ok_or_else(slow)?
}

async fn read(room: &Room, most: usize, said: usize, mut body: Body) -> Answer<(Bytes, Place)> {
    let (mut bytes, mut place, mut dropped) = (BytesMut::new(), Place::default(), 0);
    let mut refusal = (said > most).then(|| too_long(most));
    while let Some(frame) = body.frame().await {
        let frame = frame
            .map_err(|error| Problem::bad(format!("the body was cut short: {error}"), "send all of it"))?;
        let Ok(data) = frame.into_data() else { continue };
        let length = bytes.len() + data.len();
        if refusal.is_none() && length > most {
            refusal = Some(too_long(most));
        }
        if refusal.is_none() && !room.widen(&mut place, length) {
            refusal = Some(no_room());
        }
        if refusal.is_none() {
            bytes.extend_from_slice(&data);
            continue;
        }
        (bytes, place) = Default::default();
        dropped += data.len();
        if dropped > MOST_DROPPED {
            break;
        }
    }
    match refusal {
        None => Ok((bytes.freeze(), place)),
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

fn no_room() -> Problem {
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
        let room = Room::new(10 * PIECE);
        let (mut one, mut other) = (Place::default(), Place::default());
        assert!(room.widen(&mut one, 1) && room.widen(&mut one, 6 * PIECE));
        assert!(room.widen(&mut one, 6 * PIECE), "it is as large already");
        assert!(room.widen(&mut other, 4 * PIECE) && !room.widen(&mut other, 4 * PIECE + 1));
        drop(one);
        assert!(room.widen(&mut other, 10 * PIECE) && !room.widen(&mut other, usize::MAX));
    }

    #[tokio::test]
    async fn who_finds_no_room_is_told_and_leaves_none_taken() {
        let room = Room::new(4 * PIECE);
        let body = |pieces: usize| Body::from(vec![b'x'; pieces * PIECE]);
        let (_, place) = read(&room, usize::MAX, 0, body(3)).await.unwrap();
        let refused = read(&room, usize::MAX, 0, body(2)).await.err().unwrap();
        assert_eq!(refused.status, StatusCode::SERVICE_UNAVAILABLE);
        drop(place);
        assert_eq!(read(&room, usize::MAX, 0, body(4)).await.unwrap().0.len(), 4 * PIECE);
    }
}
