//! Parses a store's URL: the nodes, the consistency of reads and writes, and the defaults of new topics.

use std::time::Duration;

use sawmill_engine::storage::{StoreUrl, percent_decode};
use sawmill_engine::{Error, ErrorKind, Result};
use scylla::frame::types::{Consistency, SerialConsistency};
use url::Url;

/// The default port of a node.
const PORT: u16 = 9042;

/// A parsed URL.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Address {
    /// `host:port` of each node.
    pub(crate) nodes: Vec<String>,
    pub(crate) keyspace: String,
    pub(crate) login: Option<(String, String)>,
    pub(crate) replication: Option<Replication>,
    pub(crate) consistency: Consistency,
    pub(crate) serial: SerialConsistency,
    pub(crate) datacenter: Option<String>,
    pub(crate) timeout: Duration,
    pub(crate) security: Security,
    pub(crate) topic_defaults: TopicDefaults,
}

/// The encryption of the connections to the nodes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Security {
    None,
    /// TLS. The node's certificate must match its address and be signed by an authority in this file, or by
    /// one that the system trusts if there is no file.
    Verified(Option<String>),
}

/// The replication of a keyspace that is created.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Replication {
    Everywhere(u16),
    PerDatacenter(Vec<(String, u16)>),
}

/// The settings of topics that are created.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct TopicDefaults {
    pub(crate) bucket: Duration,
    pub(crate) settle: Duration,
    pub(crate) keep: Duration,
}

impl Default for TopicDefaults {
    fn default() -> Self {
        Self {
            bucket: Duration::from_secs(60),
            settle: Duration::from_secs(10),
            keep: Duration::from_secs(10 * 86_400),
        }
    }
}

fn invalid(said: impl Into<String>) -> Error {
    Error::new(ErrorKind::Invalid, said)
}

impl Address {
    pub(crate) fn of(url: &StoreUrl) -> Result<Self> {
        Self::read(url).map_err(|error| Error::new(error.kind(), format!("{url}: {error}")))
    }

    fn read(url: &StoreUrl) -> Result<Self> {
        let form = "write cassandra://user:password@host:9042,host2:9042/keyspace";
        let rest = url.rest().strip_prefix("//").filter(|_| url.scheme() == "cassandra");
        let rest = rest.ok_or_else(|| invalid(format!("this is not a URL of this engine: {form}")))?;
        let (place, settings) = rest.split_once('?').unwrap_or((rest, ""));
        let (place, keyspace) = place
            .rsplit_once('/')
            .filter(|(_, keyspace)| !keyspace.is_empty())
            .ok_or_else(|| invalid(format!("the keyspace is missing: {form}")))?;
        let (login, hosts) =
            place.rsplit_once('@').map_or((None, place), |(login, hosts)| (Some(login), hosts));
        let mut address = Self {
            nodes: hosts.split(',').map(node).collect::<Result<_>>()?,
            keyspace: keyspace_of(keyspace)?,
            login: login.map(login_of).transpose()?,
            replication: None,
            consistency: Consistency::Quorum,
            serial: SerialConsistency::Serial,
            datacenter: None,
            timeout: Duration::from_secs(5),
            security: Security::None,
            topic_defaults: TopicDefaults::default(),
        };
        address.set_all(settings)?;
        Ok(address)
    }

    /// Returns whether reads, writes or transactions wait for the replicas of one datacenter only.
    pub(crate) fn is_local(&self) -> bool {
        self.consistency == Consistency::LocalQuorum || self.serial == SerialConsistency::LocalSerial
    }

    /// Refuses a local consistency level on a keyspace with several datacenters if the URL does not name one.
    pub(crate) fn check_datacenters(&self, datacenters: &[String]) -> Result<()> {
        if datacenters.len() < 2 || !self.is_local() || self.datacenter.is_some() {
            return Ok(());
        }
        Err(invalid(format!(
            "the keyspace has replicas in several datacenters ({}): with LOCAL_QUORUM or LOCAL_SERIAL all clients must \
             use the same one, or messages are lost; set the same datacenter= in every URL, or use QUORUM and SERIAL",
            datacenters.join(", ")
        )))
    }

    fn set_all(&mut self, settings: &str) -> Result<()> {
        let (mut mode, mut authorities, mut seen) = (None, None, Vec::new());
        let pairs = Url::parse(&format!("x://x/?{settings}")).map_err(|error| invalid(error.to_string()))?;
        for (name, value) in pairs.query_pairs() {
            if seen.contains(&name) {
                return Err(invalid(format!("{name} is given twice")));
            }
            match &*name {
                "ssl-mode" => mode = Some(value.to_ascii_uppercase()),
                "ssl-ca" => authorities = Some(value.to_string()),
                _ => self.set(&name, &value)?,
            }
            seen.push(name);
        }
        self.security = match (mode.as_deref().unwrap_or("DISABLED"), authorities) {
            ("DISABLED", None) => Security::None,
            ("VERIFY_IDENTITY", authorities) => Security::Verified(authorities),
            ("DISABLED", Some(_)) => {
                return Err(invalid(
                    "ssl-ca is of no use unless certificates are checked: add ssl-mode=VERIFY_IDENTITY",
                ));
            }
            (other, _) => {
                return Err(invalid(format!("ssl-mode is {other}, and can be DISABLED or VERIFY_IDENTITY")));
            }
        };
        self.check()
    }

