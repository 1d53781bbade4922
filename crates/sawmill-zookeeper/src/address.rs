//! Parses a ledger's URL: hosts, user, path and session timeout.

use std::time::Duration;

use sawmill_engine::storage::{StoreUrl, percent_decode};
use sawmill_engine::{Error, ErrorKind, Result};

/// The session timeout if the URL does not set it.
const DEFAULT_TIMEOUT: Duration = Duration::from_secs(10);
const SHORTEST: Duration = Duration::from_millis(100);
const LONGEST: Duration = Duration::from_secs(3600);
const SETTING: &str = "session-timeout";

/// How many hosts the driver is given at least.
const ROUND: usize = 12;

const EXAMPLE: &str = "write it like zookeeper://host:2181,host:2181/path";

/// The parsed URL of a ledger.
#[derive(Clone, PartialEq, Eq)]
pub(crate) struct Address {
    /// Hosts and ports, separated by commas.
    hosts: String,
    /// The node below which everything is kept; `None` means the default.
    pub(crate) chroot: Option<String>,
    /// User and password, joined by a colon.
    pub(crate) user: Option<String>,
    pub(crate) session_timeout: Duration,
}

impl Address {
    pub(crate) fn of(url: &StoreUrl) -> Result<Self> {
        let refused = |said: &str| Error::new(ErrorKind::Invalid, format!("{url}: {said}"));
        if url.scheme() != "zookeeper" {
            return Err(refused(&format!("this engine opens other URLs: {EXAMPLE}")));
        }
        let rest = url.rest().strip_prefix("//");
        let rest = rest.ok_or_else(|| refused(&format!("there is no // before the hosts: {EXAMPLE}")))?;
        let (place, settings) = rest.split_once('?').unwrap_or((rest, ""));
        // A password may contain a slash; a host cannot.
        let (user, place) = place.rsplit_once('@').map_or((None, place), |(user, place)| (Some(user), place));
        let (hosts, path) = place.find('/').map_or((place, ""), |slash| place.split_at(slash));
        check_hosts(hosts).map_err(|said| refused(&said))?;
        let chroot = path.trim_end_matches('/');
        check_path(chroot).map_err(|said| refused(&said))?;
        Ok(Self {
            hosts: hosts.to_owned(),
            chroot: (!chroot.is_empty()).then(|| chroot.to_owned()),
            user: user.map(credentials).transpose().map_err(|said| refused(&said))?,
            session_timeout: session_timeout(settings).map_err(|said| refused(&said))?,
        })
    }

    /// Returns the hosts in the driver's syntax, each several times.
    ///
    /// The driver doubles its pause whenever it has tried all hosts. With one host it may still wait when the
    /// server has been back for as long as it was away, and the session ends meanwhile. Within a round of
    /// hosts its pauses are short.
    pub(crate) fn round_of_hosts(&self) -> String {
        let hosts = self.hosts.split(',').count();
        vec![self.hosts.as_str(); ROUND.div_ceil(hosts)].join(",")
    }
}

fn check_hosts(hosts: &str) -> Result<(), String> {
    for host in hosts.split(',') {
        let (name, port) = match host.rfind(':').filter(|colon| !host[*colon..].contains(']')) {
            Some(colon) => (&host[..colon], Some(&host[colon + 1..])),
            None => (host, None),
        };
        if name.is_empty() {
            return Err(format!("a host is missing: {EXAMPLE}"));
        }
        if port.is_some_and(|port| !port.parse::<u16>().is_ok_and(|port| port > 0)) {
            return Err(format!("a port is not a number from 1 to 65535: {EXAMPLE}"));
        }
    }
    Ok(())
}

fn check_path(path: &str) -> Result<(), String> {
    let bad = |part: &str| part.is_empty() || part == "." || part == ".." || part.contains(char::is_control);
    if path.split('/').skip(1).any(bad) {
        return Err("the path has an empty part, or one that ZooKeeper does not take".to_owned());
    }
    Ok(())
}

/// Decodes user and password, which may use percent-encoding.
fn credentials(text: &str) -> Result<String, String> {
    let said = "the user or the password is missing: write zookeeper://user:password@host:2181";
    let (user, password) = text.split_once(':').ok_or(said)?;
    let (user, password) = (decoded(user)?, decoded(password)?);
    if user.is_empty() || password.is_empty() {
        return Err(said.to_owned());
    }
    if user.contains(':') {
        return Err("ZooKeeper knows no users with a colon in their names".to_owned());
    }
    Ok(format!("{user}:{password}"))
}

