//! Checks which addresses a URL may lead to. Anybody who can push may name a URL, and the owner of a domain
//! can point its name at any address. So the check looks at the resolved addresses, not at the name, and
//! connections go only to checked addresses.
//!
//! By default only addresses in the public internet are allowed.

use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::str::FromStr;

use url::Host;

/// The addresses that may be connected to.
#[derive(Debug, Clone, Default)]
pub(super) struct Guard {
    /// Allows this machine and private networks.
    pub(super) lets_private: bool,
    /// Allows all addresses in these networks.
    pub(super) networks: Vec<Network>,
}

/// How far an address is reachable.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Reach {
    Public,
    /// This machine or a private network.
    Private,
    /// Not reachable, or reachable only for neighbours, such as the metadata services of clouds, which hand
    /// out credentials.
    Special,
}

impl Guard {
    /// Resolves a host and returns its allowed addresses, or why there is none.
    pub(super) async fn look_up(&self, host: &Host<&str>, port: u16) -> Result<Vec<SocketAddr>, Refusal> {
        let found: Vec<SocketAddr> = match host {
            Host::Ipv4(address) => vec![(*address, port).into()],
            Host::Ipv6(address) => vec![(*address, port).into()],
            Host::Domain(name) => {
                let found = tokio::net::lookup_host((*name, port)).await;
                found.map_err(|error| Refusal::Unknown(name.to_string(), error))?.collect()
            }
        };
        let permitted: Vec<SocketAddr> =
            found.iter().filter(|address| self.permits(address.ip())).copied().collect();
        match (permitted.is_empty(), found.first()) {
            (false, _) => Ok(permitted),
            (true, Some(first)) => Err(Refusal::Forbidden(host.to_string(), first.ip())),
            (true, None) => {
                let nothing = io::Error::new(io::ErrorKind::NotFound, "it has no address");
                Err(Refusal::Unknown(host.to_string(), nothing))
            }
        }
    }

    /// True if this address may be connected to.
    pub(super) fn permits(&self, address: IpAddr) -> bool {
        let address = address.to_canonical();
        match reach(address) {
            Reach::Public => true,
            Reach::Private if self.lets_private => true,
            _ => self.networks.iter().any(|network| network.contains(address)),
        }
    }
}

/// True if this address is in the public internet.
pub(super) fn is_public(address: IpAddr) -> bool {
    reach(address.to_canonical()) == Reach::Public
}

/// Why no connection is made.
#[derive(Debug)]
pub(super) enum Refusal {
    /// The host cannot be resolved now.
    Unknown(String, io::Error),
    /// The address is not allowed.
    Forbidden(String, IpAddr),
}

impl std::fmt::Display for Refusal {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Unknown(host, error) => write!(f, "the host {host} is not found: {error}"),
            Self::Forbidden(host, address) => write!(
                f,
                "{host} is at {address}, which is not in the public internet: --allow-private={address} lets it through"
            ),
        }
    }
}

fn reach(address: IpAddr) -> Reach {
    match address {
        IpAddr::V4(address) => reach_v4(address),
        IpAddr::V6(address) => reach_v6(address),
    }
}

/// Classifies by the IANA registry of special addresses, and RFC 6598 for carrier-grade NAT. Some clouds have
/// their metadata services at addresses that look private or public.
fn reach_v4(address: Ipv4Addr) -> Reach {
    match address.octets() {
        // Alibaba Cloud and Azure.
        [100, 100, 100, 200] | [168, 63, 129, 16] => Reach::Special,
        [127, ..] | [10, ..] | [172, 16..=31, ..] | [192, 168, ..] | [100, 64..=127, ..] => Reach::Private,
        [0, ..] | [169, 254, ..] | [224..=255, ..] => Reach::Special,
        [192, 0, 0 | 2, _] | [192, 88, 99, _] | [198, 18 | 19, ..] | [198, 51, 100, _] | [203, 0, 113, _] => {
            Reach::Special
        }
        _ => Reach::Public,
    }
}

fn reach_v6(address: Ipv6Addr) -> Reach {
    match address.segments() {
        // The metadata services of Amazon and Google, with their neighbouring services.
        [0xfd00, 0xec2, ..] | [0xfd20, 0xce, ..] => Reach::Special,
        [0, 0, 0, 0, 0, 0, 0, 1] | [0xfc00..=0xfdff, ..] => Reach::Private,
        // IPv4 addresses behind a NAT64 translator are as reachable as the IPv4 address.
        [0x64, 0xff9b, 0, 0, 0, 0, high, low] => {
            let [a, b] = high.to_be_bytes();
            let [c, d] = low.to_be_bytes();
            match reach_v4(Ipv4Addr::new(a, b, c, d)) {
                Reach::Public => Reach::Public,
                _ => Reach::Special,
            }
        }
        // Protocol assignments, tunnels that can embed any IPv4 address, and documentation.
        [0x2001, 0..=0x1ff | 0xdb8, ..] | [0x2002, ..] | [0x3fff, 0..=0xfff, ..] => Reach::Special,
        [0x2000..=0x3fff, ..] => Reach::Public,
        _ => Reach::Special,
    }
}

/// A network: `10.0.0.0/8`, `fd00::/8`, or a single address.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Network {
    first: IpAddr,
    bits: u32,
}

