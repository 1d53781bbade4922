//! A pool: an orders topic and a coordination topic on a broker, and instances that use them.

use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use rdkafka::ClientConfig;
use rdkafka::admin::{AdminClient, AdminOptions, NewTopic, TopicReplication};
use rdkafka::client::DefaultClientContext;
use rdkafka::consumer::{BaseConsumer, Consumer};
use rdkafka::message::Message as _;
use rdkafka::{Offset, TopicPartitionList};
use sawmill::engine::runtime::Env;
use serde_json::Value;

use crate::support::{Ended, PATIENCE, Place, Running, until};

/// The TTL of instances: longer than a busy machine stalls them, so that only killed ones are declared dead.
pub(crate) const TTL: &str = "10s";

pub(crate) struct Pool {
    pub(crate) place: Place,
    pub(crate) brokers: String,
    pub(crate) orders: String,
    pub(crate) claims: String,
}

/// A record of the coordination topic.
#[derive(Debug)]
pub(crate) struct Record {
    pub(crate) offset: i64,
    pub(crate) key: String,
    /// The length of its value: none for a tombstone, 0 for the final value of an entry.
    pub(crate) bytes: Option<usize>,
}

/// Writes a line when an order begins and when it ends, with its instance, and a line if two instances run it
/// at once. The second argument is its duration; `go` means until a file of this name exists.
const JOB: &str = r#"
if [ -f "pid-$1" ] && kill -0 "$(cat "pid-$1")" 2>/dev/null; then echo "overlap $1" >> journal; fi
echo $$ > "pid-$1.new" && mv "pid-$1.new" "pid-$1"
echo "start $1 $INSTANCE_NUMBER $PPID" >> journal
case "$2" in
go) while [ ! -e go ]; do sleep 0.05; done ;;
*) sleep "$2" ;;
esac
echo "end $1 $INSTANCE_NUMBER $PPID" >> journal
rm -f "pid-$1""#;

impl Pool {
    /// Creates a pool on the broker given to the tests. Without one the test is skipped with a notice.
    pub(crate) fn of(test: &str) -> Option<Self> {
        const VARIABLE: &str = "SAWMILL_TEST_KAFKA";
        let Some(url) = std::env::var(VARIABLE).ok().filter(|url| !url.is_empty()) else {
            let why = format!("{VARIABLE} names no broker; `cargo xtask engines up kafka` starts one");
            assert!(std::env::var("CI").as_deref() != Ok("true"), "{why}");
            sawmill_conformance::skipped(test, &why);
            return None;
        };
        Some(Self::at(&url, 4))
    }

    /// Creates a pool with this number of shards.
    pub(crate) fn at(url: &str, shards: u16) -> Self {
        let place = Place::new();
        place.script("job", JOB);
        let number = Env::system().rng().next_u64();
        let pool = Self {
            place,
            brokers: url.strip_prefix("kafka://").unwrap().to_owned(),
            orders: format!("orders-{number:016x}"),
            claims: format!("claims-{number:016x}"),
        };
        if shards > 0 {
            pool.make_orders(shards);
        }
        pool
    }

    pub(crate) fn make_orders(&self, shards: u16) {
        self.run(&["topic", "create", &self.orders, "--shards", &shards.to_string()]).ok();
    }

    /// Runs another command on the same store.
    pub(crate) fn run(&self, args: &[&str]) -> Ended {
        self.run_with(args, "")
    }

    pub(crate) fn run_with(&self, args: &[&str], stdin: &str) -> Ended {
        let store = format!("kafka://{}?coordination={}", self.brokers, self.claims);
        let args: Vec<&str> = ["--store", &store].iter().chain(args).copied().collect();
        self.place.run_with(&args, stdin.as_bytes())
    }

    /// Sends these orders, one per line.
    pub(crate) fn send(&self, orders: &[&str]) {
        let lines: String = orders.iter().map(|order| format!("{order}\n")).collect();
        self.run_with(&["push", &self.orders, "--lines", "--quiet"], &lines).ok();
    }

    /// Returns the command for an instance.
    pub(crate) fn instance(&self, number: u32, args: &[&str]) -> Command {
        let mut command = self.place.command(["pool-worker"].iter().chain(args));
        command
            .env("ORDERS_TOPIC", &self.orders)
            .env("COORDINATION_TOPIC", &self.claims)
            .env("INSTANCE_NUMBER", number.to_string())
            .env("KAFKA_BROKERS", &self.brokers)
            .stdin(Stdio::null());
        command
    }

