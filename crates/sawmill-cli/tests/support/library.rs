//! The library beside the program, on the same store: for what a test has to prepare.

use sawmill::{Push, Sawmill};
use tokio::runtime::Runtime;

use super::Place;

pub struct Library {
    runtime: Runtime,
    mill: Sawmill,
}

impl Library {
    /// Opens the store of this place.
    pub fn open(place: &Place) -> Self {
        let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build().unwrap();
        let url = format!("sqlite:{}", place.path("sawmill.db").display());
        let mill = runtime.block_on(sawmill_sqlite::open(&url)).unwrap();
        Self { runtime, mill }
    }

    pub fn run<T>(&self, what: impl AsyncFnOnce(&Sawmill) -> T) -> T {
        self.runtime.block_on(what(&self.mill))
    }

    /// Pushes a message to a topic, which is made if it is not there, and gives its id.
    pub fn push(&self, topic: &str, message: impl Into<Push>) -> String {
        self.run(async |mill| {
            mill.create_topic(topic).await.unwrap();
            mill.push(topic, message).await.unwrap().to_string()
        })
    }
}
