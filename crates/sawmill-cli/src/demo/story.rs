//! What became of each letter, as those tell it who carried them, and what it proves.

use std::collections::HashMap;

use super::letter::Letter;

/// What a run of the delivery tells.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Told {
    Started,
    Failed,
    /// It will never be delivered.
    Dead,
    Delivered,
    /// It had been delivered before: nothing was done.
    Repeated,
}

const WORDS: &[(Told, &str)] = &[
    (Told::Started, "started"),
    (Told::Failed, "failed"),
    (Told::Dead, "dead"),
    (Told::Delivered, "delivered"),
    (Told::Repeated, "repeated"),
];

impl Told {
    /// What is written for it.
    pub(super) fn line(self, id: &str, worker: usize) -> String {
        let word = WORDS.iter().find(|(told, _)| *told == self).map_or("", |(_, word)| word);
        format!("{word} {id} {worker}\n")
    }
}

/// Where a letter is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Place {
    Waiting,
    /// Not due yet.
    Later,
    Running {
        worker: usize,
    },
    /// It failed, and will be tried again.
    Failed,
    Delivered {
        worker: usize,
    },
    Dead,
}

/// One letter's part of the story.
#[derive(Debug, Clone)]
pub(super) struct Thread {
    pub(super) to: Option<String>,
    pub(super) place: Place,
    failures: u32,
    starts: u32,
    deliveries: u32,
    /// Which delivery of all it was.
    arrived: Option<usize>,
}

#[derive(Debug)]
pub(super) struct Story {
    /// In the order in which they were pushed.
    pub(super) threads: Vec<Thread>,
    ids: HashMap<String, usize>,
    deliveries: usize,
}

impl Story {
    pub(super) fn new(letters: impl IntoIterator<Item = (String, Letter)>) -> Self {
        let mut story = Self { threads: Vec::new(), ids: HashMap::new(), deliveries: 0 };
        for (id, letter) in letters {
            story.ids.insert(id, story.threads.len());
            let place = if letter.later.is_some() { Place::Later } else { Place::Waiting };
            story.threads.push(Thread {
                to: letter.to,
                place,
                failures: 0,
                starts: 0,
                deliveries: 0,
                arrived: None,
            });
        }
        story
    }

    /// Goes on with what was told. A line that is not understood is none of ours.
    pub(super) fn hear(&mut self, line: &str) {
        let mut words = line.split(' ');
        let told = words.next().and_then(|word| WORDS.iter().find(|(_, known)| *known == word));
        let thread = words.next().and_then(|id| self.ids.get(id)).and_then(|nth| self.threads.get_mut(*nth));
        let worker = words.next().and_then(|worker| worker.parse().ok());
        let (Some((told, _)), Some(thread), Some(worker)) = (told, thread, worker) else { return };
        match told {
            Told::Started => {
                thread.starts += 1;
                thread.place = Place::Running { worker };
            }
            Told::Failed => {
                thread.failures += 1;
                thread.place = Place::Failed;
            }
            Told::Dead => thread.place = Place::Dead,
            Told::Delivered => {
                self.deliveries += 1;
                thread.deliveries += 1;
                thread.arrived.get_or_insert(self.deliveries);
                thread.place = Place::Delivered { worker };
            }
            Told::Repeated => thread.place = Place::Delivered { worker },
        }
    }

    /// How many letters were with a worker that has died.
    pub(super) fn held_by(&self, dead: usize) -> usize {
        let held = |thread: &&Thread| thread.place == Place::Running { worker: dead };
        self.threads.iter().filter(held).count()
    }

    pub(super) fn is_over(&self) -> bool {
        self.threads.iter().all(|thread| matches!(thread.place, Place::Delivered { .. } | Place::Dead))
    }

    pub(super) fn proof(&self) -> Proof {
        let count =
            |holds: &dyn Fn(&Thread) -> bool| self.threads.iter().filter(|thread| holds(thread)).count();
        let delivered = count(&|thread| thread.deliveries > 0);
        let dead = count(&|thread| thread.place == Place::Dead);
        Proof {
            pushed: self.threads.len(),
            delivered,
            retried: count(&|thread| thread.failures > 0 && thread.deliveries > 0),
            interrupted: count(&|thread| {
                thread.starts > thread.failures + 1
                    && matches!(thread.place, Place::Delivered { .. } | Place::Dead)
            }),
            dead,
            lost: self.threads.len().saturating_sub(delivered + dead),
            doubled: count(&|thread| thread.deliveries > 1),
            out_of_order: self.out_of_order(),
        }
    }

    /// How many letters arrived before one to the same person that had been pushed earlier.
    fn out_of_order(&self) -> usize {
        let mut latest: HashMap<&str, usize> = HashMap::new();
        let mut count = 0;
        for thread in &self.threads {
            if let (Some(to), Some(arrived)) = (&thread.to, thread.arrived) {
                let before = latest.entry(to).or_default();
                count += usize::from(arrived < *before);
                *before = arrived.max(*before);
            }
        }
        count
    }
}

/// What the story proves.
#[derive(Debug, Clone, PartialEq, Eq, serde::Serialize)]
pub(super) struct Proof {
    pub(super) pushed: usize,
    pub(super) delivered: usize,
    /// Delivered after failures.
    pub(super) retried: usize,
    /// Started anew, since the worker died that had them.
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

    /// A story of letters "0", "1", … to these people.
    fn story(people: &[&str], told: &[(Told, usize)]) -> Proof {
        let letter = |to: &str| {
            let mut letter = super::super::letter::all().remove(0);
            letter.to = Some(to.to_owned());
            letter
        };
        let mut story = Story::new(people.iter().enumerate().map(|(nth, to)| (nth.to_string(), letter(to))));
        for (told, id) in told {
            story.hear(told.line(&id.to_string(), 1).trim_end());
        }
        story.proof()
    }

    #[test]
    fn a_good_story_proves_the_promise() {
        use Told::*;
        let proof = story(
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
        use Told::*;
        assert_eq!(story(&["a", "b"], &[(Started, 0), (Delivered, 0), (Started, 1)]).lost, 1);
        assert_eq!(story(&["a"], &[(Delivered, 0), (Delivered, 0)]).doubled, 1);
        assert_eq!(story(&["a"], &[(Delivered, 0), (Repeated, 0)]).doubled, 0, "the mark was found");
        assert_eq!(story(&["a", "a"], &[(Delivered, 1), (Delivered, 0)]).out_of_order, 1);
        assert_eq!(story(&["a", "b"], &[(Delivered, 1), (Delivered, 0)]).out_of_order, 0, "other people");
    }
}
