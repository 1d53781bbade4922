//! Hints: what this process changes it knows at once; others are told by NOTIFY, many changes in one.
//!
//! Notifying takes a lock that all transactions of the server share when they commit, so it is done after a push and
//! outside of it, and once for all that came meanwhile. Where notifications do not arrive (behind a pooler that gives every
//! transaction another connection, say), hints are given at short intervals instead.

use std::future::poll_fn;
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use futures_util::future::select;
use sawmill::log::Hints;
use tokio::sync::{mpsc, watch};
use tokio_postgres::{AsyncMessage, Client};

use crate::error::Effect;
use crate::ledger::quoted;
use crate::pool::Pool;

/// After telling others, so long is waited for more to tell.
const PAUSE: Duration = Duration::from_millis(3);
/// How often hints are given where nothing can be heard.
const DEAF_HINTS: Duration = Duration::from_millis(200);
/// How long one's own voice may take to come back, before one takes oneself for deaf.
const ECHO: Duration = Duration::from_secs(3);
/// After a lost connection, so long until the next one is made.
const LOST: Duration = Duration::from_secs(1);
/// How often somebody deaf tries to listen again.
const TRY_AGAIN: Duration = Duration::from_secs(30);

/// How often something changed here.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
struct Changes {
    messages: u64,
    entries: u64,
}

/// Where hints come from.
pub(crate) struct News {
    heard: Heard,
    /// What others are to be told. When this is dropped, the tasks that tell and listen end.
    changes: watch::Sender<Changes>,
}

/// Those who wait in this process.
#[derive(Clone)]
struct Heard {
    messages: watch::Sender<()>,
    entries: watch::Sender<()>,
}

impl Heard {
    fn all(&self) {
        self.messages.send_replace(());
        self.entries.send_replace(());
    }
}

impl News {
    pub(crate) fn start(pool: Arc<Pool>, schema: &str) -> Self {
        let heard = Heard { messages: watch::Sender::new(()), entries: watch::Sender::new(()) };
        let changes = watch::Sender::new(Changes::default());
        let voice = Voice {
            me: format!("{:016x}", pool.env().dice().roll()),
            channel: schema.trim_matches('"').to_owned(),
            pool,
        };
        let (listener, ears) = (voice.clone(), heard.clone());
        let (told, end) = (changes.subscribe(), changes.subscribe());
        let env = voice.pool.env().clone();
        env.spawn(async move {
            select(pin!(listen(&listener, &ears)), pin!(ended(end))).await;
        });
        env.spawn(async move { tell(&voice, told).await });
        Self { heard, changes }
    }

    pub(crate) fn message_hints(&self) -> Hints {
        Hints::new(self.heard.messages.subscribe())
    }

    pub(crate) fn entry_hints(&self) -> Hints {
        Hints::new(self.heard.entries.subscribe())
    }

    pub(crate) fn messages_changed(&self) {
        self.heard.messages.send_replace(());
        self.changes.send_modify(|changes| changes.messages += 1);
    }

    pub(crate) fn entries_changed(&self) {
        self.heard.entries.send_replace(());
        self.changes.send_modify(|changes| changes.entries += 1);
    }
}

/// Completes when the store is dropped.
async fn ended(mut changes: watch::Receiver<Changes>) {
    while changes.changed().await.is_ok() {}
}

/// Who speaks, and where.
#[derive(Clone)]
struct Voice {
    pool: Arc<Pool>,
    channel: String,
    /// Tells our own notifications from others'.
    me: String,
}

const MESSAGES: &str = "m";
const ENTRIES: &str = "e";
const BOTH: &str = "b";
const ECHO_CALL: &str = "?";

impl Voice {
    async fn say(&self, what: &str) {
        // A hint may be lost. So nobody need wait until the disk has it: it would, because notifying counts as writing.
        let script = format!(
            "SET LOCAL synchronous_commit = off; SELECT pg_notify({}, {})",
            quoted(&self.channel),
            quoted(&format!("{what}{}", self.me))
        );
        let said = match self.pool.lease().await {
            Ok(lease) => lease.bounded(async |client| Ok(client.batch_execute(&script).await?)).await,
            Err(error) => Err(error.into()),
        };
        if let Err(failure) = said {
            tracing::debug!(error = %failure.explain(Effect::Writes), "others were not told of changes");
        }
    }
}

/// Tells others of changes, until the store is dropped.
async fn tell(voice: &Voice, mut changes: watch::Receiver<Changes>) {
    let mut told = Changes::default();
    while changes.changed().await.is_ok() {
        let now = *changes.borrow_and_update();
        let what = match (now.messages != told.messages, now.entries != told.entries) {
            (true, true) => BOTH,
            (true, false) => MESSAGES,
            (false, true) => ENTRIES,
            (false, false) => continue,
        };
        voice.say(what).await;
        told = now;
        voice.pool.env().sleep(PAUSE).await;
    }
}

/// Listens to others, and gives hints without hearing anything where that is not possible.
async fn listen(voice: &Voice, heard: &Heard) {
    loop {
        let mut deaf = LOST;
        if let Some((_client, mut notes)) = connect(voice).await {
            if echoes(voice, heard, &mut notes).await {
                // What was said before is not repeated.
                heard.all();
                while let Some(note) = notes.recv().await {
                    hear(voice, heard, &note);
                }
            } else {
                tracing::info!(
                    channel = voice.channel,
                    "notifications of PostgreSQL do not arrive, perhaps because of a pooler: polling instead"
                );
                deaf = TRY_AGAIN;
            }
        }
        let end = voice.pool.env().now() + deaf;
        while voice.pool.env().now() < end {
            heard.all();
            voice.pool.env().sleep(DEAF_HINTS).await;
        }
    }
}

fn hear(voice: &Voice, heard: &Heard, note: &str) {
    if note.ends_with(&voice.me) {
        return;
    }
    if note.starts_with(MESSAGES) || note.starts_with(BOTH) {
        heard.messages.send_replace(());
    }
    if note.starts_with(ENTRIES) || note.starts_with(BOTH) {
        heard.entries.send_replace(());
    }
}

/// A connection of its own that listens. It ends when the client is dropped.
async fn connect(voice: &Voice) -> Option<(Client, mpsc::UnboundedReceiver<String>)> {
    let (client, mut connection) = voice.pool.connect().await.ok()?;
    let (note, notes) = mpsc::unbounded_channel();
    voice.pool.env().spawn(async move {
        while let Some(Ok(message)) = poll_fn(|context| connection.poll_message(context)).await {
            if let AsyncMessage::Notification(notification) = message
                && note.send(notification.payload().to_owned()).is_err()
            {
                break;
            }
        }
    });
    client.batch_execute(&format!("LISTEN \"{}\"", voice.channel)).await.ok()?;
    Some((client, notes))
}

/// True if what we say, over another connection, comes back to us.
async fn echoes(voice: &Voice, heard: &Heard, notes: &mut mpsc::UnboundedReceiver<String>) -> bool {
    let call = format!("{ECHO_CALL}{}", voice.me);
    voice.say(ECHO_CALL).await;
    let hearing = async {
        loop {
            match notes.recv().await {
                Some(note) if note == call => return true,
                Some(note) => hear(voice, heard, &note),
                None => return false,
            }
        }
    };
    voice.pool.env().within(ECHO, hearing).await.unwrap_or(false)
}
