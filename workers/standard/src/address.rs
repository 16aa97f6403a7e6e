use std::fmt;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::str::FromStr;

/// Which addresses the `http` task may connect to.
///
/// Whoever can enqueue a job can make a worker send requests from inside its network. So, unless the worker's
/// owner says otherwise, only addresses of the public internet are allowed.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Allowance {
    /// All that is not public, except for metadata services.
    private: bool,
    networks: Vec<Network>,
}

/// A range of addresses, written `10.0.0.0/8`, `fd00::/8`, or as a single address.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Network {
    base: IpAddr,
    prefix: u8,
}

/// An address that the `http` task must not connect to.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{address} is {kind}; to allow it, start the worker with {}={suggestion}", Allowance::VARIABLE)]
pub struct AddressRefused {
    /// The address.
    pub address: IpAddr,
    /// What kind of address it is.
    pub kind: &'static str,
    suggestion: String,
}

/// A text that is no allowance.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "{}: {part:?} {problem}; write 1 for all private networks, or a list such as 10.0.0.0/8,192.168.1.20",
    Allowance::VARIABLE
)]
pub struct InvalidAllowance {
    /// The part that cannot be read.
    pub part: String,
    /// What is wrong with it.
    pub problem: &'static str,
}

impl Allowance {
    /// The environment variable that [`Allowance::from_env`] reads.
    pub const VARIABLE: &str = "CELERIAC_HTTP_ALLOW_PRIVATE";

    /// Only the public internet; the default.
    pub const fn public_only() -> Self {
        Self { private: false, networks: Vec::new() }
    }

    /// The allowance that [`Allowance::VARIABLE`] holds; [`Allowance::public_only`] if it is not set.
    ///
    /// # Errors
    /// [`InvalidAllowance`] names the part that cannot be read.
    pub fn from_env() -> Result<Self, InvalidAllowance> {
        match std::env::var(Self::VARIABLE) {
            Ok(text) => text.parse(),
            Err(std::env::VarError::NotPresent) => Ok(Self::public_only()),
            Err(std::env::VarError::NotUnicode(text)) => {
                Err(InvalidAllowance { part: text.to_string_lossy().into_owned(), problem: "is not UTF-8" })
            }
        }
    }

    /// Whether a connection to `address` is allowed.
    ///
    /// # Errors
    /// [`AddressRefused`] says what kind of address it is and how it can be allowed.
    pub fn check(&self, address: IpAddr) -> Result<(), AddressRefused> {
        let real = embedded_v4(address);
        let Some(kind) = special_kind(real) else { return Ok(()) };
        let listed = self.networks.iter().any(|network| network.contains(real) || network.contains(address));
        if listed || (self.private && kind != METADATA) {
            return Ok(());
        }
        Err(AddressRefused { address, kind, suggestion: real.to_string() })
    }
}

impl FromStr for Allowance {
    type Err = InvalidAllowance;

    /// `1` for all private networks, `0` or nothing for none, or networks separated by commas. `1` leaves out the
    /// metadata services of clouds, which give credentials to whoever asks: they must be listed.
    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let mut allowance = Self::public_only();
        for part in text.split(',').map(str::trim).filter(|part| !part.is_empty()) {
            match part {
                "0" | "false" | "no" => {}
                "1" | "true" | "yes" => allowance.private = true,
                _ => allowance.networks.push(part.parse()?),
            }
        }
        Ok(allowance)
    }
}

impl Network {
    /// Whether the address is in the range. IPv4 and IPv6 are different worlds here.
    pub fn contains(&self, address: IpAddr) -> bool {
        match (self.base, address) {
            (IpAddr::V4(base), IpAddr::V4(address)) => {
                let mask = u32::MAX.checked_shl(32 - u32::from(self.prefix)).unwrap_or(0);
                base.to_bits() & mask == address.to_bits() & mask
            }
            (IpAddr::V6(base), IpAddr::V6(address)) => {
                let mask = u128::MAX.checked_shl(128 - u32::from(self.prefix)).unwrap_or(0);
                base.to_bits() & mask == address.to_bits() & mask
            }
            _ => false,
        }
    }
}

impl FromStr for Network {
    type Err = InvalidAllowance;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let refuse = |problem| InvalidAllowance { part: text.to_owned(), problem };
        let (base, prefix) = match text.split_once('/') {
            Some((base, prefix)) => (base, Some(prefix)),
            None => (text, None),
        };
        let base: IpAddr = base.parse().map_err(|_| refuse("is no address"))?;
        let longest = if base.is_ipv4() { 32 } else { 128 };
        let prefix = match prefix {
            None => longest,
            Some(prefix) => prefix
                .parse()
                .ok()
                .filter(|prefix| *prefix <= longest)
                .ok_or_else(|| refuse("has a prefix that is no number within the address"))?,
        };
        Ok(Self { base, prefix })
    }
}

impl fmt::Display for Network {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.base, self.prefix)
    }
}

