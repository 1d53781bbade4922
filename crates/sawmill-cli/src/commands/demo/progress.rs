//! The progress of each letter, from the events that the delivery processes log, and the counts at the end.

use std::collections::HashMap;

use super::letter::Letter;

/// An event of a delivery process.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Event {
    Started,
    Failed,
    /// The letter can never be delivered.
    Dead,
    Delivered,
    /// The letter had been delivered before: nothing was done.
    Repeated,
}

const WORDS: &[(Event, &str)] = &[
    (Event::Started, "started"),
    (Event::Failed, "failed"),
    (Event::Dead, "dead"),
    (Event::Delivered, "delivered"),
    (Event::Repeated, "repeated"),
];

impl Event {
    /// Returns the line for the event log.
    pub(super) fn line(self, id: &str, worker: usize) -> String {
        let word = WORDS.iter().find(|(event, _)| *event == self).map_or("", |(_, word)| word);
        format!("{word} {id} {worker}\n")
    }
}

/// The state of a letter.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum State {
    Waiting,
    /// The letter is not due yet.
    Later,
    Running {
        worker: usize,
    },
    /// The delivery failed and will be retried.
    Failed,
    Delivered {
        worker: usize,
    },
    Dead,
}

/// The progress of one letter.
#[derive(Debug, Clone)]
pub(super) struct LetterProgress {
    pub(super) to: Option<String>,
    pub(super) state: State,
    failures: u32,
    starts: u32,
    deliveries: u32,
    /// Its number among all deliveries.
    arrived: Option<usize>,
}

#[derive(Debug)]
pub(super) struct Progress {
    /// The letters in the order of their pushes.
    pub(super) letters: Vec<LetterProgress>,
    ids: HashMap<String, usize>,
    deliveries: usize,
}

impl Progress {
    pub(super) fn new(letters: impl IntoIterator<Item = (String, Letter)>) -> Self {
        let mut progress = Self { letters: Vec::new(), ids: HashMap::new(), deliveries: 0 };
        for (id, letter) in letters {
            progress.ids.insert(id, progress.letters.len());
            let state = if letter.later.is_some() { State::Later } else { State::Waiting };
            progress.letters.push(LetterProgress {
                to: letter.to,
                state,
                failures: 0,
                starts: 0,
                deliveries: 0,
                arrived: None,
            });
        }
        progress
    }

    /// Applies a line of the event log. Unknown lines are ignored.
    pub(super) fn apply(&mut self, line: &str) {
        let mut words = line.split(' ');
        let event = words.next().and_then(|word| WORDS.iter().find(|(_, known)| *known == word));
        let letter = words.next().and_then(|id| self.ids.get(id)).and_then(|nth| self.letters.get_mut(*nth));
        let worker = words.next().and_then(|worker| worker.parse().ok());
        let (Some((event, _)), Some(letter), Some(worker)) = (event, letter, worker) else { return };
        match event {
            Event::Started => {
                letter.starts += 1;
                letter.state = State::Running { worker };
            }
            Event::Failed => {
                letter.failures += 1;
                letter.state = State::Failed;
            }
            Event::Dead => letter.state = State::Dead,
            Event::Delivered => {
                self.deliveries += 1;
                letter.deliveries += 1;
                letter.arrived.get_or_insert(self.deliveries);
                letter.state = State::Delivered { worker };
            }
            Event::Repeated => letter.state = State::Delivered { worker },
        }
    }

    /// Returns how many letters a worker has in hand.
    pub(super) fn held_by(&self, dead: usize) -> usize {
        let held = |letter: &&LetterProgress| letter.state == State::Running { worker: dead };
        self.letters.iter().filter(held).count()
    }

    pub(super) fn is_over(&self) -> bool {
        self.letters.iter().all(|letter| matches!(letter.state, State::Delivered { .. } | State::Dead))
    }

