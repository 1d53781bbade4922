//! Wake-ups: this process knows its own changes at once; other processes are notified with NOTIFY. One
//! notification covers many changes and names the topics that have messages.
//!
//! NOTIFY takes a lock at commit that all transactions of the server share. So it runs after a push and
//! outside of it, once for all changes that have accumulated. Where notifications do not arrive (for example
//! behind a pooler in transaction mode), subscribers are notified at short intervals instead.

use std::collections::{BTreeSet, HashMap};
use std::future::poll_fn;
use std::pin::pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use futures_util::future::select;
use sawmill_engine::runtime::Env;
use sawmill_engine::storage::Notifications;
use tokio::sync::{mpsc, watch};
use tokio_postgres::{AsyncMessage, Client};

use crate::connection::pool::Pool;
use crate::error::Effect;
use crate::ledger::quoted;

/// The pause after a notification, in which further changes accumulate.
const SEND_INTERVAL: Duration = Duration::from_millis(3);
/// How long changed entries wait to be sent together with messages, for which a waiting reader is more
/// likely.
const ENTRY_DELAY: Duration = Duration::from_millis(20);
/// Above this number of topics, a notification says that any topic may have messages.
const MAX_TOPICS: usize = 50;
/// How often subscribers are notified when notifications do not arrive.
const POLL_INTERVAL: Duration = Duration::from_millis(200);
/// How long our own notification may take to come back before we assume that notifications do not arrive.
const ECHO_TIMEOUT: Duration = Duration::from_secs(3);
/// The delay before reconnecting after a lost connection.
const RECONNECT_DELAY: Duration = Duration::from_secs(1);
/// The delay before listening again when notifications did not arrive.
const RELISTEN_DELAY: Duration = Duration::from_secs(30);

/// The changes that were not sent yet.
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
    /// Adds a topic; `None` means any topic.
    fn add(&mut self, uid: Option<&str>) {
        match (&mut *self, uid) {
            (Self::Some(uids), Some(uid)) if uids.len() < MAX_TOPICS => {
                uids.insert(uid.to_owned());
            }
            _ => *self = Self::Any,
        }
    }

    fn is_none(&self) -> bool {
        *self == Self::default()
    }
}

/// Notifies subscribers in this process and in others.
pub(crate) struct Notifier {
    subscribers: Subscribers,
    unsent: Arc<Mutex<Changes>>,
    /// Notified when there is something to send. The sending and listening tasks end when it is dropped.
    changed: watch::Sender<()>,
}

/// The subscribers in this process.
#[derive(Clone, Default)]
struct Subscribers {
    /// By the topic's uid.
    messages: Arc<Mutex<HashMap<String, watch::Sender<()>>>>,
    entries: watch::Sender<()>,
    /// True if notifications of other processes arrive, once that is known.
    receives: watch::Sender<Option<bool>>,
}

impl Subscribers {
    fn messages(&self) -> MutexGuard<'_, HashMap<String, watch::Sender<()>>> {
        self.messages.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn subscribe(&self, uid: &str) -> watch::Receiver<()> {
        let mut messages = self.messages();
        // Remove senders without receivers.
        messages.retain(|_, sender| sender.receiver_count() > 0);
        messages.entry(uid.to_owned()).or_default().subscribe()
    }

    fn notify(&self, topics: &Topics) {
        let senders = self.messages();
        match topics {
            Topics::Some(uids) => uids.iter().filter_map(|uid| senders.get(uid)).for_each(notify),
            Topics::Any => senders.values().for_each(notify),
        }
    }

    fn notify_all(&self) {
        self.notify(&Topics::Any);
        notify(&self.entries);
    }
}

fn notify(sender: &watch::Sender<()>) {
    sender.send_replace(());
}

impl Notifier {
    pub(crate) fn start(pool: Arc<Pool>, schema: &str) -> Self {
        let (subscribers, changed) = (Subscribers::default(), watch::Sender::new(()));
        let channel = Channel {
            sender_id: format!("{:016x}", pool.env().rng().next_u64()),
            name: schema.trim_matches('"').to_owned(),
            pool,
        };
        let (listening_channel, notified) = (channel.clone(), subscribers.clone());
        let (wake, end) = (changed.subscribe(), changed.subscribe());
        let unsent = Arc::<Mutex<Changes>>::default();
        let (env, to_send) = (channel.pool.env().clone(), unsent.clone());
        env.spawn(async move {
            select(pin!(listen(&listening_channel, &notified)), pin!(ended(end))).await;
        });
        env.spawn(async move { send_changes(&channel, &to_send, wake).await });
        Self { subscribers, unsent, changed }
    }

