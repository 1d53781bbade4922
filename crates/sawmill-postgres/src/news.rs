//! Hints: what this process changes it knows at once; others are told by NOTIFY, many changes in one, and which topics have
//! messages.
//!
//! Notifying takes a lock that all transactions of the server share when they commit, so it is done after a push and
//! outside of it, and once for all that came meanwhile. Where notifications do not arrive (behind a pooler that gives every
//! transaction another connection, say), hints are given at short intervals instead.

use std::collections::{BTreeSet, HashMap};
use std::future::poll_fn;
use std::pin::pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use futures_util::future::select;
use sawmill::env::Env;
use sawmill::log::Hints;
use tokio::sync::{mpsc, watch};
use tokio_postgres::{AsyncMessage, Client};

use crate::error::Effect;
use crate::ledger::quoted;
use crate::pool::Pool;

/// After telling others, so long is waited for more to tell.
const PAUSE: Duration = Duration::from_millis(3);
/// So long entries that were changed wait to be told of together with messages, for which somebody is more likely to wait.
const PATIENCE: Duration = Duration::from_millis(20);
/// If more topics have messages than this, others are told that any may.
const TOPICS_MOST: usize = 50;
/// How often hints are given where nothing can be heard.
const DEAF_HINTS: Duration = Duration::from_millis(200);
/// How long one's own voice may take to come back, before one takes oneself for deaf.
const ECHO: Duration = Duration::from_secs(3);
/// After a lost connection, so long until the next one is made.
const LOST: Duration = Duration::from_secs(1);
/// How often somebody deaf tries to listen again.
const TRY_AGAIN: Duration = Duration::from_secs(30);

/// What changed and was not told yet.
#[derive(Debug, Default, PartialEq, Eq)]
struct Changes {
    topics: Topics,
    entries: bool,
}

/// Topics that may have messages, by uid.
#[derive(Debug, Clone, PartialEq, Eq)]
enum Topics {
    Some(BTreeSet<String>),
    Any,
}

impl Default for Topics {
    fn default() -> Self {
        Self::Some(BTreeSet::new())
    }
}

impl Topics {
    /// This one, or any if it is not known which.
    fn add(&mut self, uid: Option<&str>) {
        match (&mut *self, uid) {
            (Self::Some(uids), Some(uid)) if uids.len() < TOPICS_MOST => {
                uids.insert(uid.to_owned());
            }
            _ => *self = Self::Any,
        }
    }

    fn is_none(&self) -> bool {
        *self == Self::default()
    }
}

/// Where hints come from.
pub(crate) struct News {
    heard: Heard,
    untold: Arc<Mutex<Changes>>,
    /// Rung when there is something to tell. When this is dropped, the tasks that tell and listen end.
    changed: watch::Sender<()>,
}

/// Those who wait in this process.
#[derive(Clone, Default)]
struct Heard {
    /// By the topic's uid.
    messages: Arc<Mutex<HashMap<String, watch::Sender<()>>>>,
    entries: watch::Sender<()>,
    /// Whether others can be heard, once that is known.
    hears: watch::Sender<Option<bool>>,
}

impl Heard {
    fn messages(&self) -> MutexGuard<'_, HashMap<String, watch::Sender<()>>> {
        self.messages.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn subscribe(&self, uid: &str) -> watch::Receiver<()> {
        let mut messages = self.messages();
        // Those that nobody waits for any more are forgotten.
        messages.retain(|_, bell| bell.receiver_count() > 0);
        messages.entry(uid.to_owned()).or_default().subscribe()
    }

    fn ring(&self, topics: &Topics) {
        let bells = self.messages();
        match topics {
            Topics::Some(uids) => uids.iter().filter_map(|uid| bells.get(uid)).for_each(ring),
            Topics::Any => bells.values().for_each(ring),
        }
    }

    fn all(&self) {
        self.ring(&Topics::Any);
        ring(&self.entries);
    }
}

fn ring(bell: &watch::Sender<()>) {
    bell.send_replace(());
}