    fn set(&mut self, name: &str, value: &str) -> Result<()> {
        match name {
            "replication" => self.replication = Some(replication(value)?),
            "consistency" => self.consistency = consistency(value)?,
            "serial" => self.serial = serial(value)?,
            "datacenter" => self.datacenter = Some(value.to_owned()),
            "timeout" => self.timeout = duration(name, value)?,
            "bucket" => self.topic_defaults.bucket = duration(name, value)?,
            "settle" => self.topic_defaults.settle = duration(name, value)?,
            "keep" => self.topic_defaults.keep = duration(name, value)?,
            _ => {
                return Err(invalid(format!(
                    "there is no setting {name}; there are replication, consistency, serial, datacenter, timeout, ssl-mode, \
                     ssl-ca, bucket, settle and keep"
                )));
            }
        }
        Ok(())
    }

    fn check(&self) -> Result<()> {
        let within = |name: &str, value: Duration, least: u64, most: u64| {
            let seconds = Duration::from_secs;
            if value < seconds(least) || value > seconds(most) {
                return Err(invalid(format!(
                    "{name} can be from {least} seconds to {most} seconds, not {value:?}"
                )));
            }
            Ok(())
        };
        within("timeout", self.timeout, 1, 600)?;
        within("bucket", self.topic_defaults.bucket, 1, 7 * 86_400)?;
        within("settle", self.topic_defaults.settle, 1, 3600)?;
        within("keep", self.topic_defaults.keep, 1, 5 * 365 * 86_400)?;
        if self.topic_defaults.keep < self.topic_defaults.settle {
            return Err(invalid(
                "keep is shorter than settle: messages would expire before they are sure to be found",
            ));
        }
        Ok(())
    }
}

/// Adds the default port if the host has none.
fn node(text: &str) -> Result<String> {
    let host = text.rsplit_once(':').filter(|(host, _)| !host.ends_with(':') && !text.ends_with(']'));
    match host {
        None if text.is_empty() => Err(invalid("a host is missing: write host:9042")),
        None => Ok(format!("{text}:{PORT}")),
        Some((host, port)) if !host.is_empty() && port.parse::<u16>().is_ok() => Ok(text.to_owned()),
        Some(_) => Err(invalid(format!("{text:?} is no host with a port: write host:9042"))),
    }
}

fn keyspace_of(name: &str) -> Result<String> {
    let good =
        name.len() <= 48 && name.chars().all(|c| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '_');
    if good && name.starts_with(|c: char| c.is_ascii_lowercase()) {
        return Ok(name.to_owned());
    }
    Err(invalid(format!(
        "{name:?} cannot be a keyspace here: use lowercase letters, digits and '_', beginning with a letter, 48 at most"
    )))
}

fn login_of(text: &str) -> Result<(String, String)> {
    let (user, password) = text.split_once(':').unwrap_or((text, ""));
    let plain = |part: &str| {
        percent_decode(part).map_err(|_| {
            invalid("the user or the password is not URL-encoded: % needs two hexadecimal digits")
        })
    };
    Ok((plain(user)?, plain(password)?))
}

fn consistency(value: &str) -> Result<Consistency> {
    match value.to_ascii_uppercase().as_str() {
        "QUORUM" => Ok(Consistency::Quorum),
        "LOCAL_QUORUM" => Ok(Consistency::LocalQuorum),
        "ALL" => Ok(Consistency::All),
        other => Err(invalid(format!(
            "consistency can be QUORUM, LOCAL_QUORUM or ALL, not {other}: with less, acknowledged messages may not be read"
        ))),
    }
}

fn serial(value: &str) -> Result<SerialConsistency> {
    match value.to_ascii_uppercase().as_str() {
        "SERIAL" => Ok(SerialConsistency::Serial),
        "LOCAL_SERIAL" => Ok(SerialConsistency::LocalSerial),
        other => Err(invalid(format!(
            "serial can be SERIAL, or LOCAL_SERIAL if all clients use one datacenter, not {other}"
        ))),
    }
}

fn replication(value: &str) -> Result<Replication> {
    let wrong = || invalid(format!("replication is {value:?}: write a number, like 3, or dc1:3,dc2:3"));
    let number = |text: &str| text.parse::<u16>().ok().filter(|n| (1..=100).contains(n)).ok_or_else(wrong);
    if !value.contains(':') {
        return Ok(Replication::Everywhere(number(value)?));
    }
    let named = |part: &str| {
        let (name, factor) = part.split_once(':').ok_or_else(wrong)?;
        let good = !name.is_empty() && name.chars().all(|c| c.is_ascii_alphanumeric() || "_-.".contains(c));
        if good { Ok((name.to_owned(), number(factor)?)) } else { Err(wrong()) }
    };
    Ok(Replication::PerDatacenter(value.split(',').map(named).collect::<Result<_>>()?))
}