    pub(crate) fn message_notifications(&self, uid: &str) -> Notifications {
        Notifications::new(self.subscribers.subscribe(uid))
    }

    pub(crate) fn entry_notifications(&self) -> Notifications {
        Notifications::new(self.subscribers.entries.subscribe())
    }

    /// Returns whether notifications of other processes arrive. This is known soon after the store is opened.
    pub(crate) async fn receives(&self, env: &Env) -> bool {
        let mut receives = self.subscribers.receives.subscribe();
        let known = async { receives.wait_for(Option::is_some).await.ok().and_then(|receives| *receives) };
        env.within(2 * ECHO_TIMEOUT, known).await.flatten().unwrap_or(false)
    }

    /// Reports new messages in this topic, or in any topic if there is no uid.
    pub(crate) fn messages_changed(&self, uid: Option<&str>) {
        let mut topics = Topics::default();
        topics.add(uid);
        self.subscribers.notify(&topics);
        lock(&self.unsent).topics.add(uid);
        notify(&self.changed);
    }

    pub(crate) fn entries_changed(&self) {
        notify(&self.subscribers.entries);
        lock(&self.unsent).entries = true;
        notify(&self.changed);
    }
}

fn lock(changes: &Mutex<Changes>) -> MutexGuard<'_, Changes> {
    changes.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Completes when the store is dropped.
async fn ended(mut changed: watch::Receiver<()>) {
    while changed.changed().await.is_ok() {}
}

/// The notification channel of a schema.
#[derive(Clone)]
struct Channel {
    pool: Arc<Pool>,
    name: String,
    /// Distinguishes our own notifications from those of other processes.
    sender_id: String,
}

/// The payload: one of these letters, the sender's id, and after a space the topics that have messages, if
/// they are known.
const MESSAGES: &str = "m";
const ENTRIES: &str = "e";
const BOTH: &str = "b";
const ECHO: &str = "?";

/// Encodes changes as a payload.
fn encode(changes: &Changes, sender_id: &str) -> String {
    let what = match (changes.topics.is_none(), changes.entries) {
        (false, true) => BOTH,
        (false, false) => MESSAGES,
        (true, _) => ENTRIES,
    };
    match &changes.topics {
        Topics::Some(uids) if !uids.is_empty() => {
            let uids: Vec<&str> = uids.iter().map(String::as_str).collect();
            format!("{what}{sender_id} {}", uids.join(","))
        }
        _ => format!("{what}{sender_id}"),
    }
}

/// Decodes a payload of another process. An unknown payload may mean any change.
fn decode(payload: &str, sender_id: &str) -> Changes {
    let (head, uids) = payload.split_once(' ').unwrap_or((payload, ""));
    if head.ends_with(sender_id) {
        return Changes::default();
    }
    let topics = match uids {
        "" => Topics::Any,
        uids => Topics::Some(uids.split(',').map(str::to_owned).collect()),
    };
    match head.get(..1).unwrap_or_default() {
        MESSAGES => Changes { topics, entries: false },
        ENTRIES => Changes { topics: Topics::default(), entries: true },
        ECHO => Changes::default(),
        _ => Changes { topics, entries: true },
    }
}

impl Channel {
    async fn send(&self, payload: &str) {
        // A notification may be lost, so it does not wait for the disk. It would by default, because NOTIFY
        // counts as a write.
        let script = format!(
            "SET LOCAL synchronous_commit = off; SELECT pg_notify({}, {})",
            quoted(&self.name),
            quoted(payload)
        );
        let sent = match self.pool.lease().await {
            Ok(lease) => lease.bounded(async |client| Ok(client.batch_execute(&script).await?)).await,
            Err(error) => Err(error.into()),
        };
        if let Err(failure) = sent {
            tracing::debug!(error = %failure.explain(Effect::Writes), "others were not told of changes");
        }
    }
}

/// Sends changes to other processes until the store is dropped.
async fn send_changes(channel: &Channel, unsent: &Mutex<Changes>, mut changed: watch::Receiver<()>) {
    let env = channel.pool.env();
    while changed.changed().await.is_ok() {
        let messages = || !lock(unsent).topics.is_none();
        if !messages() {
            let sooner = async { while changed.changed().await.is_ok() && !messages() {} };
            env.within(ENTRY_DELAY, sooner).await;
        }
        let changes = std::mem::take(&mut *lock(unsent));
        if changes != Changes::default() {
            channel.send(&encode(&changes, &channel.sender_id)).await;
            env.sleep(SEND_INTERVAL).await;
        }
    }
}

