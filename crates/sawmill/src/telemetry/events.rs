//! A stream of events in this process, for dashboards, tests, and programs that act on them.
//!
//! Listeners never slow workers down, and their memory is bounded: a listener that falls behind misses
//! events, and learns how many. While nobody listens, an event costs one read of a counter.

use std::collections::VecDeque;
use std::pin::Pin;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard};
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use futures_util::Stream;
use sawmill_engine::model::{GroupName, MessageId, TopicName, WorkerId};

/// How many events can wait for a listener before it misses some.
const MAX_WAITING: usize = 1024;

/// An event in this process; see [`Sawmill::events`](crate::Sawmill::events).
///
/// Other processes are seen only through their effects here: their workers join, leave, die, or leave claims
/// to take over.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum Event {
    /// Messages were pushed, and are durable. A fast worker may have started them before this event.
    Pushed {
        /// The topic.
        topic: TopicName,
        /// The id of the first message.
        id: MessageId,
        /// The number of messages.
        count: usize,
    },
    /// A handler was started.
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
    /// A message is done.
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
        /// How long the message waits for its next attempt; `None` if there is none.
        next: Option<Duration>,
    },
    /// A handler asked for its message to come again later.
    Snoozed {
        /// The message's topic.
        topic: TopicName,
        /// The group in which it was handled.
        group: GroupName,
        /// The id that the push returned.
        id: MessageId,
        /// The worker that handled it.
        worker: WorkerId,
        /// How long the message waits.
        next: Duration,
    },
    /// A message has become a dead letter.
    Dead {
        /// The message's topic.
        topic: TopicName,
        /// The group that gave it up.
        group: GroupName,
        /// The id that the push returned.
        id: MessageId,
        /// The worker that gave it up.
        worker: WorkerId,
        /// Why the message was given up.
        reason: String,
    },
    /// A message was given up, in a group that only logs that.
    Dropped {
        /// The message's topic.
        topic: TopicName,
        /// The group that gave it up.
        group: GroupName,
        /// The id that the push returned.
        id: MessageId,
        /// The worker that handled it.
        worker: WorkerId,
    },
    /// A message was cancelled while it ran.
    Cancelled {
        /// The message's topic.
        topic: TopicName,
        /// The group in which it was handled.
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
    /// A worker of this process found itself declared dead. It drops its claims, and joins again under a new
    /// id.
    Evicted {
        /// The group.
        group: GroupName,
        /// The worker, under its old id.
        worker: WorkerId,
    },
    /// A worker of this process has declared another one dead.
    DeclaredDead {
        /// The group.
        group: GroupName,
        /// The dead worker.
        worker: WorkerId,
    },
    /// A worker of this process has taken over claims without a worker.
    Adopted {
        /// The topic.
        topic: TopicName,
        /// The group.
        group: GroupName,
        /// The worker that holds the claims now.
        worker: WorkerId,
        /// The number of claims.
        claims: usize,
    },
    /// A worker of this process has seen the set of workers change.
    Rebalanced {
        /// The group.
        group: GroupName,
        /// The worker that saw the change.
        worker: WorkerId,
        /// The number of workers that the group has now.
        workers: usize,
    },
    /// This listener fell behind, and missed this many events.
    Missed(u64),
}

/// A listener for events, by [`next`](Events::next) or as a [`Stream`]; returned by
/// [`Sawmill::events`](crate::Sawmill::events). Up to 1,024 events wait to be taken; further ones are
/// [missed](Event::Missed).
#[derive(Debug)]
pub struct Events {
    listener: Arc<Mutex<Listener>>,
    bus: std::sync::Weak<EventBus>,
}

impl Events {
    /// Waits for the next event; `None` when the store is closed and none of its workers runs any more.
    pub async fn next(&mut self) -> Option<Event> {
        std::future::poll_fn(|context| self.poll(context)).await
    }

    /// Returns the next event, if one is waiting.
    pub fn try_next(&mut self) -> Option<Event> {
        lock(&self.listener).take()
    }