/// The IPv4 address that an IPv6 address stands for: a packet to `::ffff:127.0.0.1` is one to `127.0.0.1`.
fn embedded_v4(address: IpAddr) -> IpAddr {
    let IpAddr::V6(v6) = address else { return address };
    if let Some(v4) = v6.to_ipv4_mapped() {
        return IpAddr::V4(v4);
    }
    let low = v6.to_bits() & u128::from(u32::MAX);
    if v6.segments()[..6] == [0x64, 0xff9b, 0, 0, 0, 0]
        && let Ok(bits) = u32::try_from(low)
    {
        return IpAddr::V4(Ipv4Addr::from_bits(bits));
    }
    address
}

/// What is special about an address; `None` for the public internet.
fn special_kind(address: IpAddr) -> Option<&'static str> {
    if METADATA_ADDRESSES.contains(&address) {
        return Some(METADATA);
    }
    match address {
        IpAddr::V4(v4) => SPECIAL_V4
            .iter()
            .find(|(base, prefix, _)| in_network(IpAddr::V4(*base), *prefix, address))
            .map(|(_, _, kind)| *kind)
            .or_else(|| v4.is_broadcast().then_some("a broadcast address")),
        IpAddr::V6(_) => SPECIAL_V6
            .iter()
            .find(|(base, prefix, _)| in_network(IpAddr::V6(*base), *prefix, address))
            .map(|(_, _, kind)| *kind)
            // Everything public that was ever given out is in 2000::/3.
            .or_else(|| {
                let public = in_network(IpAddr::V6(v6([0x2000, 0])), 3, address);
                (!public).then_some("not a public address")
            }),
    }
}

fn in_network(base: IpAddr, prefix: u8, address: IpAddr) -> bool {
    Network { base, prefix }.contains(address)
}

const fn v6(start: [u16; 2]) -> Ipv6Addr {
    Ipv6Addr::new(start[0], start[1], 0, 0, 0, 0, 0, 0)
}

const METADATA: &str = "the metadata service of a cloud";

/// Services that give a machine's credentials to any process on it.
const METADATA_ADDRESSES: [IpAddr; 6] = [
    // AWS, Google, Azure, and most others
    IpAddr::V4(Ipv4Addr::new(169, 254, 169, 254)),
    // AWS containers
    IpAddr::V4(Ipv4Addr::new(169, 254, 170, 2)),
    // Alibaba
    IpAddr::V4(Ipv4Addr::new(100, 100, 100, 200)),
    // Azure's platform channel, a public address that is only reachable from inside
    IpAddr::V4(Ipv4Addr::new(168, 63, 129, 16)),
    // Oracle
    IpAddr::V4(Ipv4Addr::new(192, 0, 0, 192)),
    // AWS over IPv6
    IpAddr::V6(Ipv6Addr::new(0xfd00, 0xec2, 0, 0, 0, 0, 0, 0x254)),
];

/// The registry of special IPv4 addresses (RFC 6890 and its updates).
const SPECIAL_V4: [(Ipv4Addr, u8, &str); 15] = [
    (Ipv4Addr::new(0, 0, 0, 0), 8, "this machine's own address"),
    (Ipv4Addr::new(10, 0, 0, 0), 8, "a private address"),
    (Ipv4Addr::new(100, 64, 0, 0), 10, "an address of a carrier's or a cloud's inner network"),
    (Ipv4Addr::new(127, 0, 0, 0), 8, "a loopback address"),
    (Ipv4Addr::new(169, 254, 0, 0), 16, "a link-local address"),
    (Ipv4Addr::new(172, 16, 0, 0), 12, "a private address"),
    (Ipv4Addr::new(192, 0, 0, 0), 24, "an address reserved for protocols"),
    (Ipv4Addr::new(192, 0, 2, 0), 24, "an address for documentation"),
    (Ipv4Addr::new(192, 88, 99, 0), 24, "a relay address"),
    (Ipv4Addr::new(192, 168, 0, 0), 16, "a private address"),
    (Ipv4Addr::new(198, 18, 0, 0), 15, "an address for benchmarks"),
    (Ipv4Addr::new(198, 51, 100, 0), 24, "an address for documentation"),
    (Ipv4Addr::new(203, 0, 113, 0), 24, "an address for documentation"),
    (Ipv4Addr::new(224, 0, 0, 0), 4, "a multicast address"),
    (Ipv4Addr::new(240, 0, 0, 0), 4, "a reserved address"),
];

/// What is special inside and outside of 2000::/3. Whatever else is outside is refused too.
const SPECIAL_V6: [(Ipv6Addr, u8, &str); 9] = [
    (Ipv6Addr::UNSPECIFIED, 128, "this machine's own address"),
    (Ipv6Addr::LOCALHOST, 128, "a loopback address"),
    (v6([0xfc00, 0]), 7, "a private (unique local) address"),
    (v6([0xfe80, 0]), 10, "a link-local address"),
    (v6([0xff00, 0]), 8, "a multicast address"),
    // Teredo and others: tunnels that end at an address which is hidden in this one.
    (v6([0x2001, 0]), 23, "an address reserved for protocols"),
    (v6([0x2001, 0xdb8]), 32, "an address for documentation"),
    (v6([0x2002, 0]), 16, "a tunnel (6to4) address"),
    (v6([0x3fff, 0]), 20, "an address for documentation"),
];

