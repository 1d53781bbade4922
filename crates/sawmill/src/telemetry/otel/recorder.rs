//! Forwards metrics of the facade `metrics` to a meter of OpenTelemetry.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard};

use metrics::{
    Counter, CounterFn, Gauge, GaugeFn, Histogram, HistogramFn, Key, KeyName, Metadata, SharedString, Unit,
};
use opentelemetry::KeyValue;
use opentelemetry::metrics::Meter;
use sawmill_engine::{Error, ErrorKind, Result};

/// Forwards metrics to a meter of OpenTelemetry, under the same [names](crate::telemetry#metrics). Labels
/// become attributes.
///
/// It forwards all metrics of the process that go through the facade [`metrics`]. Install it before the first
/// push and the first worker.
///
/// ```no_run
/// # fn main() -> sawmill::Result<()> {
/// sawmill::telemetry::otel::Recorder::new(opentelemetry::global::meter("sawmill")).install()?;
/// # Ok(()) }
/// ```
pub struct Recorder {
    meter: Meter,
    described: Mutex<HashMap<String, Described>>,
    /// Several handles may change one gauge, but OpenTelemetry only takes absolute values, so the value is
    /// kept here.
    gauges: Mutex<HashMap<Key, Arc<Level>>>,
}

#[derive(Clone, Default)]
struct Described {
    unit: Option<Unit>,
    what: String,
}

impl Recorder {
    /// Makes a recorder that forwards to this meter.
    pub fn new(meter: Meter) -> Self {
        Self { meter, described: Mutex::default(), gauges: Mutex::default() }
    }

    /// Installs the recorder for this process. Fails with [`Exists`](ErrorKind::Exists) if the process has
    /// one already.
    pub fn install(self) -> Result<()> {
        metrics::set_global_recorder(self).map_err(|_| {
            Error::new(
                ErrorKind::Exists,
                "this process has a recorder of metrics already: install this one first, or alone",
            )
        })
    }

    fn describe(&self, name: KeyName, unit: Option<Unit>, what: SharedString) {
        let described = Described { unit, what: what.into_owned() };
        lock(&self.described).insert(name.as_str().to_owned(), described);
    }

    fn described(&self, key: &Key) -> (&'static str, String) {
        let Described { unit, what } = lock(&self.described).get(key.name()).cloned().unwrap_or_default();
        let unit = match unit {
            Some(Unit::Seconds) => "s",
            Some(Unit::Bytes) => "By",
            _ => "1",
        };
        (unit, what)
    }
}

impl metrics::Recorder for Recorder {
    fn describe_counter(&self, name: KeyName, unit: Option<Unit>, what: SharedString) {
        self.describe(name, unit, what);
    }

    fn describe_gauge(&self, name: KeyName, unit: Option<Unit>, what: SharedString) {
        self.describe(name, unit, what);
    }

    fn describe_histogram(&self, name: KeyName, unit: Option<Unit>, what: SharedString) {
        self.describe(name, unit, what);
    }

    fn register_counter(&self, key: &Key, _: &Metadata<'_>) -> Counter {
        let (unit, what) = self.described(key);
        let builder = self.meter.u64_counter(key.name().to_owned());
        let counter = builder.with_unit(unit).with_description(what).build();
        Counter::from_arc(Arc::new(Count { counter, attributes: attributes(key), total: Mutex::new(0) }))
    }

    fn register_gauge(&self, key: &Key, _: &Metadata<'_>) -> Gauge {
        let (unit, what) = self.described(key);
        let mut gauges = lock(&self.gauges);
        let level = gauges.entry(key.clone()).or_insert_with(|| {
            let builder = self.meter.f64_gauge(key.name().to_owned());
            let gauge = builder.with_unit(unit).with_description(what).build();
            Arc::new(Level { gauge, attributes: attributes(key), value: Mutex::new(0.0) })
        });
        Gauge::from_arc(level.clone())
    }

    fn register_histogram(&self, key: &Key, _: &Metadata<'_>) -> Histogram {
        let (unit, what) = self.described(key);
        let builder = self.meter.f64_histogram(key.name().to_owned());
        let histogram = builder.with_unit(unit).with_description(what).build();
        Histogram::from_arc(Arc::new(Spread { histogram, attributes: attributes(key) }))
    }
}

fn attributes(key: &Key) -> Vec<KeyValue> {
    key.labels().map(|label| KeyValue::new(label.key().to_owned(), label.value().to_owned())).collect()
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(|poisoned| poisoned.into_inner())
}

struct Count {
    counter: opentelemetry::metrics::Counter<u64>,
    attributes: Vec<KeyValue>,
    /// The value so far, for increments that are given as absolute values.
    total: Mutex<u64>,
}

impl CounterFn for Count {
    fn increment(&self, value: u64) {
        *lock(&self.total) += value;
        self.counter.add(value, &self.attributes);
    }

    fn absolute(&self, value: u64) {
        let mut total = lock(&self.total);
        self.counter.add(value.saturating_sub(*total), &self.attributes);
        *total = value.max(*total);
    }
}

struct Level {
    gauge: opentelemetry::metrics::Gauge<f64>,
    attributes: Vec<KeyValue>,
    value: Mutex<f64>,
}

impl Level {
    fn change(&self, to: impl FnOnce(f64) -> f64) {
        let mut value = lock(&self.value);
        *value = to(*value);
        self.gauge.record(*value, &self.attributes);
    }
}

impl GaugeFn for Level {
    fn increment(&self, value: f64) {
        self.change(|now| now + value);
    }

    fn decrement(&self, value: f64) {
        self.change(|now| now - value);
    }

    fn set(&self, value: f64) {
        self.change(|_| value);
    }
}

struct Spread {
    histogram: opentelemetry::metrics::Histogram<f64>,
    attributes: Vec<KeyValue>,
}

impl HistogramFn for Spread {
    fn record(&self, value: f64) {
        self.histogram.record(value, &self.attributes);
    }
}
