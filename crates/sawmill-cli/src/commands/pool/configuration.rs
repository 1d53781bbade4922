//! The configuration of an instance from environment variables: the orders topic, the coordination topic, the
//! brokers and the instance number.

use sawmill::engine::model::TopicName;

use crate::failure::Failure;
use crate::session::Session;
use crate::settings::File;

const ORDERS: &str = "ORDERS_TOPIC";
const COORDINATION: &str = "COORDINATION_TOPIC";
const INSTANCE: &str = "INSTANCE_NUMBER";
const BROKERS: &str = "KAFKA_BROKERS";

/// The checked configuration.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Configuration {
    pub(super) orders: String,
    pub(super) instance: u32,
    /// The URL of the store: the brokers, with the coordination topic as the ledger.
    store: String,
}

impl Configuration {
    /// Reads the environment of this process.
    pub(crate) fn read() -> Result<Self, Failure> {
        Self::of(|name| std::env::var(name).ok())
    }

    fn of(variable: impl Fn(&str) -> Option<String>) -> Result<Self, Failure> {
        let wrong =
            |name: &str, what: &str| Failure::usage(format!("the environment variable {name} {what}"));
        let said = |name: &str, example: &str| match variable(name).filter(|value| !value.trim().is_empty()) {
            Some(value) => Ok(value.trim().to_owned()),
            None => Err(wrong(name, &format!("is not set: set it, like {name}={example}"))),
        };
        let orders = said(ORDERS, "work_orders")?;
        let coordination = said(COORDINATION, "work_claims")?;
        let instance = said(INSTANCE, "1")?;
        let brokers = said(BROKERS, "localhost:9092,other:9092")?;

        let name: TopicName =
            orders.parse().map_err(|error| wrong(ORDERS, &format!("is no topic: {error}")))?;
        if name.as_lane().is_some() {
            return Err(wrong(ORDERS, "is the lane of a topic: name the topic itself"));
        }
        if !is_topic(&coordination) {
            let rule =
                "is no topic of Kafka: a name has letters, digits, '.', '_' and '-', at most 249 of them";
            return Err(wrong(COORDINATION, rule));
        }
        if coordination == orders {
            return Err(wrong(COORDINATION, "names the topic of the orders: use two topics"));
        }
        let instance = instance.parse().map_err(|_| {
            wrong(INSTANCE, &format!("is {instance:?}, and must be a whole number from 0 on"))
        })?;
        let store = store(&brokers, &coordination).map_err(|what| wrong(BROKERS, what))?;
        Ok(Self { orders, instance, store })
    }

    /// Makes the session use this store. All other store settings are ignored: only the environment
    /// configures a pool.
    pub(crate) fn apply_to(&self, session: &mut Session) {
        session.globals.store = Some(self.store.clone());
        (session.globals.ledger, session.globals.namespace, session.globals.config) = (None, None, None);
        session.file = File { log_level: session.file.log_level, ..File::default() };
    }
}

/// Returns the URL of the store. Brokers with a password or encryption are given as a URL.
fn store(brokers: &str, coordination: &str) -> Result<String, &'static str> {
    let url = match brokers.contains("://") {
        true if brokers.starts_with("kafka://") => brokers.to_owned(),
        true => return Err("is no URL that begins with kafka://"),
        false if brokers.contains(['?', '@', '/']) => {
            return Err(
                "is no list of brokers like host:port,host:port; with more than that, write it as kafka://…",
            );
        }
        false => format!("kafka://{}", brokers.replace(' ', "")),
    };
    let joint = match url.split_once('?') {
        None => "?",
        Some((_, settings)) if settings.split('&').any(|setting| setting.starts_with("coordination=")) => {
            return Err("names a coordination topic: that is for COORDINATION_TOPIC alone");
        }
        Some(_) => "&",
    };
    Ok(format!("{url}{joint}coordination={coordination}"))
}

fn is_topic(name: &str) -> bool {
    let good = |c: char| c.is_ascii_alphanumeric() || matches!(c, '.' | '_' | '-');
    (1..=249).contains(&name.len()) && name.chars().all(good) && name != "." && name != ".."
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(changed: (&str, Option<&str>)) -> Result<Configuration, Failure> {
        Configuration::of(|name| match name {
            name if name == changed.0 => changed.1.map(str::to_owned),
            ORDERS => Some("work_orders".to_owned()),
            COORDINATION => Some("work_claims".to_owned()),
            INSTANCE => Some("3".to_owned()),
            BROKERS => Some("a:1,b:2".to_owned()),
            _ => None,
        })
    }

    #[test]
    fn k1_the_environment_says_everything() {
        let store = |brokers| of((BROKERS, Some(brokers))).unwrap().store;
        let configuration = of(("", None)).unwrap();
        assert_eq!((configuration.orders.as_str(), configuration.instance), ("work_orders", 3));
        assert_eq!(store("a:1, b:2"), "kafka://a:1,b:2?coordination=work_claims");
        assert_eq!(
            store("kafka://u:p@a:1?tls=on&sasl=scram-sha-512"),
            "kafka://u:p@a:1?tls=on&sasl=scram-sha-512&coordination=work_claims"
        );
    }

    #[test]
    fn k1_each_variable_that_is_missing_or_wrong_is_named() {
        for (name, value, said) in [
            (ORDERS, None, "ORDERS_TOPIC is not set"),
            (ORDERS, Some("  "), "ORDERS_TOPIC is not set"),
            (ORDERS, Some("a b"), "ORDERS_TOPIC is no topic"),
            (ORDERS, Some("a@default.retry"), "lane"),
            (COORDINATION, None, "COORDINATION_TOPIC is not set"),
            (COORDINATION, Some("a/b"), "COORDINATION_TOPIC is no topic"),
            (COORDINATION, Some("work_orders"), "two topics"),
            (INSTANCE, None, "INSTANCE_NUMBER is not set"),
            (INSTANCE, Some("one"), "whole number"),
            (INSTANCE, Some("-1"), "whole number"),
            (BROKERS, None, "KAFKA_BROKERS is not set"),
            (BROKERS, Some("postgres://x"), "kafka://"),
            (BROKERS, Some("user:secret@h:1"), "kafka://"),
            (BROKERS, Some("kafka://h?coordination=x"), "COORDINATION_TOPIC alone"),
        ] {
            let error = of((name, value)).unwrap_err().to_string();
            assert!(error.contains(said) && !error.contains("secret"), "{name}={value:?}: {error}");
        }
    }
}
