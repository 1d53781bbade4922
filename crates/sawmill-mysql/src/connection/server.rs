//! The properties of a server: whether it is suitable, and its limits.

use sawmill_engine::model::{MAX_HEADER_BYTES, MAX_KEY_BYTES};
use sawmill_engine::storage::{Capabilities, Finding};
use sawmill_engine::{Error, ErrorKind};

use crate::connection::connections::Connection;
use crate::connection::sql::{Sql, longest};
use crate::error::Failure;
use crate::log::row::{field, only};

/// The smallest acceptable packet: it fits an entry of the ledger, and a message of half a megabyte.
const SMALLEST_PACKET: usize = 4 << 20;
/// Space in a packet for everything except values.
const MARGIN: usize = 64 << 10;
/// Headers are stored with the lengths of their names and values: eight bytes per header, which itself has at
/// least one byte.
const LONGEST_HEADERS: usize = 9 * MAX_HEADER_BYTES;

/// The properties of a server, queried once.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Server {
    /// The maximum size of statements that are sent together.
    pub(crate) packet: usize,
    /// The server is a node of a Galera cluster.
    pub(crate) galera: bool,
}

impl Server {
    /// Queries the server and refuses an unsuitable one.
    pub(crate) async fn ask(connection: &mut Connection) -> Result<Self, Failure> {
        let mut sql = Sql::new(
            "SELECT VERSION(), @@max_allowed_packet,
             (SELECT support FROM information_schema.engines WHERE engine = 'InnoDB')",
        );
        sql.then("SHOW GLOBAL VARIABLES LIKE 'wsrep_on'");
        let mut answers = connection.ask(&sql).await?;
        let galera = match answers.pop().and_then(|answer| only(answer.rows)) {
            Some(mut row) => field::<String>(&mut row, 1)?.eq_ignore_ascii_case("on"),
            None => false,
        };
        let Some(mut row) = answers.into_iter().flat_map(|answer| answer.rows).next() else {
            return Err(Failure::Lost("the server does not say what it is".into()));
        };
        let version: String = field(&mut row, 0)?;
        let packet: usize = field(&mut row, 1)?;
        let innodb: Option<String> = field(&mut row, 2)?;
        check_version(&version)?;
        check_innodb(innodb.as_deref())?;
        check_packet(packet)?;
        Ok(Self { packet: packet - MARGIN, galera })
    }

    /// Returns the maximum payload size such that any message fits into one packet.
    pub(crate) fn max_payload_bytes(self, most: usize) -> usize {
        let beside = longest(MAX_KEY_BYTES) + longest(LONGEST_HEADERS) + longest(0);
        (self.packet.saturating_sub(beside) / 2).min(most)
    }

    /// Returns the capabilities of a log on this server.
    pub(crate) fn capabilities(self, most: Capabilities) -> Capabilities {
        let max_payload_bytes = self.max_payload_bytes(most.max_payload_bytes);
        Capabilities { max_payload_bytes, exactly_once: most.exactly_once && !self.galera, ..most }
    }

    /// Returns a finding for the operator, if there is one.
    pub(crate) fn finding(self) -> Option<Finding> {
        self.galera.then(|| {
            Finding::new(
                "galera",
                "the server is one of a Galera cluster, whose other nodes may not show yet what it has acknowledged",
                "have all who use this store go to the same node, and to another only when that is gone",
            )
        })
    }
}

/// Refuses versions that are too old.
fn check_version(version: &str) -> Result<(), Error> {
    let mut numbers =
        version.split(|c: char| !c.is_ascii_digit()).map(|number| number.parse::<u32>().unwrap_or(0));
    let found = (numbers.next().unwrap_or(0), numbers.next().unwrap_or(0));
    let (name, least) = if is_mariadb(version) { ("MariaDB", (10, 6)) } else { ("MySQL", (8, 0)) };
    if found >= least {
        return Ok(());
    }
    Err(Error::new(
        ErrorKind::Unsupported,
        format!(
            "the server is {name} {version}, and at least {name} {}.{} is needed: use a newer one",
            least.0, least.1
        ),
    ))
}

fn is_mariadb(version: &str) -> bool {
    version.to_ascii_lowercase().contains("mariadb")
}

fn check_innodb(support: Option<&str>) -> Result<(), Error> {
    match support {
        Some("YES" | "DEFAULT") => Ok(()),
        _ => Err(Error::new(
            ErrorKind::Unsupported,
            "the server has no InnoDB, and without transactions nothing is safe; turn it on",
        )),
    }
}

fn check_packet(packet: usize) -> Result<(), Error> {
    if packet >= SMALLEST_PACKET {
        return Ok(());
    }
    Err(Error::new(
        ErrorKind::Unsupported,
        format!(
            "the server's max_allowed_packet is {packet}, and at least {SMALLEST_PACKET} is needed: raise it"
        ),
    ))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn servers_that_are_too_old_are_refused() {
        for good in [
            "10.6.0-MariaDB",
            "10.11.19-MariaDB-0+deb12u1",
            "11.4.2-MariaDB-log",
            "8.0.36",
            "9.1.0",
            "8.4.0-0ubuntu1",
        ] {
            assert!(check_version(good).is_ok(), "{good}");
        }
        for (old, said) in [
            ("10.5.23-MariaDB-1", "at least MariaDB 10.6"),
            ("5.5.68-MariaDB", "at least MariaDB 10.6"),
            ("5.7.44-log", "at least MySQL 8.0"),
            ("", "at least MySQL 8.0"),
        ] {
            let error = check_version(old).unwrap_err();
            assert_eq!(error.kind(), ErrorKind::Unsupported);
            assert!(error.to_string().contains(said), "{error}");
        }
    }

    #[test]
    fn a_node_of_a_galera_cluster_is_named_and_finishes_nothing_exactly_once() {
        let exactly_once =
            |galera| Server { packet: 16 << 20, galera }.capabilities(crate::CAPABILITIES).exactly_once;
        assert!(exactly_once(false) && !exactly_once(true));
        let found = |galera| Server { packet: 16 << 20, galera }.finding();
        assert_eq!((found(false), found(true).unwrap().check), (None, "galera"));
    }

    #[test]
    fn a_server_without_innodb_is_refused() {
        assert!(check_innodb(Some("DEFAULT")).is_ok());
        for support in [None, Some("NO"), Some("DISABLED")] {
            let error = check_innodb(support).unwrap_err();
            assert_eq!(error.kind(), ErrorKind::Unsupported);
            assert!(error.to_string().contains("InnoDB"), "{error}");
        }
    }

    #[test]
    fn a_packet_that_is_too_small_is_refused_by_name() {
        let error = check_packet(1 << 20).unwrap_err();
        assert!(error.to_string().contains("max_allowed_packet is 1048576"), "{error}");
    }

    #[test]
    fn payloads_are_as_large_as_a_packet_allows() {
        let payload =
            |packet: usize| Server { packet: packet - MARGIN, galera: false }.max_payload_bytes(16 << 20);
        assert!(payload(4 << 20) > 512 << 10);
        assert!(payload(16 << 20) > 7 << 20 && payload(16 << 20) < 8 << 20);
        assert_eq!(payload(64 << 20), 16 << 20);
    }
}
