//! The settings of a worker: flags, and `[work]` in the configuration file with the same names.

use std::path::PathBuf;
use std::time::Duration;

use clap::{Args, ValueEnum};
use sawmill::RetryPolicy;
use serde::Deserialize;

use crate::failure::Failure;
use crate::metrics::Address;
use crate::values::{Backoff, Size, Span};

/// The settings that were given; the others are `None`.
#[derive(Debug, Clone, Default, PartialEq, Args, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
#[command(next_help_heading = "Work")]
pub(crate) struct Settings {
    /// The group of this worker. Every group gets every message [default: default]
    #[arg(long, value_name = "NAME")]
    pub(crate) group: Option<String>,
    /// The number of messages to run at once [default: the number of cores]
    #[arg(long, value_name = "N")]
    pub(crate) concurrency: Option<usize>,
    /// Run the messages of a key strictly in order, across all workers of the group
    #[arg(long, value_name = "BOOL", num_args = 0..=1, require_equals = true, default_missing_value = "true")]
    pub(crate) ordered: Option<bool>,
    /// The delivery guarantee [default: at-least-once]
    #[arg(long, value_enum, value_name = "HOW")]
    pub(crate) delivery: Option<Delivery>,
    /// The number of retries of a failed message [default: 5]
    #[arg(long, value_name = "N")]
    pub(crate) retries: Option<u32>,
    /// The wait before retries, from the first to the longest. The first retry is immediate [default: 1s..1h]
    #[arg(long, value_name = "FIRST..LONGEST")]
    pub(crate) backoff: Option<Backoff>,
    /// The handling of messages that are out of retries: keep them as dead letters, or only log them
    /// [default: dead]
    #[arg(long, value_enum, value_name = "WHAT")]
    pub(crate) on_failure: Option<OnFailure>,
    /// The time limit of one run. Then its process group gets SIGTERM, and SIGKILL 2 s later [default: no
    /// limit]
    #[arg(long, value_name = "DURATION")]
    pub(crate) timeout: Option<Span>,
    /// The memory limit of each process (Linux only), on private writable memory (RLIMIT_DATA) [default: no
    /// limit]
    #[arg(long, value_name = "SIZE")]
    pub(crate) memory: Option<Size>,
    /// The name of the worker, for people [default: worker]
    #[arg(long, value_name = "NAME")]
    pub(crate) name: Option<String>,
    /// The command to run with `sh -c` before the first message. If it fails, the worker does not start
    #[arg(long, value_name = "COMMAND")]
    pub(crate) on_start: Option<String>,
    /// The command to run with `sh -c` after the last message
    #[arg(long, value_name = "COMMAND")]
    pub(crate) on_stop: Option<String>,
    /// Exit with 0 when no messages are left that could run now
    #[arg(long, value_name = "BOOL", num_args = 0..=1, require_equals = true, default_missing_value = "true")]
    pub(crate) drain: Option<bool>,
    /// Exit after this number of runs, retries included
    #[arg(long, value_name = "N")]
    pub(crate) limit: Option<u64>,
    /// Start COMMAND once per slot. It reads messages as JSON lines on stdin and answers each with a line on
    /// stdout
    #[arg(long, value_name = "BOOL", num_args = 0..=1, require_equals = true, default_missing_value = "true")]
    pub(crate) stream: Option<bool>,
    /// The folder for a journal of started messages: after a crash only these are lost (at-most-once only)
    #[arg(long, value_name = "FOLDER")]
    pub(crate) journal: Option<PathBuf>,
    /// How long this worker may be silent before others take over its messages [default: 10s]
    #[arg(long, value_name = "DURATION")]
    pub(crate) ttl: Option<Span>,
    /// Fail if a topic does not exist, instead of creating it
    #[arg(long, value_name = "BOOL", num_args = 0..=1, require_equals = true, default_missing_value = "true")]
    pub(crate) no_create: Option<bool>,
    /// Log only warnings and errors
    #[arg(long, value_name = "BOOL", num_args = 0..=1, require_equals = true, default_missing_value = "true")]
    pub(crate) quiet: Option<bool>,
    /// The file to append the log to, instead of stderr. SIGUSR1 reopens it
    #[arg(long, value_name = "FILE")]
    pub(crate) log_file: Option<PathBuf>,
    /// The address to serve Prometheus metrics at, under /metrics. A port alone listens on localhost only
    #[arg(long, value_name = "ADDRESS")]
    pub(crate) metrics: Option<Address>,
}