    pub(super) fn proof(&self) -> Proof {
        let count = |holds: &dyn Fn(&LetterProgress) -> bool| {
            self.letters.iter().filter(|letter| holds(letter)).count()
        };
        let delivered = count(&|letter| letter.deliveries > 0);
        let dead = count(&|letter| letter.state == State::Dead);
        Proof {
            pushed: self.letters.len(),
            delivered,
            retried: count(&|letter| letter.failures > 0 && letter.deliveries > 0),
            interrupted: count(&|letter| {
                letter.starts > letter.failures + 1
                    && matches!(letter.state, State::Delivered { .. } | State::Dead)
            }),
            dead,
            lost: self.letters.len().saturating_sub(delivered + dead),
            doubled: count(&|letter| letter.deliveries > 1),
            out_of_order: self.out_of_order(),
        }
    }

    /// Returns how many letters arrived before an earlier one to the same person.
    fn out_of_order(&self) -> usize {
        let mut latest: HashMap<&str, usize> = HashMap::new();
        let mut count = 0;
        for letter in &self.letters {
            if let (Some(to), Some(arrived)) = (&letter.to, letter.arrived) {
                let before = latest.entry(to).or_default();
                count += usize::from(arrived < *before);
                *before = arrived.max(*before);
            }
        }
        count
    }
}

/// The counts that show whether the guarantees hold.
#[derive(Debug, Clone, PartialEq, Eq, serde::Serialize)]
pub(super) struct Proof {
    pub(super) pushed: usize,
    pub(super) delivered: usize,
    /// Delivered after failures.
    pub(super) retried: usize,
    /// Started again because their worker died.
    pub(super) interrupted: usize,
    pub(super) dead: usize,
    pub(super) lost: usize,
    pub(super) doubled: usize,
    pub(super) out_of_order: usize,
}

impl Proof {
    pub(super) fn holds(&self) -> bool {
        (self.lost, self.doubled, self.out_of_order) == (0, 0, 0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Applies events to letters "0", "1", … to these people.
    fn progress(people: &[&str], events: &[(Event, usize)]) -> Proof {
        let letter = |to: &str| {
            let mut letter = super::super::letter::all().remove(0);
            letter.to = Some(to.to_owned());
            letter
        };
        let mut progress =
            Progress::new(people.iter().enumerate().map(|(nth, to)| (nth.to_string(), letter(to))));
        for (event, id) in events {
            progress.apply(event.line(&id.to_string(), 1).trim_end());
        }
        progress.proof()
    }

    #[test]
    fn a_good_story_proves_the_promise() {
        use Event::*;
        let proof = progress(
            &["a", "b", "a"],
            &[
                (Started, 0),
                (Failed, 0),
                (Started, 1),
                (Started, 0),
                (Delivered, 0),
                (Started, 2),
                (Started, 1),
                (Dead, 1),
                (Delivered, 2),
            ],
        );
        let expected = Proof {
            pushed: 3,
            delivered: 2,
            retried: 1,
            interrupted: 1,
            dead: 1,
            lost: 0,
            doubled: 0,
            out_of_order: 0,
        };
        assert_eq!(proof, expected);
        assert!(proof.holds());
    }

    #[test]
    fn each_way_to_break_the_promise_is_seen() {
        use Event::*;
        assert_eq!(progress(&["a", "b"], &[(Started, 0), (Delivered, 0), (Started, 1)]).lost, 1);
        assert_eq!(progress(&["a"], &[(Delivered, 0), (Delivered, 0)]).doubled, 1);
        assert_eq!(progress(&["a"], &[(Delivered, 0), (Repeated, 0)]).doubled, 0, "the mark was found");
        assert_eq!(progress(&["a", "a"], &[(Delivered, 1), (Delivered, 0)]).out_of_order, 1);
        assert_eq!(progress(&["a", "b"], &[(Delivered, 1), (Delivered, 0)]).out_of_order, 0, "other people");
    }
}
