//! Parses the URL `kafka://USER:PASSWORD@HOST:PORT,HOST:PORT?SETTINGS` and derives the client configuration
//! from it.

use rdkafka::ClientConfig;
use sawmill_engine::storage::{StoreUrl, percent_decode};
use sawmill_engine::{Error, ErrorKind, Result};

const ADVICE: &str =
    "write it like kafka://HOST:PORT,HOST:PORT or kafka://USER:PASSWORD@HOST:PORT?tls=on&sasl=scram-sha-512";
const DEFAULT_PORT: u16 = 9092;

/// The parsed URL.
#[derive(Clone, PartialEq, Eq)]
pub(crate) struct Address {
    pub(crate) brokers: String,
    login: Option<(String, String)>,
    sasl: Sasl,
    tls: bool,
    ca: Option<String>,
    /// The user's own coordination topic, if one is set.
    pub(crate) coordination: Option<String>,
    /// The replication factor of new topics; the broker's default if not set.
    pub(crate) replication: Option<i32>,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Sasl {
    Plain,
    Scram256,
    Scram512,
}

impl Address {
    pub(crate) fn parse(url: &StoreUrl) -> Result<Self> {
        let wrong = |what: &str| Error::new(ErrorKind::Invalid, format!("{url}: {what}: {ADVICE}"));
        let rest = url.rest().strip_prefix("//").ok_or_else(|| wrong("// is missing after kafka:"))?;
        let (place, settings) = rest.split_once('?').unwrap_or((rest, ""));
        let place = place.strip_suffix('/').unwrap_or(place);
        let (login, hosts) = match place.rsplit_once('@') {
            Some((login, hosts)) => (Some(login), hosts),
            None => (None, place),
        };
        let decoded = |text: &str| {
            percent_decode(text).map_err(|_| wrong("a % is not followed by two hexadecimal digits"))
        };
        let login = match login {
            None => None,
            Some(login) => {
                let (user, password) =
                    login.split_once(':').ok_or_else(|| wrong("the user has no password"))?;
                Some((decoded(user)?, decoded(password)?))
            }
        };
        let brokers: Option<Vec<String>> = hosts.split(',').map(broker).collect();
        let brokers = brokers.ok_or_else(|| wrong("a broker is not a host and a port"))?.join(",");
        let mut address = Self {
            brokers,
            login,
            sasl: Sasl::Plain,
            tls: false,
            ca: None,
            coordination: None,
            replication: None,
        };
        for setting in settings.split('&').filter(|setting| !setting.is_empty()) {
            let (name, value) = setting.split_once('=').unwrap_or((setting, ""));
            let value = decoded(value)?;
            match (name, value.as_str()) {
                ("tls", "on") => address.tls = true,
                ("tls", "off") => address.tls = false,
                ("tls", _) => return Err(wrong("tls is on or off")),
                ("ca", file) if !file.is_empty() => address.ca = Some(file.to_owned()),
                ("sasl", "plain") => address.sasl = Sasl::Plain,
                ("sasl", "scram-sha-256") => address.sasl = Sasl::Scram256,
                ("sasl", "scram-sha-512") => address.sasl = Sasl::Scram512,
                ("sasl", _) => return Err(wrong("sasl is plain, scram-sha-256 or scram-sha-512")),
                ("coordination", topic) if is_topic(topic) => {
                    address.coordination = Some(topic.to_owned());
                }
                ("coordination", _) => {
                    return Err(wrong(
                        "coordination is the name of a topic: letters, digits, '.', '_' and '-'",
                    ));
                }
                ("replication", number) => match number.parse() {
                    Ok(copies @ 1..=100) => address.replication = Some(copies),
                    _ => return Err(wrong("replication is a number of brokers")),
                },
                _ => {
                    return Err(wrong(&format!(
                        "there is no setting {name:?}; there are tls, ca, sasl, coordination and replication"
                    )));
                }
            }
        }
        let scram = address.sasl != Sasl::Plain;
        if scram && address.login.is_none() {
            return Err(wrong("sasl needs a user and a password before the @"));
        }
        if address.ca.is_some() && !address.tls {
            return Err(wrong("ca is for tls=on"));
        }
        if (address.tls || scram) && !cfg!(feature = "tls") {
            return Err(Error::new(
                ErrorKind::Unsupported,
                format!("{url}: this build has no TLS and no SCRAM: build it with the feature `tls`"),
            ));
        }
        Ok(address)
    }