impl News {
    pub(crate) fn start(pool: Arc<Pool>, schema: &str) -> Self {
        let (heard, changed) = (Heard::default(), watch::Sender::new(()));
        let voice = Voice {
            me: format!("{:016x}", pool.env().dice().roll()),
            channel: schema.trim_matches('"').to_owned(),
            pool,
        };
        let (listener, ears) = (voice.clone(), heard.clone());
        let (rung, end) = (changed.subscribe(), changed.subscribe());
        let untold = Arc::<Mutex<Changes>>::default();
        let (env, to_tell) = (voice.pool.env().clone(), untold.clone());
        env.spawn(async move {
            select(pin!(listen(&listener, &ears)), pin!(ended(end))).await;
        });
        env.spawn(async move { tell(&voice, &to_tell, rung).await });
        Self { heard, untold, changed }
    }

    pub(crate) fn message_hints(&self, uid: &str) -> Hints {
        Hints::new(self.heard.subscribe(uid))
    }

    pub(crate) fn entry_hints(&self) -> Hints {
        Hints::new(self.heard.entries.subscribe())
    }

    /// Whether others can be heard: soon after the store is opened that is known.
    pub(crate) async fn hears(&self, env: &Env) -> bool {
        let mut hears = self.heard.hears.subscribe();
        let known = async { hears.wait_for(Option::is_some).await.ok().and_then(|hears| *hears) };
        env.within(2 * ECHO, known).await.flatten().unwrap_or(false)
    }

    /// Messages of this topic, or if it is not given, of any.
    pub(crate) fn messages_changed(&self, uid: Option<&str>) {
        let mut topics = Topics::default();
        topics.add(uid);
        self.heard.ring(&topics);
        lock(&self.untold).topics.add(uid);
        ring(&self.changed);
    }

    pub(crate) fn entries_changed(&self) {
        ring(&self.heard.entries);
        lock(&self.untold).entries = true;
        ring(&self.changed);
    }
}

fn lock(changes: &Mutex<Changes>) -> MutexGuard<'_, Changes> {
    changes.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Completes when the store is dropped.
async fn ended(mut changed: watch::Receiver<()>) {
    while changed.changed().await.is_ok() {}
}

/// Who speaks, and where.
#[derive(Clone)]
struct Voice {
    pool: Arc<Pool>,
    channel: String,
    /// Tells our own notifications from others'.
    me: String,
}

/// What is said: one of these, then who says it, and after a space the topics that have messages, if it is known which.
const MESSAGES: &str = "m";
const ENTRIES: &str = "e";
const BOTH: &str = "b";
const ECHO_CALL: &str = "?";

/// How changes are told.
fn note(changes: &Changes, me: &str) -> String {
    let what = match (changes.topics.is_none(), changes.entries) {
        (false, true) => BOTH,
        (false, false) => MESSAGES,
        (true, _) => ENTRIES,
    };
    match &changes.topics {
        Topics::Some(uids) if !uids.is_empty() => {
            let uids: Vec<&str> = uids.iter().map(String::as_str).collect();
            format!("{what}{me} {}", uids.join(","))
        }
        _ => format!("{what}{me}"),
    }
}

/// What a note of others tells. Whatever is not understood may mean anything.
fn understand(note: &str, me: &str) -> Changes {
    let (head, uids) = note.split_once(' ').unwrap_or((note, ""));
    if head.ends_with(me) {
        return Changes::default();
    }
    let topics = match uids {
        "" => Topics::Any,
        uids => Topics::Some(uids.split(',').map(str::to_owned).collect()),
    };
    match head.get(..1).unwrap_or_default() {
        MESSAGES => Changes { topics, entries: false },
        ENTRIES => Changes { topics: Topics::default(), entries: true },
        ECHO_CALL => Changes::default(),
        _ => Changes { topics, entries: true },
    }
}

