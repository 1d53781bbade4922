//! Journals of at-most-once workers: real files in a folder that is removed with the history.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::atomic::{AtomicU64, Ordering};

use crate::control::NodeId;

/// The journals of a history.
pub(super) struct Journals {
    folder: PathBuf,
    made: usize,
    /// The journal of each node.
    of: BTreeMap<NodeId, usize>,
    /// Journals of crashed workers, with their groups.
    left: Vec<(usize, usize)>,
}

impl Journals {
    /// Creates a folder for journals; `None` if that fails.
    pub(super) fn new() -> Option<Self> {
        static FOLDERS: AtomicU64 = AtomicU64::new(0);
        let number = FOLDERS.fetch_add(1, Ordering::SeqCst);
        let folder = std::env::temp_dir().join(format!("sawmill-sim-{}-{number}", std::process::id()));
        std::fs::create_dir_all(&folder).ok()?;
        Some(Self { folder, made: 0, of: BTreeMap::new(), left: Vec::new() })
    }

    /// Returns a journal for a worker of this group, with its number: the journal of a crashed worker, or a
    /// new one.
    pub(super) fn take(&mut self, node: NodeId, group: usize) -> (usize, PathBuf) {
        let number = match self.left.iter().position(|(_, of)| *of == group) {
            Some(at) => self.left.remove(at).0,
            None => {
                self.made += 1;
                self.made
            }
        };
        self.of.insert(node, number);
        (number, self.folder.join(format!("journal{number}")))
    }

    /// Frees the journal of a crashed worker for the next worker of its group.
    pub(super) fn leave(&mut self, node: NodeId, group: usize) {
        self.left.extend(self.of.remove(&node).map(|number| (number, group)));
    }
}

impl Drop for Journals {
    fn drop(&mut self) {
        // The system clears what is left in the temporary folder.
        let _ = std::fs::remove_dir_all(&self.folder);
    }
}