/// The delivery guarantee.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, ValueEnum, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum Delivery {
    /// Run the message until a run ends; again if its worker dies
    #[default]
    AtLeastOnce,
    /// Start the message at most once; a failed or lost message becomes a dead letter
    AtMostOnce,
}

/// The handling of messages that are out of retries.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, ValueEnum, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum OnFailure {
    /// Keep the message as a dead letter
    #[default]
    Dead,
    /// Log the message and drop it
    Log,
}

impl Settings {
    /// Combines two sets of settings; `self` wins where both set one.
    pub(crate) fn over(self, weaker: &Settings) -> Self {
        let weaker = weaker.clone();
        Self {
            group: self.group.or(weaker.group),
            concurrency: self.concurrency.or(weaker.concurrency),
            ordered: self.ordered.or(weaker.ordered),
            delivery: self.delivery.or(weaker.delivery),
            retries: self.retries.or(weaker.retries),
            backoff: self.backoff.or(weaker.backoff),
            on_failure: self.on_failure.or(weaker.on_failure),
            timeout: self.timeout.or(weaker.timeout),
            memory: self.memory.or(weaker.memory),
            name: self.name.or(weaker.name),
            on_start: self.on_start.or(weaker.on_start),
            on_stop: self.on_stop.or(weaker.on_stop),
            drain: self.drain.or(weaker.drain),
            limit: self.limit.or(weaker.limit),
            stream: self.stream.or(weaker.stream),
            journal: self.journal.or(weaker.journal),
            ttl: self.ttl.or(weaker.ttl),
            no_create: self.no_create.or(weaker.no_create),
            quiet: self.quiet.or(weaker.quiet),
            log_file: self.log_file.or(weaker.log_file),
            metrics: self.metrics.or(weaker.metrics),
        }
    }

    /// Applies the defaults and checks the settings. Checks that the library makes are left to it.
    pub(crate) fn resolve(self) -> Result<Plan, Failure> {
        let backoff = self.backoff.unwrap_or(DEFAULT_BACKOFF);
        let plan = Plan {
            group: self.group.unwrap_or_else(|| "default".to_owned()),
            concurrency: self
                .concurrency
                .unwrap_or_else(|| std::thread::available_parallelism().map_or(1, usize::from)),
            ordered: self.ordered.unwrap_or(false),
            delivery: self.delivery.unwrap_or_default(),
            retry: RetryPolicy::retries(self.retries.unwrap_or(5)).backoff(backoff.first, backoff.most),
            snooze: backoff.first,
            on_failure: self.on_failure.unwrap_or_default(),
            timeout: self.timeout.map(|timeout| timeout.0),
            memory: self.memory,
            name: self.name.unwrap_or_else(|| "worker".to_owned()),
            sole: false,
            on_start: self.on_start,
            on_stop: self.on_stop,
            drain: self.drain.unwrap_or(false),
            limit: self.limit,
            stream: self.stream.unwrap_or(false),
            journal: self.journal,
            ttl: self.ttl.map_or(DEFAULT_TTL, |ttl| ttl.0),
            creates: !self.no_create.unwrap_or(false),
            quiet: self.quiet.unwrap_or(false),
            log_file: self.log_file,
            metrics: self.metrics,
        };
        plan.check()?;
        Ok(plan)
    }
}

const DEFAULT_BACKOFF: Backoff = Backoff { first: Duration::from_secs(1), most: Duration::from_secs(3600) };
const DEFAULT_TTL: Duration = Duration::from_secs(10);