impl Network {
    fn contains(&self, address: IpAddr) -> bool {
        let alike = |one: u128, other: u128, width: u32| {
            let unlike = width - self.bits;
            one.checked_shr(unlike) == other.checked_shr(unlike)
        };
        match (self.first, address) {
            (IpAddr::V4(one), IpAddr::V4(other)) => alike(one.to_bits().into(), other.to_bits().into(), 32),
            (IpAddr::V6(one), IpAddr::V6(other)) => alike(one.to_bits(), other.to_bits(), 128),
            _ => false,
        }
    }
}

impl FromStr for Network {
    type Err = String;
    fn from_str(text: &str) -> Result<Self, String> {
        let advice = || format!("{text:?} is no network: write 10.0.0.0/8, fd00::/8, or one address");
        let (first, bits) = text.split_once('/').map_or((text, None), |(first, bits)| (first, Some(bits)));
        let first: IpAddr = first.parse().map_err(|_| advice())?;
        let most = if first.is_ipv4() { 32 } else { 128 };
        let bits = bits.map_or(Ok(most), |bits| bits.parse().map_err(|_| advice()))?;
        if bits > most { Err(advice()) } else { Ok(Self { first, bits }) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const WORLD: &[&str] = &[
        "1.1.1.1",
        "8.8.8.8",
        "100.63.0.1",
        "100.128.0.1",
        "172.15.0.1",
        "172.32.0.1",
        "192.167.1.1",
        "223.255.255.1",
        "2606:4700::1111",
        "2a00:1450::1",
        "64:ff9b::808:808",
        "::ffff:8.8.8.8",
    ];
    const PRIVATE: &[&str] = &[
        "127.0.0.1",
        "127.8.9.10",
        "10.1.2.3",
        "172.16.0.1",
        "172.31.255.255",
        "192.168.0.1",
        "100.64.0.1",
        "100.100.100.199",
        "100.127.255.254",
        "::1",
        "fc00::1",
        "fd12:3456::1",
        "fd00:ec3::254",
        "::ffff:127.0.0.1",
        "::ffff:10.0.0.1",
    ];
    const SPECIAL: &[&str] = &[
        "0.0.0.0",
        "0.1.2.3",
        "169.254.169.254",
        "100.100.100.200",
        "168.63.129.16",
        "::ffff:100.100.100.200",
        "fd00:ec2::254",
        "fd00:ec2::23",
        "fd20:ce::254",
        "192.0.0.170",
        "192.0.2.1",
        "192.88.99.1",
        "198.18.0.1",
        "198.51.100.1",
        "203.0.113.1",
        "224.0.0.1",
        "239.1.1.1",
        "240.0.0.1",
        "255.255.255.255",
        "::",
        "fe80::1",
        "fec0::1",
        "ff02::1",
        "2001::1",
        "2001:db8::1",
        "2002:7f00:1::",
        "64:ff9b::7f00:1",
        "64:ff9b::a9fe:a9fe",
        "64:ff9b:1::1",
        "::127.0.0.1",
        "::ffff:169.254.169.254",
        "::ffff:0:0",
        "5f00::1",
        "100::1",
    ];

    fn address(text: &str) -> IpAddr {
        text.parse().unwrap()
    }

    #[test]
    fn g19_only_what_the_world_can_reach_is_let_through_without_more_ado() {
        let (careful, at_home) = (Guard::default(), Guard { lets_private: true, ..Guard::default() });
        for text in WORLD {
            assert!(careful.permits(address(text)) && at_home.permits(address(text)), "{text}");
        }
        for text in PRIVATE {
            assert!(!careful.permits(address(text)) && at_home.permits(address(text)), "{text}");
        }
        for text in SPECIAL {
            assert!(!careful.permits(address(text)) && !at_home.permits(address(text)), "{text}");
        }
    }

    #[test]
    fn g19_networks_that_are_named_are_let_through() {
        let networks = ["10.2.0.0/16", "169.254.1.1", "fd00::/8", "::1"];
        let networks = networks.iter().map(|text| text.parse().unwrap()).collect();
        let guard = Guard { lets_private: false, networks };
        for good in ["10.2.3.4", "::ffff:10.2.3.4", "169.254.1.1", "fdab::1", "::1", "8.8.8.8"] {
            assert!(guard.permits(address(good)), "{good}");
        }
        for bad in ["10.3.0.1", "169.254.169.254", "fc00::1", "127.0.0.1", "0.0.0.0"] {
            assert!(!guard.permits(address(bad)), "{bad}");
        }
        let everything = Guard { lets_private: false, networks: vec!["0.0.0.0/0".parse().unwrap()] };
        assert!(everything.permits(address("127.0.0.1")) && !everything.permits(address("::1")));
        for wrong in
            ["", "10.0.0.0/33", "fd00::/129", "10.0.0.0/-1", "example.org", "10.0.0.0/8/8", "10.0.0/8"]
        {
            assert!(wrong.parse::<Network>().is_err(), "{wrong}");
        }
    }

    #[tokio::test]
    async fn g19_a_name_is_as_good_as_its_addresses() {
        let careful = Guard::default();
        let refused = careful.look_up(&Host::Domain("localhost"), 80).await.unwrap_err();
        assert!(matches!(refused, Refusal::Forbidden(..)), "{refused}");
        let at_home = Guard { lets_private: true, ..Guard::default() };
        let found = at_home.look_up(&Host::Domain("localhost"), 80).await.unwrap();
        assert!(
            !found.is_empty() && found.iter().all(|found| found.ip().is_loopback() && found.port() == 80)
        );
        let unknown = careful.look_up(&Host::Domain("no-such-host.invalid"), 80).await.unwrap_err();
        assert!(matches!(unknown, Refusal::Unknown(..)), "{unknown}");
    }
}
