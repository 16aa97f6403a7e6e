use std::net::{IpAddr, Ipv4Addr, SocketAddr};

/// From where a listener may be reached.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Reach {
    /// From wherever the address is reachable: somebody asked for it.
    Anywhere,
    /// From this machine only.
    Loopback,
}

/// A text that is no address to listen on, with what is wrong.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{value:?} is no address to listen on: {problem}")]
pub struct InvalidAddress {
    /// What was given.
    pub value: String,
    /// What is wrong with it.
    pub problem: String,
}

/// Reads `9464` or `:9464` (loopback), `127.0.0.1:9464`, `[::1]:9464`. Port 0 takes any free one.
///
/// # Errors
/// [`InvalidAddress`] for what is no address.
pub fn read_address(text: &str) -> Result<SocketAddr, InvalidAddress> {
    let text = text.trim();
    let port = text.strip_prefix(':').unwrap_or(text);
    if let Ok(port) = port.parse::<u16>() {
        return Ok(SocketAddr::new(IpAddr::V4(Ipv4Addr::LOCALHOST), port));
    }
    text.parse().map_err(|_| InvalidAddress {
        value: text.chars().take(120).collect(),
        problem: "write a port such as 9464, or an IP address with a port such as 127.0.0.1:9464".to_owned(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_port_alone_is_loopback() {
        for (text, address) in [
            ("9464", "127.0.0.1:9464"),
            (":9464", "127.0.0.1:9464"),
            ("0", "127.0.0.1:0"),
            ("0.0.0.0:1", "0.0.0.0:1"),
            ("[::1]:2", "[::1]:2"),
        ] {
            assert_eq!(read_address(text).unwrap(), address.parse().unwrap(), "{text}");
        }
        for text in ["", "70000", "localhost:1", "1.2.3.4", "-1", "http://127.0.0.1:1"] {
            let error = read_address(text).unwrap_err().to_string();
            assert!(error.contains("write a port such as 9464"), "{text}: {error}");
        }
    }
}