/// Listens for notifications of other processes; notifies at intervals while that is not possible.
async fn listen(channel: &Channel, subscribers: &Subscribers) {
    loop {
        let mut delay = RECONNECT_DELAY;
        if let Some((_client, mut payloads)) = connect(channel).await {
            if receives_echo(channel, subscribers, &mut payloads).await {
                subscribers.receives.send_replace(Some(true));
                // Earlier notifications are not repeated.
                subscribers.notify_all();
                while let Some(payload) = payloads.recv().await {
                    deliver(channel, subscribers, &payload);
                }
                subscribers.receives.send_replace(None);
            } else {
                tracing::info!(
                    channel = channel.name,
                    "notifications of PostgreSQL do not arrive, perhaps because of a pooler: polling instead"
                );
                subscribers.receives.send_replace(Some(false));
                delay = RELISTEN_DELAY;
            }
        }
        let end = channel.pool.env().now() + delay;
        while channel.pool.env().now() < end {
            subscribers.notify_all();
            channel.pool.env().sleep(POLL_INTERVAL).await;
        }
    }
}

fn deliver(channel: &Channel, subscribers: &Subscribers, payload: &str) {
    let changes = decode(payload, &channel.sender_id);
    subscribers.notify(&changes.topics);
    if changes.entries {
        notify(&subscribers.entries);
    }
}

/// Opens a connection that listens. It ends when the client is dropped.
async fn connect(channel: &Channel) -> Option<(Client, mpsc::UnboundedReceiver<String>)> {
    let (client, mut connection) = channel.pool.connect().await.ok()?;
    let (sender, payloads) = mpsc::unbounded_channel();
    channel.pool.env().spawn(async move {
        while let Some(Ok(message)) = poll_fn(|context| connection.poll_message(context)).await {
            if let AsyncMessage::Notification(notification) = message
                && sender.send(notification.payload().to_owned()).is_err()
            {
                break;
            }
        }
    });
    client.batch_execute(&format!("LISTEN \"{}\"", channel.name)).await.ok()?;
    Some((client, payloads))
}

/// Returns true if a notification that we send over another connection comes back.
async fn receives_echo(
    channel: &Channel,
    subscribers: &Subscribers,
    payloads: &mut mpsc::UnboundedReceiver<String>,
) -> bool {
    let call = format!("{ECHO}{}", channel.sender_id);
    channel.send(&call).await;
    let receiving = async {
        loop {
            match payloads.recv().await {
                Some(payload) if payload == call => return true,
                Some(payload) => deliver(channel, subscribers, &payload),
                None => return false,
            }
        }
    };
    channel.pool.env().within(ECHO_TIMEOUT, receiving).await.unwrap_or(false)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn changes(uids: &[&str], entries: bool) -> Changes {
        Changes { topics: Topics::Some(uids.iter().map(|uid| (*uid).to_owned()).collect()), entries }
    }

    #[test]
    fn what_is_told_is_understood() {
        for sent in [
            changes(&["t1"], false),
            changes(&["t1", "t20"], true),
            changes(&[], true),
            Changes { topics: Topics::Any, entries: false },
            Changes { topics: Topics::Any, entries: true },
        ] {
            let payload = encode(&sent, "00aa");
            assert_eq!(decode(&payload, "00bb"), sent, "{payload}");
            assert_eq!(decode(&payload, "00aa"), Changes::default(), "{payload}");
        }
        assert_eq!(decode("?00aa", "00bb"), Changes::default());
        for strange in ["", "ü", "x00aa"] {
            assert_eq!(decode(strange, "00bb"), Changes { topics: Topics::Any, entries: true }, "{strange}");
        }
    }

    #[test]
    fn of_many_topics_any_may_have_messages() {
        let mut topics = Topics::default();
        assert!(topics.is_none());
        for topic in 0..MAX_TOPICS {
            topics.add(Some(&format!("t{topic}")));
        }
        assert!(matches!(&topics, Topics::Some(uids) if uids.len() == MAX_TOPICS));
        topics.add(Some("one more"));
        assert_eq!(topics, Topics::Any);
        topics.add(Some("t1"));
        assert_eq!(topics, Topics::Any);
    }

    #[test]
    fn who_waits_for_one_topic_does_not_hear_of_another() {
        let subscribers = Subscribers::default();
        let (mut one, mut two) = (
            Notifications::new(subscribers.subscribe("t1")),
            Notifications::new(subscribers.subscribe("t2")),
        );
        let now = |hints: &mut Notifications| futures_util::FutureExt::now_or_never(hints.next()).is_some();
        subscribers.notify(&changes(&["t1", "t3"], false).topics);
        assert!(now(&mut one) && !now(&mut two));
        subscribers.notify_all();
        assert!(now(&mut one) && now(&mut two));
        drop((one, two));
        let _later = subscribers.subscribe("t9");
        assert_eq!(subscribers.messages().len(), 1);
    }
}
