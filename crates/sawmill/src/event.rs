//! A stream of what happens in this process: for dashboards, tests, and programs that act on it.
//!
//! Listening never slows the workers down and never fills the memory. A listener that falls behind misses events, and is
//! told how many. While nobody listens, an event costs one look at a counter.

use std::collections::VecDeque;
use std::pin::Pin;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard};
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use futures_util::Stream;

use crate::claim::WorkerId;
use crate::message::MessageId;
use crate::topic::{GroupName, TopicName};

/// How many events wait for a listener before it misses some.
const MOST_WAITING: usize = 1024;

/// Something that has happened in this process; see [`Sawmill::events`](crate::Sawmill::events).
///
/// What other processes do is not seen here, unless it shows: that their workers come and go, or leave claims to adopt.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum Event {
    /// Messages were pushed, and are durable. A worker that is quick may have started them before.
    Pushed {
        /// To which topic.
        topic: TopicName,
        /// The id of the first of them.
        id: MessageId,
        /// How many there are.
        count: usize,
    },
    /// A handler is called.
    Started {
        /// The message's topic.
        topic: TopicName,
        /// The group in which it is handled.
        group: GroupName,
        /// The id that the push returned.
        id: MessageId,
        /// The worker that handles it.
        worker: WorkerId,
        /// Which attempt this is, from 1.
        attempt: u32,
    },
    /// A handler said done.
    Done {
        /// The message's topic.
        topic: TopicName,
        /// The group in which it was handled.
        group: GroupName,
        /// The id that the push returned.
        id: MessageId,
        /// The worker that handled it.
        worker: WorkerId,
        /// Which attempt this was, from 1.
        attempt: u32,
    },
    /// An attempt failed.
    Failed {
        /// The message's topic.
        topic: TopicName,
        /// The group in which it was handled.
        group: GroupName,
        /// The id that the push returned.
        id: MessageId,
        /// The worker that handled it.
        worker: WorkerId,
        /// Which attempt this was, from 1.
        attempt: u32,
        /// What went wrong.
        error: String,
        /// How long it waits for its next attempt; `None` if there is none.
        next: Option<Duration>,
    },
    /// A handler asked for a message to come again later.
    Snoozed {
        /// The message's topic.
        topic: TopicName,
        /// The group in which it was handled.
        group: GroupName,
        /// The id that the push returned.
        id: MessageId,
        /// The worker that handled it.
        worker: WorkerId,
        /// How long it waits.
        next: Duration,
    },
    /// A message has become a dead letter.
    Dead {
        /// The message's topic.
        topic: TopicName,
        /// The group that has given it up.
        group: GroupName,
        /// The id that the push returned.
        id: MessageId,
        /// The worker that made the letter.
        worker: WorkerId,
        /// Why.
        reason: String,
    },
    /// A message was given up, in a group that only logs that.
    Dropped {
        /// The message's topic.
        topic: TopicName,
        /// The group that has given it up.
        group: GroupName,
        /// The id that the push returned.
        id: MessageId,
        /// The worker that handled it.
        worker: WorkerId,
    },
    /// A person has cancelled the message while it ran.
    Cancelled {
        /// The message's topic.
        topic: TopicName,
        /// The group that has given it up.
        group: GroupName,
        /// The id that the push returned.
        id: MessageId,
        /// The worker that handled it.
        worker: WorkerId,
    },
    /// A worker of this process has joined its group.
    Joined {
        /// The group.
        group: GroupName,
        /// The worker, under its new id.
        worker: WorkerId,
    },
    /// A worker of this process has left its group.
    Left {
        /// The group.
        group: GroupName,
        /// The worker.
        worker: WorkerId,
    },
    /// A worker of this process found itself declared dead. It drops what it held, and joins anew under another id.
    Evicted {
        /// The group.
        group: GroupName,
        /// The worker, under the id that is gone.
        worker: WorkerId,
    },
    /// A worker of this process has declared another one dead.
    DeclaredDead {
        /// The group.
        group: GroupName,
        /// The dead one.
        worker: WorkerId,
    },
    /// A worker of this process has taken over claims that nobody worked.
    Adopted {
        /// The topic.
        topic: TopicName,
        /// The group.
        group: GroupName,
        /// The worker that works them now.
        worker: WorkerId,
        /// How many claims.
        claims: usize,
    },
    /// A worker of this process has seen the set of workers change.
    Rebalanced {
        /// The group.
        group: GroupName,
        /// The worker that saw it.
        worker: WorkerId,
        /// How many workers the group has now.
        members: usize,
    },
    /// This many events came while too many were waiting already, and are lost to this listener.
    Missed(u64),
}

/// Events as they happen: by [`next`](Events::next), or as a [`Stream`]. Up to 1,024 wait to be taken; then some are missed.
#[derive(Debug)]
pub struct Events {
    ear: Arc<Mutex<Ear>>,
    bell: std::sync::Weak<Bell>,
}

impl Events {
    /// The next event; `None` when the store is closed and no worker of it runs any more.
    pub async fn next(&mut self) -> Option<Event> {
        std::future::poll_fn(|context| self.poll(context)).await
    }

    /// The next event, if one waits already.
    pub fn try_next(&mut self) -> Option<Event> {
        lock(&self.ear).take()
    }

