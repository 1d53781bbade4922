//! What can be set of a worker: by flags, and by the same names in the configuration file under `[work]`.

use std::path::PathBuf;
use std::time::Duration;

use clap::{Args, ValueEnum};
use sawmill::RetryPolicy;
use serde::Deserialize;

use crate::failure::Failure;
use crate::metrics::Address;
use crate::written::{Backoff, Size, Span};

/// What was said; what was not is `None`.
#[derive(Debug, Clone, Default, PartialEq, Args, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
#[command(next_help_heading = "Work")]
pub(crate) struct Settings {
    /// The group that this worker belongs to; every group sees every message [default: default]
    #[arg(long, value_name = "NAME")]
    pub(crate) group: Option<String>,
    /// How many messages to run at once [default: the number of cores]
    #[arg(long, value_name = "N")]
    pub(crate) concurrency: Option<usize>,
    /// Strict order per key, across all workers of the group
    #[arg(long, value_name = "BOOL", num_args = 0..=1, require_equals = true, default_missing_value = "true")]
    pub(crate) ordered: Option<bool>,
    /// How often a message may be run [default: at-least-once]
    #[arg(long, value_enum, value_name = "HOW")]
    pub(crate) delivery: Option<Delivery>,
    /// How often a failed message is tried again before it is given up [default: 5]
    #[arg(long, value_name = "N")]
    pub(crate) retries: Option<u32>,
    /// How long to wait before retries: the first of them comes at once, then from the one to the other [default: 1s..1h]
    #[arg(long, value_name = "FIRST..LONGEST")]
    pub(crate) backoff: Option<Backoff>,
    /// What to do with a message that is out of retries: keep it as a dead letter, or only log it [default: dead]
    #[arg(long, value_enum, value_name = "WHAT")]
    pub(crate) on_failure: Option<OnFailure>,
    /// How long one run may take; then its process group gets SIGTERM, and SIGKILL 2 s later [default: no limit]
    #[arg(long, value_name = "DURATION")]
    pub(crate) timeout: Option<Span>,
    /// How much memory each process may have (Linux): private writable memory, by RLIMIT_DATA [default: no limit]
    #[arg(long, value_name = "SIZE")]
    pub(crate) memory: Option<Size>,
    /// What the worker is called, for people [default: worker]
    #[arg(long, value_name = "NAME")]
    pub(crate) name: Option<String>,
    /// Run this by `sh -c` before the first message; if it fails, the worker does not start
    #[arg(long, value_name = "COMMAND")]
    pub(crate) on_start: Option<String>,
    /// Run this by `sh -c` after the last message
    #[arg(long, value_name = "COMMAND")]
    pub(crate) on_stop: Option<String>,
    /// Exit with 0 when nothing is left to do now
    #[arg(long, value_name = "BOOL", num_args = 0..=1, require_equals = true, default_missing_value = "true")]
    pub(crate) drain: Option<bool>,
    /// Exit after so many runs, retries included; no more than that are started
    #[arg(long, value_name = "N")]
    pub(crate) limit: Option<u64>,
    /// Start COMMAND once per slot; messages are JSON lines on its stdin, and it answers each with one on its stdout
    #[arg(long, value_name = "BOOL", num_args = 0..=1, require_equals = true, default_missing_value = "true")]
    pub(crate) stream: Option<bool>,
    /// Keep a journal in this folder of what was started, so that a crash loses nothing else (at-most-once only)
    #[arg(long, value_name = "FOLDER")]
    pub(crate) journal: Option<PathBuf>,
    /// How long this worker may be silent before others take over what it holds [default: 10s]
    #[arg(long, value_name = "DURATION")]
    pub(crate) ttl: Option<Span>,
    /// Do not create topics that are missing; it is an error then
    #[arg(long, value_name = "BOOL", num_args = 0..=1, require_equals = true, default_missing_value = "true")]
    pub(crate) no_create: Option<bool>,
    /// Say nothing that is not a warning or an error
    #[arg(long, value_name = "BOOL", num_args = 0..=1, require_equals = true, default_missing_value = "true")]
    pub(crate) quiet: Option<bool>,
    /// Log to the end of this file, and not to stderr; SIGUSR1 reopens it
    #[arg(long, value_name = "FILE")]
    pub(crate) log_file: Option<PathBuf>,
    /// Serve metrics for Prometheus at http://ADDRESS/metrics; only a port is open to this machine alone
    #[arg(long, value_name = "ADDRESS")]
    pub(crate) metrics: Option<Address>,
}

/// How often a message may be run.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, ValueEnum, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum Delivery {
    /// It is run until a run of it has ended; again if its worker died meanwhile
    #[default]
    AtLeastOnce,
    /// It is started once at most; what fails or is lost becomes a dead letter
    AtMostOnce,
}

/// What to do with a message that is out of retries.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, ValueEnum, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum OnFailure {
    /// Keep it as a dead letter, to be looked at, retried or dropped
    #[default]
    Dead,
    /// Log it and go on
    Log,
}

impl Settings {
    /// These, and what they leave open as the others say.
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

    /// What is meant, defaults included; a failure if that makes no sense. What the library checks is left to it.
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

/// What a worker is to be, everything considered.
#[derive(Debug, Clone)]
pub(crate) struct Plan {
    pub(crate) group: String,
    pub(crate) concurrency: usize,
    pub(crate) ordered: bool,
    pub(crate) delivery: Delivery,
    pub(crate) retry: RetryPolicy,
    /// How long a message waits whose command said "later".
    pub(crate) snooze: Duration,
    pub(crate) on_failure: OnFailure,
    pub(crate) timeout: Option<Duration>,
    pub(crate) memory: Option<Size>,
    pub(crate) name: String,
    /// No other living worker may have this name, and it holds one message at a time.
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