    fn poll(&self, context: &mut Context<'_>) -> Poll<Option<Event>> {
        let mut listener = lock(&self.listener);
        match listener.take() {
            Some(event) => Poll::Ready(Some(event)),
            None if listener.closed => Poll::Ready(None),
            None => {
                listener.waker = Some(context.waker().clone());
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
        if let Some(bus) = self.bus.upgrade() {
            bus.forget(&self.listener);
        }
    }
}

/// The events that wait for one listener.
#[derive(Debug, Default)]
struct Listener {
    waiting: VecDeque<Event>,
    /// How many events were missed after the waiting ones.
    missed: u64,
    waker: Option<Waker>,
    closed: bool,
}

impl Listener {
    fn receive(&mut self, event: Event) {
        if self.missed > 0 && self.waiting.len() < MAX_WAITING - 1 {
            self.waiting.push_back(Event::Missed(std::mem::take(&mut self.missed)));
        }
        if self.missed > 0 || self.waiting.len() >= MAX_WAITING {
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

/// Distributes events to the listeners of an open store.
#[derive(Debug, Default)]
pub(crate) struct EventBus {
    listening: AtomicUsize,
    listeners: Mutex<Vec<Arc<Mutex<Listener>>>>,
}

impl EventBus {
    pub(crate) fn subscribe(self: &Arc<Self>) -> Events {
        let listener = Arc::<Mutex<Listener>>::default();
        let mut listeners = lock(&self.listeners);
        listeners.push(listener.clone());
        self.listening.store(listeners.len(), Ordering::Relaxed);
        Events { listener, bus: Arc::downgrade(self) }
    }

    /// Sends an event to all listeners. `event` is called only if there are any, and may return `None`.
    pub(crate) fn publish<E: Into<Option<Event>>>(&self, event: impl FnOnce() -> E) {
        if self.listening.load(Ordering::Relaxed) == 0 {
            return;
        }
        let Some(event) = event().into() else { return };
        let mut wakers = Vec::new();
        for listener in lock(&self.listeners).iter() {
            let mut listener = lock(listener);
            listener.receive(event.clone());
            wakers.extend(listener.waker.take());
        }
        wakers.into_iter().for_each(Waker::wake);
    }

    fn forget(&self, listener: &Arc<Mutex<Listener>>) {
        let mut listeners = lock(&self.listeners);
        listeners.retain(|other| !Arc::ptr_eq(other, listener));
        self.listening.store(listeners.len(), Ordering::Relaxed);
    }
}

impl Drop for EventBus {
    fn drop(&mut self) {
        for listener in lock(&self.listeners).iter() {
            let mut listener = lock(listener);
            listener.closed = true;
            if let Some(waker) = listener.waker.take() {
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

    fn drain(events: &mut Events) -> Vec<Event> {
        std::iter::from_fn(|| events.try_next()).collect()
    }

    #[test]
    fn every_listener_hears_what_happens_while_it_listens() {
        let bus = Arc::<EventBus>::default();
        bus.publish(|| -> Event { panic!("nobody listens") });
        let mut first = bus.subscribe();
        bus.publish(|| left(1));
        let mut second = bus.subscribe();
        bus.publish(|| left(2));
        assert_eq!(drain(&mut first), [left(1), left(2)]);
        assert_eq!(drain(&mut second), [left(2)]);
        drop((first, second));
        bus.publish(|| -> Event { panic!("nobody listens any more") });
    }

    #[test]
    fn a_slow_listener_is_told_how_much_it_missed_and_where() {
        let bus = Arc::<EventBus>::default();
        let mut events = bus.subscribe();
        (0..MAX_WAITING + 5).for_each(|number| bus.publish(|| left(number)));
        assert_eq!(events.try_next(), Some(left(0)));
        bus.publish(|| left(77));
        assert_eq!(events.try_next(), Some(left(1)), "there must be room for the notice and the event");
        bus.publish(|| left(88));
        let rest = drain(&mut events);
        assert_eq!(rest.len(), MAX_WAITING, "never more than the maximum");
        assert_eq!(rest[MAX_WAITING - 3..], [left(MAX_WAITING - 1), Event::Missed(6), left(88)]);
        (0..MAX_WAITING + 5).for_each(|number| bus.publish(|| left(number)));
        let all = drain(&mut events);
        assert_eq!(all.len(), MAX_WAITING + 1);
        assert_eq!(all.last(), Some(&Event::Missed(5)), "also when nothing comes after it");
    }

    #[tokio::test]
    async fn the_stream_ends_with_its_store() {
        let bus = Arc::<EventBus>::default();
        let mut events = bus.subscribe();
        bus.publish(|| left(1));
        drop(bus);
        assert_eq!(events.next().await, Some(left(1)));
        assert_eq!(events.next().await, None);
    }
}