    /// Returns the configuration that all clients share.
    pub(crate) fn config(&self) -> ClientConfig {
        let mut config = ClientConfig::new();
        config.set("bootstrap.servers", &self.brokers);
        config.set("client.id", "sawmill");
        config.set("socket.keepalive.enable", "true");
        config.set("socket.nagle.disable", "true");
        // Reconnect soon after a broker comes back.
        config.set("reconnect.backoff.ms", "50");
        config.set("reconnect.backoff.max.ms", "1000");
        let protocol = match (self.tls, &self.login) {
            (false, None) => "plaintext",
            (true, None) => "ssl",
            (false, Some(_)) => "sasl_plaintext",
            (true, Some(_)) => "sasl_ssl",
        };
        config.set("security.protocol", protocol);
        if let Some((user, password)) = &self.login {
            let mechanism = match self.sasl {
                Sasl::Plain => "PLAIN",
                Sasl::Scram256 => "SCRAM-SHA-256",
                Sasl::Scram512 => "SCRAM-SHA-512",
            };
            config.set("sasl.mechanism", mechanism);
            config.set("sasl.username", user).set("sasl.password", password);
        }
        if let Some(file) = &self.ca {
            config.set("ssl.ca.location", file);
        }
        config
    }
}

/// Parses `host:port`; the port defaults to [`DEFAULT_PORT`].
fn broker(text: &str) -> Option<String> {
    let (host, port) = match text.rsplit_once(':') {
        // The colons of an IPv6 address are within brackets.
        Some((host, port)) if !port.ends_with(']') => (host, port.parse().ok().filter(|port| *port > 0)?),
        _ => (text, DEFAULT_PORT),
    };
    let odd = |c: char| !(c.is_ascii_alphanumeric() || matches!(c, '.' | '-' | '_' | ':' | '[' | ']'));
    (!host.is_empty() && !host.contains(odd)).then(|| format!("{host}:{port}"))
}

fn is_topic(name: &str) -> bool {
    let good = |c: char| c.is_ascii_alphanumeric() || matches!(c, '.' | '_' | '-');
    (1..=249).contains(&name.len()) && name.chars().all(good) && name != "." && name != ".."
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(text: &str) -> Result<Address> {
        Address::parse(&text.parse().unwrap())
    }

    #[test]
    fn brokers_are_read_with_and_without_ports() {
        for (text, brokers) in [
            ("kafka://h", "h:9092"),
            ("kafka://h:1/", "h:1"),
            ("kafka://a:1,b:2,c", "a:1,b:2,c:9092"),
            ("kafka://[::1]:5", "[::1]:5"),
            ("kafka://[::1]", "[::1]:9092"),
            ("kafka://u:p@h:1?coordination=work_claims&replication=3", "h:1"),
        ] {
            assert_eq!(parse(text).unwrap().brokers, brokers, "{text}");
        }
        let address = parse("kafka://u%40x:p%25:@h?coordination=c").unwrap();
        assert_eq!(address.login, Some(("u@x".into(), "p%:".into())));
        assert_eq!(address.coordination.as_deref(), Some("c"));
    }

    #[test]
    fn what_is_wrong_is_said_without_the_password() {
        for (text, said) in [
            ("kafka:h", "//"),
            ("kafka://", "host and a port"),
            ("kafka://h:x", "host and a port"),
            ("kafka://h:0", "host and a port"),
            ("kafka://a,,b", "host and a port"),
            ("kafka://h/topic", "host and a port"),
            ("kafka://u@h", "no password"),
            ("kafka://u:secret%4@h", "hexadecimal"),
            ("kafka://u:secret@h?sasl=kerberos", "sasl is"),
            ("kafka://h?sasl=scram-sha-256", "user and a password"),
            ("kafka://h?tls=yes", "on or off"),
            ("kafka://h?ca=/x", "tls=on"),
            ("kafka://h?coordination=a/b", "name of a topic"),
            ("kafka://h?replication=0", "number of brokers"),
            ("kafka://u:secret@h?what=ever", "no setting"),
        ] {
            let Err(error) = parse(text) else { panic!("{text} is refused") };
            let error = error.to_string();
            assert!(error.contains(said) && !error.contains("secret"), "{text}: {error}");
        }
    }
}