#[cfg(test)]
mod tests {
    use super::*;

    fn ip(text: &str) -> IpAddr {
        text.parse().unwrap()
    }

    #[test]
    fn only_the_public_internet_is_allowed_by_default() {
        let allowance = Allowance::public_only();
        for (address, part) in [
            ("0.0.0.0", "own address"),
            ("0.1.2.3", "own address"),
            ("10.1.2.3", "private"),
            ("100.64.0.1", "inner network"),
            ("100.127.255.255", "inner network"),
            ("100.100.100.200", "metadata"),
            ("127.0.0.1", "loopback"),
            ("127.255.255.254", "loopback"),
            ("168.63.129.16", "metadata"),
            ("169.254.0.1", "link-local"),
            ("169.254.169.254", "metadata"),
            ("169.254.170.2", "metadata"),
            ("172.16.0.1", "private"),
            ("172.31.255.255", "private"),
            ("192.0.0.8", "reserved"),
            ("192.168.0.1", "private"),
            ("198.19.255.255", "benchmarks"),
            ("224.0.0.1", "multicast"),
            ("239.255.255.255", "multicast"),
            ("240.0.0.1", "reserved"),
            ("255.255.255.255", "reserved"),
            ("::", "own address"),
            ("::1", "loopback"),
            ("::127.0.0.1", "not a public"),
            ("::ffff:127.0.0.1", "loopback"),
            ("::ffff:169.254.169.254", "metadata"),
            ("64:ff9b::10.0.0.1", "private"),
            ("64:ff9b:1::1", "not a public"),
            ("100::1", "not a public"),
            ("2001::1", "reserved"),
            ("2001:db8::1", "documentation"),
            ("2002:7f00:1::", "tunnel"),
            ("fc00::1", "unique local"),
            ("fd00:ec2::254", "metadata"),
            ("fdff::1", "unique local"),
            ("fe80::1", "link-local"),
            ("fec0::1", "not a public"),
            ("ff02::1", "multicast"),
        ] {
            let refused = allowance.check(ip(address)).unwrap_err();
            assert!(refused.kind.contains(part), "{address} is {}", refused.kind);
        }
        for address in [
            "1.1.1.1",
            "93.184.216.34",
            "172.15.0.1",
            "172.32.0.1",
            "100.128.0.1",
            "2606:4700::1111",
            "64:ff9b::1.1.1.1",
        ] {
            allowance.check(ip(address)).unwrap();
        }
    }

    #[test]
    fn one_allows_private_networks_but_no_metadata_service() {
        let allowance: Allowance = "1".parse().unwrap();
        for address in ["127.0.0.1", "10.0.0.1", "::1", "fd12::1", "169.254.1.1", "::ffff:10.0.0.1"] {
            allowance.check(ip(address)).unwrap();
        }
        for address in ["169.254.169.254", "::ffff:169.254.169.254", "fd00:ec2::254"] {
            allowance.check(ip(address)).unwrap_err();
        }
        let listed: Allowance = "1, 169.254.169.254".parse().unwrap();
        listed.check(ip("169.254.169.254")).unwrap();
    }

    #[test]
    fn a_list_allows_what_it_names() {
        let allowance: Allowance = "10.1.0.0/16, 127.0.0.1,fd12::/16".parse().unwrap();
        for address in ["10.1.255.255", "127.0.0.1", "::ffff:127.0.0.1", "fd12::5", "64:ff9b::10.1.0.1"] {
            allowance.check(ip(address)).unwrap();
        }
        for address in ["10.2.0.1", "127.0.0.2", "fd13::5", "192.168.0.1"] {
            allowance.check(ip(address)).unwrap_err();
        }
        let everything: Allowance = "0.0.0.0/0,::/0".parse().unwrap();
        everything.check(ip("169.254.169.254")).unwrap();
        everything.check(ip("fe80::1")).unwrap();
    }

    #[test]
    fn nothing_and_zero_allow_nothing_more() {
        for text in ["", " ", "0", "false", "no", ","] {
            assert_eq!(text.parse::<Allowance>().unwrap(), Allowance::public_only(), "{text:?}");
        }
    }

    #[test]
    fn a_wrong_list_is_refused_with_the_part() {
        for (text, part) in [
            ("10.0.0.0/8,example.com", "\"example.com\" is no address"),
            ("10.0.0.0/33", "prefix"),
            ("::/129", "prefix"),
            ("10.0.0.0/-1", "prefix"),
            ("10.0.0.0/8/8", "prefix"),
            ("2", "is no address"),
        ] {
            let error = text.parse::<Allowance>().unwrap_err().to_string();
            assert!(error.contains(part) && error.contains(Allowance::VARIABLE), "{text:?} gave {error}");
        }
    }
}