fn decoded(text: &str) -> Result<String, String> {
    percent_decode(text).map_err(|error| format!("the user or the password is not URL-encoded: {error}"))
}

fn session_timeout(settings: &str) -> Result<Duration, String> {
    let mut chosen = None;
    for setting in settings.split('&').filter(|setting| !setting.is_empty()) {
        let (name, value) = setting.split_once('=').unwrap_or((setting, ""));
        if name != SETTING {
            return Err(format!("there is no setting {name}; there is {SETTING}"));
        }
        let seconds = value.parse().ok().and_then(|seconds| Duration::try_from_secs_f64(seconds).ok());
        let timeout = seconds.filter(|timeout| (SHORTEST..=LONGEST).contains(timeout));
        let timeout = timeout.ok_or_else(|| format!("{SETTING} must be seconds, from 0.1 to 3600"))?;
        if chosen.replace(timeout).is_some() {
            return Err(format!("{SETTING} is given twice"));
        }
    }
    Ok(chosen.unwrap_or(DEFAULT_TIMEOUT))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn address(text: &str) -> Result<Address> {
        Address::of(&text.parse().unwrap())
    }

    #[test]
    fn a_url_says_where_who_and_how_long() {
        let all =
            address("zookeeper://me:se%2Fc%40ret@one:2181,[::1]:2182/a/b/?session-timeout=2.5").unwrap();
        assert_eq!(all.hosts, "one:2181,[::1]:2182");
        assert_eq!(all.chroot.as_deref(), Some("/a/b"));
        assert_eq!(all.user.as_deref(), Some("me:se/c@ret"));
        assert_eq!(all.session_timeout, Duration::from_millis(2500));
        let least = address("zookeeper://one").unwrap();
        assert_eq!(
            (&*least.hosts, least.chroot, least.user, least.session_timeout),
            ("one", None, None, DEFAULT_TIMEOUT)
        );
        assert_eq!(address("zookeeper://one:2181/").unwrap().chroot, None);
        assert_eq!(address("zookeeper://me:a:b/c@one").unwrap().user.as_deref(), Some("me:a:b/c"));
    }

    #[test]
    fn the_driver_is_given_hosts_for_a_whole_round() {
        for (hosts, given) in [("one:2181", 12), ("one,two", 12), ("one,two,three,four,five", 15)] {
            let round = address(&format!("zookeeper://{hosts}")).unwrap().round_of_hosts();
            assert_eq!(round.split(',').count(), given, "{round}");
            assert!(round.starts_with(hosts), "{round}");
        }
    }

    #[test]
    fn what_makes_no_sense_is_refused_and_no_password_is_shown() {
        for (text, said) in [
            ("zookeeper:one", "no // before"),
            ("zookeeper:///a", "a host is missing"),
            ("zookeeper://one,,two", "a host is missing"),
            ("zookeeper://:2181", "a host is missing"),
            ("zookeeper://one:port", "not a number from 1"),
            ("zookeeper://one:0", "not a number from 1"),
            ("zookeeper://one:", "not a number from 1"),
            ("zookeeper://one/a//b", "an empty part"),
            ("zookeeper://one/a/../b", "an empty part"),
            ("zookeeper://secret@one", "password is missing"),
            ("zookeeper://me:@one", "password is missing"),
            ("zookeeper://:secret@one", "password is missing"),
            ("zookeeper://m%3Ae:secret@one", "a colon"),
            ("zookeeper://me:secret%4@one", "two hexadecimal digits"),
            ("zookeeper://me:secret%ff@one", "UTF-8"),
            ("zookeeper://me:secret@one?colour=red", "colour"),
            ("zookeeper://me:secret@one?session-timeout=soon", "from 0.1"),
            ("zookeeper://me:secret@one?session-timeout=-1", "from 0.1"),
            ("zookeeper://me:secret@one?session-timeout=1e9", "from 0.1"),
            ("zookeeper://me:secret@one?session-timeout=1&session-timeout=2", "twice"),
            ("postgres://me:secret@one", "opens other URLs"),
        ] {
            let error = address(text).err().unwrap_or_else(|| panic!("{text} is taken"));
            assert_eq!(error.kind(), ErrorKind::Invalid, "{text}");
            assert!(error.to_string().contains(said), "{text}: {error}");
            assert!(!error.to_string().contains("me:secret"), "{error}");
        }
    }
}