    /// Starts an instance.
    pub(crate) fn start(&self, number: u32) -> Running {
        Running::start(&mut self.instance(number, &["--ttl", TTL, "--backoff", "1s..1s"]))
    }

    /// Starts an instance and waits for its end, which must be successful.
    #[track_caller]
    pub(crate) fn work(&self, number: u32) -> String {
        let ended = self.start(number).wait();
        let said = ended.stderr.clone();
        ended.ok();
        said
    }

    /// Returns the lines that the orders have written.
    pub(crate) fn journal(&self) -> Vec<String> {
        self.place.read("journal").lines().map(str::to_owned).collect()
    }

    /// Counts the lines that begin with these words, such as `start 7`.
    pub(crate) fn count(&self, what: &str) -> usize {
        let what = format!("{what} ");
        self.journal().iter().filter(|line| format!("{line} ").starts_with(&what)).count()
    }

    #[track_caller]
    pub(crate) fn until_noted(&self, what: &str) {
        until(what, || self.count(what) > 0);
    }

    /// Returns the status of the group, as `sawmill status` prints it.
    pub(crate) fn status(&self) -> Value {
        let said = self.run(&["--json", "status", &self.orders]).ok();
        serde_json::from_str(said.lines().next().expect("a line")).expect(&said)
    }

    /// Returns the reasons of the dead letters, one per line.
    pub(crate) fn dead(&self) -> String {
        let said = self.run(&["--json", "dead", "list", &self.orders]).ok();
        let reason = |line: &str| serde_json::from_str::<Value>(line).unwrap()["reason"].to_string() + "\n";
        said.lines().map(reason).collect()
    }

    fn config(&self) -> ClientConfig {
        let mut config = ClientConfig::new();
        config.set("bootstrap.servers", &self.brokers);
        config
    }

    /// Creates the coordination topic so that the broker compacts it as soon as it may.
    pub(crate) fn make_claims_compact_soon(&self) {
        let admin: AdminClient<DefaultClientContext> = self.config().create().unwrap();
        let topic = NewTopic::new(&self.claims, 1, TopicReplication::Fixed(1))
            .set("cleanup.policy", "compact")
            .set("message.timestamp.type", "LogAppendTime")
            .set("min.compaction.lag.ms", "20000")
            .set("max.compaction.lag.ms", "21000")
            .set("min.cleanable.dirty.ratio", "0.001")
            .set("delete.retention.ms", "3600000")
            .set("segment.ms", "2000");
        let options = AdminOptions::new().operation_timeout(Some(Duration::from_secs(50)));
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        let made = runtime.block_on(admin.create_topics([&topic], &options)).unwrap();
        made[0].as_ref().unwrap();
    }

    /// Returns all current records of the coordination topic and its end offset.
    pub(crate) fn claims_records(&self) -> (Vec<Record>, i64) {
        let consumer: BaseConsumer = self.config().set("group.id", "stranger").create().unwrap();
        let mut marks = None;
        until("the broker says where the coordination topic ends", || {
            marks = consumer.fetch_watermarks(&self.claims, 0, Duration::from_secs(10)).ok();
            marks.is_some()
        });
        let (_, end) = marks.unwrap();
        let mut from = TopicPartitionList::new();
        from.add_partition_offset(&self.claims, 0, Offset::Beginning).unwrap();
        consumer.assign(&from).unwrap();
        let mut records: Vec<Record> = Vec::new();
        let deadline = Instant::now() + PATIENCE;
        // The last record always exists: compaction keeps the newest of each key.
        while end > 0 && records.last().is_none_or(|record| record.offset + 1 < end) {
            let record = match consumer.poll(Duration::from_secs(1)) {
                Some(Ok(record)) => record,
                other => {
                    let (came, in_time) = (records.len(), Instant::now() < deadline);
                    assert!(in_time, "test timed out: the end at {end}; {came} records came, then {other:?}");
                    continue;
                }
            };
            records.push(Record {
                offset: record.offset(),
                key: String::from_utf8_lossy(record.key().unwrap_or_default()).into_owned(),
                bytes: record.payload().map(<[u8]>::len),
            });
        }
        (records, end)
    }

    /// Returns a setting of the coordination topic.
    pub(crate) fn claims_setting(&self, name: &str) -> Option<String> {
        use rdkafka::admin::ResourceSpecifier;
        let admin: AdminClient<DefaultClientContext> = self.config().create().unwrap();
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        let resource = ResourceSpecifier::Topic(&self.claims);
        let said = runtime.block_on(admin.describe_configs([&resource], &AdminOptions::new())).unwrap();
        said[0].as_ref().unwrap().get(name)?.value.clone()
    }
}