    fn poll(&self, context: &mut Context<'_>) -> Poll<Option<Event>> {
        let mut ear = lock(&self.ear);
        match ear.take() {
            Some(event) => Poll::Ready(Some(event)),
            None if ear.closed => Poll::Ready(None),
            None => {
                ear.waker = Some(context.waker().clone());
                Poll::Pending
            }
        }
    }
}

impl Stream for Events {
    type Item = Event;
    fn poll_next(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<Event>> {
        self.poll(context)
    }
}

impl Drop for Events {
    fn drop(&mut self) {
        if let Some(bell) = self.bell.upgrade() {
            bell.forget(&self.ear);
        }
    }
}

/// What waits for one listener.
#[derive(Debug, Default)]
struct Ear {
    waiting: VecDeque<Event>,
    /// How many events were lost after those that wait.
    missed: u64,
    waker: Option<Waker>,
    closed: bool,
}

impl Ear {
    fn hear(&mut self, event: Event) {
        if self.missed > 0 && self.waiting.len() < MOST_WAITING - 1 {
            self.waiting.push_back(Event::Missed(std::mem::take(&mut self.missed)));
        }
        if self.missed > 0 || self.waiting.len() >= MOST_WAITING {
            self.missed += 1;
        } else {
            self.waiting.push_back(event);
        }
    }

    fn take(&mut self) -> Option<Event> {
        let missed = |missed: u64| (missed > 0).then_some(Event::Missed(missed));
        self.waiting.pop_front().or_else(|| missed(std::mem::take(&mut self.missed)))
    }
}

/// Where events are made known.
#[derive(Debug, Default)]
pub(crate) struct Bell {
    listening: AtomicUsize,
    ears: Mutex<Vec<Arc<Mutex<Ear>>>>,
}

impl Bell {
    pub(crate) fn listen(self: &Arc<Self>) -> Events {
        let ear = Arc::<Mutex<Ear>>::default();
        let mut ears = lock(&self.ears);
        ears.push(ear.clone());
        self.listening.store(ears.len(), Ordering::Relaxed);
        Events { ear, bell: Arc::downgrade(self) }
    }

    /// Makes an event known, if there is one. It is made only if somebody listens.
    pub(crate) fn ring<E: Into<Option<Event>>>(&self, event: impl FnOnce() -> E) {
        if self.listening.load(Ordering::Relaxed) == 0 {
            return;
        }
        let Some(event) = event().into() else { return };
        let mut wakers = Vec::new();
        for ear in lock(&self.ears).iter() {
            let mut ear = lock(ear);
            ear.hear(event.clone());
            wakers.extend(ear.waker.take());
        }
        wakers.into_iter().for_each(Waker::wake);
    }

    fn forget(&self, ear: &Arc<Mutex<Ear>>) {
        let mut ears = lock(&self.ears);
        ears.retain(|other| !Arc::ptr_eq(other, ear));
        self.listening.store(ears.len(), Ordering::Relaxed);
    }
}

impl Drop for Bell {
    fn drop(&mut self) {
        for ear in lock(&self.ears).iter() {
            let mut ear = lock(ear);
            ear.closed = true;
            if let Some(waker) = ear.waker.take() {
                waker.wake();
            }
        }
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(|poisoned| poisoned.into_inner())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn left(number: usize) -> Event {
        Event::Left { group: "g".parse().unwrap(), worker: WorkerId::new(number.to_string()) }
    }

    fn heard(events: &mut Events) -> Vec<Event> {
        std::iter::from_fn(|| events.try_next()).collect()
    }

    #[test]
    fn every_listener_hears_what_happens_while_it_listens() {
        let bell = Arc::<Bell>::default();
        bell.ring(|| -> Event { panic!("nobody listens") });
        let mut first = bell.listen();
        bell.ring(|| left(1));
        let mut second = bell.listen();
        bell.ring(|| left(2));
        assert_eq!(heard(&mut first), [left(1), left(2)]);
        assert_eq!(heard(&mut second), [left(2)]);
        drop((first, second));
        bell.ring(|| -> Event { panic!("nobody listens any more") });
    }

    #[test]
    fn a_slow_listener_is_told_how_much_it_missed_and_where() {
        let bell = Arc::<Bell>::default();
        let mut events = bell.listen();
        (0..MOST_WAITING + 5).for_each(|number| bell.ring(|| left(number)));
        assert_eq!(events.try_next(), Some(left(0)));
        bell.ring(|| left(77));
        assert_eq!(events.try_next(), Some(left(1)), "there must be room for the notice and the event");
        bell.ring(|| left(88));
        let rest = heard(&mut events);
        assert_eq!(rest.len(), MOST_WAITING, "never more than this");
        assert_eq!(rest[MOST_WAITING - 3..], [left(MOST_WAITING - 1), Event::Missed(6), left(88)]);
        (0..MOST_WAITING + 5).for_each(|number| bell.ring(|| left(number)));
        let all = heard(&mut events);
        assert_eq!(all.len(), MOST_WAITING + 1);
        assert_eq!(all.last(), Some(&Event::Missed(5)), "also when nothing comes after it");
    }

    #[tokio::test]
    async fn the_stream_ends_with_its_store() {
        let bell = Arc::<Bell>::default();
        let mut events = bell.listen();
        bell.ring(|| left(1));
        drop(bell);
        assert_eq!(events.next().await, Some(left(1)));
        assert_eq!(events.next().await, None);
    }
}