/// A time like `10s`, `500ms`, `2m`, `6h` or `10d`.
fn duration(name: &str, value: &str) -> Result<Duration> {
    let end = value.find(|c: char| !c.is_ascii_digit()).unwrap_or(value.len());
    let unit = match &value[end..] {
        "ms" => Some(1),
        "s" => Some(1000),
        "m" => Some(60_000),
        "h" => Some(3_600_000),
        "d" => Some(86_400_000),
        _ => None,
    };
    let number: Option<u64> = value[..end].parse().ok();
    number
        .zip(unit)
        .and_then(|(number, unit)| number.checked_mul(unit))
        .map(Duration::from_millis)
        .ok_or_else(|| invalid(format!("{name} is {value:?}: write it like 500ms, 10s, 2m, 6h or 10d")))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn address(text: &str) -> Result<Address> {
        Address::of(&text.parse().unwrap())
    }

    #[test]
    fn a_url_says_where_and_how() {
        let plain = address("cassandra://localhost/jobs").unwrap();
        assert_eq!(
            (plain.nodes, plain.keyspace.as_str(), plain.login),
            (vec!["localhost:9042".into()], "jobs", None)
        );
        assert_eq!((plain.consistency, plain.serial), (Consistency::Quorum, SerialConsistency::Serial));
        let full = address(
            "cassandra://me:se%2Fcret@a:1,b,[::1]:2/jobs?replication=dc1:3,dc2:2&consistency=local_quorum&\
             serial=LOCAL_SERIAL&datacenter=dc1&timeout=2s&ssl-mode=verify_identity&ssl-ca=ca.pem&bucket=1h&settle=30s&keep=2d",
        )
        .unwrap();
        assert_eq!(full.nodes, ["a:1", "b:9042", "[::1]:2"]);
        assert_eq!(full.login, Some(("me".into(), "se/cret".into())));
        let both = vec![("dc1".to_owned(), 3), ("dc2".to_owned(), 2)];
        assert_eq!(full.replication, Some(Replication::PerDatacenter(both)));
        assert_eq!(
            (full.consistency, full.serial),
            (Consistency::LocalQuorum, SerialConsistency::LocalSerial)
        );
        assert_eq!((full.datacenter.as_deref(), full.timeout), (Some("dc1"), Duration::from_secs(2)));
        assert_eq!(full.security, Security::Verified(Some("ca.pem".into())));
        let seconds = Duration::from_secs;
        let topic_defaults =
            TopicDefaults { bucket: seconds(3600), settle: seconds(30), keep: seconds(172_800) };
        assert_eq!(full.topic_defaults, topic_defaults);
    }

    #[test]
    fn what_is_wrong_is_named_and_the_password_is_not() {
        for (settings, said) in [
            ("host", "keyspace is missing"),
            ("host/", "keyspace is missing"),
            ("host:port/jobs", "no host with a port"),
            ("host,/jobs", "a host is missing"),
            ("host/Jobs", "lowercase letters"),
            ("host/jobs?colour=red", "colour"),
            ("host/jobs?consistency=ONE", "may not be read"),
            ("host/jobs?serial=QUORUM", "LOCAL_SERIAL"),
            ("host/jobs?replication=none", "a number"),
            ("host/jobs?replication=0", "a number"),
            ("host/jobs?bucket=10", "like 500ms"),
            ("host/jobs?settle=10ms", "from 1 seconds"),
            ("host/jobs?keep=5s", "shorter than settle"),
            ("host/jobs?settle=10s&settle=20s", "twice"),
            ("host/jobs?ssl-mode=REQUIRED", "VERIFY_IDENTITY"),
            ("host/jobs?ssl-ca=x", "of no use"),
        ] {
            let error = address(&format!("cassandra://me:secret@{settings}")).unwrap_err();
            assert_eq!(error.kind(), ErrorKind::Invalid);
            assert!(error.to_string().contains(said), "{settings}: {error}");
            assert!(!error.to_string().contains("secret"), "{error}");
        }
        assert!(address("mysql://host/jobs").unwrap_err().to_string().contains("cassandra://"));
    }

    #[test]
    fn one_datacenter_of_several_must_be_named_to_go_by_it_alone() {
        let datacenters = ["east".to_owned(), "west".to_owned()];
        for (settings, is_fine) in [
            ("", true),
            ("?consistency=ALL&datacenter=east", true),
            ("?consistency=LOCAL_QUORUM", false),
            ("?serial=LOCAL_SERIAL", false),
            ("?consistency=LOCAL_QUORUM&serial=LOCAL_SERIAL&datacenter=east", true),
        ] {
            let address = address(&format!("cassandra://host/jobs{settings}")).unwrap();
            assert_eq!(address.check_datacenters(&datacenters).is_ok(), is_fine, "{settings}");
            address.check_datacenters(&datacenters[..1]).unwrap();
        }
    }
}
