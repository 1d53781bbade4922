//! A pool: a topic of orders and a coordination topic on a broker, and instances that are started on them.

use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use rdkafka::ClientConfig;
use rdkafka::admin::{AdminClient, AdminOptions, NewTopic, TopicReplication};
use rdkafka::client::DefaultClientContext;
use rdkafka::consumer::{BaseConsumer, Consumer};
use rdkafka::message::Message as _;
use rdkafka::{Offset, TopicPartitionList};
use sawmill::env::Env;
use serde_json::Value;

use crate::support::{Ended, PATIENCE, Place, Running, until};

/// How long an instance may be silent: longer than a busy machine stalls it, so that only those that were killed are taken for dead.
pub(crate) const TTL: &str = "10s";

pub(crate) struct Pool {
    pub(crate) place: Place,
    pub(crate) brokers: String,
    pub(crate) orders: String,
    pub(crate) claims: String,
}

/// A record on the coordination topic.
#[derive(Debug)]
pub(crate) struct Noted {
    pub(crate) offset: i64,
    pub(crate) key: String,
    /// How long its value is: none if it removes another, 0 if it is the last word on an entry.
    pub(crate) bytes: Option<usize>,
}

/// Notes when an order begins and when it ends, and by whom; and that two were at it at once, if they were. How long it
/// takes is the second argument; `go` stands for until there is a file of this name.
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
    /// A pool on the broker that the tests were given. Without one the test is skipped, visibly.
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

    /// A pool with so many shards of orders.
    pub(crate) fn at(url: &str, shards: u16) -> Self {
        let place = Place::new();
        place.script("job", JOB);
        let number = Env::system().dice().roll();
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

    /// An instance, to be started.
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

    /// Starts an instance and waits until it has come to its end, which has to be a good one.
    #[track_caller]
    pub(crate) fn work(&self, number: u32) -> String {
        let ended = self.start(number).wait();
        let said = ended.stderr.clone();
        ended.ok();
        said
    }

    /// What the orders have noted.
    pub(crate) fn journal(&self) -> Vec<String> {
        self.place.read("journal").lines().map(str::to_owned).collect()
    }

    /// How often an order was begun, or ended: `start 7`.
    pub(crate) fn count(&self, what: &str) -> usize {
        let what = format!("{what} ");
        self.journal().iter().filter(|line| format!("{line} ").starts_with(&what)).count()
    }

    #[track_caller]
    pub(crate) fn until_noted(&self, what: &str) {
        until(what, || self.count(what) > 0);
    }

    /// Where the group stands, as `sawmill status` says.
    pub(crate) fn status(&self) -> Value {
        let said = self.run(&["--json", "status", &self.orders]).ok();
        serde_json::from_str(said.lines().next().expect("a line")).expect(&said)
    }

    /// Why dead letters are dead, a line each.
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

    /// Makes the coordination topic so that the broker compacts it as soon as it may.
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

    /// All records that are on the coordination topic now, and where it ends.
    pub(crate) fn claims_records(&self) -> (Vec<Noted>, i64) {
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
        let mut records: Vec<Noted> = Vec::new();
        let deadline = Instant::now() + PATIENCE;
        // The last record is always there: compaction leaves the newest of each key.
        while end > 0 && records.last().is_none_or(|record| record.offset + 1 < end) {
            let record = match consumer.poll(Duration::from_secs(1)) {
                Some(Ok(record)) => record,
                other => {
                    let (came, in_time) = (records.len(), Instant::now() < deadline);
                    assert!(in_time, "test timed out: the end at {end}; {came} records came, then {other:?}");
                    continue;
                }
            };
            records.push(Noted {
                offset: record.offset(),
                key: String::from_utf8_lossy(record.key().unwrap_or_default()).into_owned(),
                bytes: record.payload().map(<[u8]>::len),
            });
        }
        (records, end)
    }

    /// The setting of the coordination topic.
    pub(crate) fn claims_setting(&self, name: &str) -> Option<String> {
        use rdkafka::admin::ResourceSpecifier;
        let admin: AdminClient<DefaultClientContext> = self.config().create().unwrap();
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        let resource = ResourceSpecifier::Topic(&self.claims);
        let said = runtime.block_on(admin.describe_configs([&resource], &AdminOptions::new())).unwrap();
        said[0].as_ref().unwrap().get(name)?.value.clone()
    }
}