/// The complete settings of a worker.
#[derive(Debug, Clone)]
pub(crate) struct Plan {
    pub(crate) group: String,
    pub(crate) concurrency: usize,
    pub(crate) ordered: bool,
    pub(crate) delivery: Delivery,
    pub(crate) retry: RetryPolicy,
    /// How long to wait after exit code 75.
    pub(crate) snooze: Duration,
    pub(crate) on_failure: OnFailure,
    pub(crate) timeout: Option<Duration>,
    pub(crate) memory: Option<Size>,
    pub(crate) name: String,
    /// The name must be unique among living workers, and the worker holds one message at a time.
    pub(crate) sole: bool,
    pub(crate) on_start: Option<String>,
    pub(crate) on_stop: Option<String>,
    pub(crate) drain: bool,
    pub(crate) limit: Option<u64>,
    pub(crate) stream: bool,
    pub(crate) journal: Option<PathBuf>,
    pub(crate) ttl: Duration,
    pub(crate) creates: bool,
    pub(crate) quiet: bool,
    pub(crate) log_file: Option<PathBuf>,
    pub(crate) metrics: Option<Address>,
}

impl Plan {
    fn check(&self) -> Result<(), Failure> {
        if self.concurrency == 0 {
            return Err(Failure::usage("--concurrency 0 lets nothing run: choose 1 or more"));
        }
        if self.limit == Some(0) {
            return Err(Failure::usage("--limit 0 lets nothing run: choose 1 or more"));
        }
        if self.timeout.is_some_and(|timeout| timeout.is_zero()) {
            return Err(Failure::usage("--timeout 0s lets nothing end: choose a longer time, or none"));
        }
        if self.memory.is_some_and(|memory| memory.0 == 0) {
            return Err(Failure::usage("--memory 0 lets nothing begin: choose more, or no limit"));
        }
        if self.memory.is_some() && !cfg!(target_os = "linux") {
            return Err(Failure::usage(
                "--memory needs Linux: leave it out, or limit the worker as a whole by other means",
            ));
        }
        if self.journal.is_some() && self.delivery != Delivery::AtMostOnce {
            return Err(Failure::usage(
                "--journal is for `--delivery at-most-once`: other groups run again what a dead worker held, started or not",
            ));
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_flag_is_stronger_than_the_file_and_the_file_than_the_default() {
        let file: Settings = toml::from_str(
            "group = 'file'\nconcurrency = 3\nordered = true\nbackoff = '2s..1m'\ndelivery = 'at-most-once'",
        )
        .unwrap();
        let flags = Settings { group: Some("flag".into()), ordered: Some(false), ..Settings::default() };
        let plan = flags.over(&file).resolve().unwrap();
        assert_eq!((plan.group.as_str(), plan.concurrency, plan.ordered), ("flag", 3, false));
        assert_eq!((plan.snooze, plan.delivery), (Duration::from_secs(2), Delivery::AtMostOnce));
        assert_eq!(plan.ttl, DEFAULT_TTL);
    }

    #[test]
    fn the_file_has_the_names_of_the_flags() {
        let all = "group = 'g'\nconcurrency = 1\nordered = true\ndelivery = 'at-least-once'\nretries = 1\nbackoff = '1s..2s'\n\
                   on-failure = 'log'\ntimeout = '5m'\nmemory = '512M'\nname = 'n'\non-start = 'true'\non-stop = 'true'\n\
                   drain = true\nlimit = 1\nstream = true\njournal = 'j'\nttl = '5s'\nno-create = true\nquiet = true\nlog-file = 'l'\nmetrics = '9100'";
        let settings: Settings = toml::from_str(all).unwrap();
        assert_eq!(Settings::default().over(&settings), settings, "every one is merged");
        for wrong in
            ["timeout = 5", "timeout = 'soon'", "on_failure = 'log'", "delivery = 'exactly-once'", "x = 1"]
        {
            assert!(toml::from_str::<Settings>(wrong).is_err(), "{wrong}");
        }
    }

    #[test]
    fn what_makes_no_sense_is_refused() {
        let refused = |settings: Settings| settings.resolve().unwrap_err().to_string();
        assert!(refused(Settings { concurrency: Some(0), ..Settings::default() }).contains("--concurrency"));
        assert!(refused(Settings { limit: Some(0), ..Settings::default() }).contains("--limit"));
        assert!(
            refused(Settings { journal: Some("j".into()), ..Settings::default() }).contains("at-most-once")
        );
    }
}
