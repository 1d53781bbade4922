//! Hints. Kafka tells those who read a topic that something was written. Others who are in the same process hear of it at once,
//! and all others find it when they look.

use std::collections::HashMap;
use std::sync::{Arc, LazyLock, Mutex, Weak};

use sawmill::log::Hints;
use tokio::sync::watch;

/// Rung when messages were written or read.
#[derive(Debug, Default)]
pub(crate) struct Bells {
    messages: watch::Sender<()>,
}

impl Bells {
    /// The bells of a place, which all have in common who have opened it in this process.
    pub(crate) fn of(place: String) -> Arc<Self> {
        static OPEN: LazyLock<Mutex<HashMap<String, Weak<Bells>>>> = LazyLock::new(Mutex::default);
        let mut open = OPEN.lock().unwrap_or_else(|poisoned| poisoned.into_inner());
        open.retain(|_, bells| bells.strong_count() > 0);
        let there = open.get(&place).and_then(Weak::upgrade);
        there.unwrap_or_else(|| {
            let bells = Arc::new(Self::default());
            open.insert(place, Arc::downgrade(&bells));
            bells
        })
    }

    pub(crate) fn ring_messages(&self) {
        self.messages.send_replace(());
    }

    /// For those who ring it when they read something.
    pub(crate) fn messages(&self) -> watch::Sender<()> {
        self.messages.clone()
    }

    pub(crate) fn message_hints(&self) -> Hints {
        Hints::new(self.messages.subscribe())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bells_are_common_to_those_who_have_the_same_place_open() {
        let one = Bells::of("here".to_owned());
        assert!(Arc::ptr_eq(&one, &Bells::of("here".to_owned())));
        assert!(!Arc::ptr_eq(&one, &Bells::of("there".to_owned())));
    }
}