impl Voice {
    async fn say(&self, note: &str) {
        // A hint may be lost. So nobody need wait until the disk has it: it would, because notifying counts as writing.
        let script = format!(
            "SET LOCAL synchronous_commit = off; SELECT pg_notify({}, {})",
            quoted(&self.channel),
            quoted(note)
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
async fn tell(voice: &Voice, untold: &Mutex<Changes>, mut changed: watch::Receiver<()>) {
    let env = voice.pool.env();
    while changed.changed().await.is_ok() {
        let messages = || !lock(untold).topics.is_none();
        if !messages() {
            let sooner = async { while changed.changed().await.is_ok() && !messages() {} };
            env.within(PATIENCE, sooner).await;
        }
        let changes = std::mem::take(&mut *lock(untold));
        if changes != Changes::default() {
            voice.say(&note(&changes, &voice.me)).await;
            env.sleep(PAUSE).await;
        }
    }
}

/// Listens to others, and gives hints without hearing anything where that is not possible.
async fn listen(voice: &Voice, heard: &Heard) {
    loop {
        let mut deaf = LOST;
        if let Some((_client, mut notes)) = connect(voice).await {
            if echoes(voice, heard, &mut notes).await {
                heard.hears.send_replace(Some(true));
                // What was said before is not repeated.
                heard.all();
                while let Some(note) = notes.recv().await {
                    hear(voice, heard, &note);
                }
                heard.hears.send_replace(None);
            } else {
                tracing::info!(
                    channel = voice.channel,
                    "notifications of PostgreSQL do not arrive, perhaps because of a pooler: polling instead"
                );
                heard.hears.send_replace(Some(false));
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
    let changes = understand(note, &voice.me);
    heard.ring(&changes.topics);
    if changes.entries {
        ring(&heard.entries);
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
    voice.say(&call).await;
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

#[cfg(test)]
mod tests {
    use super::*;

    fn changes(uids: &[&str], entries: bool) -> Changes {
        Changes { topics: Topics::Some(uids.iter().map(|uid| (*uid).to_owned()).collect()), entries }
    }

    #[test]
    fn what_is_told_is_understood() {
        for told in [
            changes(&["t1"], false),
            changes(&["t1", "t20"], true),
            changes(&[], true),
            Changes { topics: Topics::Any, entries: false },
            Changes { topics: Topics::Any, entries: true },
        ] {
            let note = note(&told, "00aa");
            assert_eq!(understand(&note, "00bb"), told, "{note}");
            assert_eq!(understand(&note, "00aa"), Changes::default(), "{note}");
        }
        assert_eq!(understand("?00aa", "00bb"), Changes::default());
        for strange in ["", "ü", "x00aa"] {
            assert_eq!(
                understand(strange, "00bb"),
                Changes { topics: Topics::Any, entries: true },
                "{strange}"
            );
        }
    }

    #[test]
    fn of_many_topics_any_may_have_messages() {
        let mut topics = Topics::default();
        assert!(topics.is_none());
        for topic in 0..TOPICS_MOST {
            topics.add(Some(&format!("t{topic}")));
        }
        assert!(matches!(&topics, Topics::Some(uids) if uids.len() == TOPICS_MOST));
        topics.add(Some("one more"));
        assert_eq!(topics, Topics::Any);
        topics.add(Some("t1"));
        assert_eq!(topics, Topics::Any);
    }

    #[test]
    fn who_waits_for_one_topic_does_not_hear_of_another() {
        let heard = Heard::default();
        let (mut one, mut two) = (Hints::new(heard.subscribe("t1")), Hints::new(heard.subscribe("t2")));
        let now = |hints: &mut Hints| futures_util::FutureExt::now_or_never(hints.next()).is_some();
        heard.ring(&changes(&["t1", "t3"], false).topics);
        assert!(now(&mut one) && !now(&mut two));
        heard.all();
        assert!(now(&mut one) && now(&mut two));
        drop((one, two));
        let _later = heard.subscribe("t9");
        assert_eq!(heard.messages().len(), 1);
    }
}
