//! Brokers as Kafka clients see them: node ids, advertised listeners, who leads what.
//!
//! A node id is the hash of the address that it stands for, as in KoP, so that every broker of a cluster, and every
//! start of one, gives a client the same number for the same address. It must not know sockets.

use std::fmt;

/// One broker on one listener.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Node {
    /// [`node_id`] of host and port.
    pub id: i32,
    /// Advertised host name or address.
    pub host: String,
    /// Advertised port.
    pub port: u16,
}

impl Node {
    /// The node at an address.
    #[must_use]
    pub fn new(host: &str, port: u16) -> Self {
        Self {
            id: node_id(host, port),
            host: host.to_owned(),
            port,
        }
    }
}

/// What a broker advertises: listener names and addresses.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Advertised {
    listeners: Vec<(String, Node)>,
}

impl Advertised {
    /// Listeners by name, host and port.
    pub fn new<'a>(listeners: impl IntoIterator<Item = (&'a str, &'a str, u16)>) -> Self {
        Self {
            listeners: listeners
                .into_iter()
                .map(|(name, host, port)| (name.to_owned(), Node::new(host, port)))
                .collect(),
        }
    }

    /// Reads what another broker's handler advertises (`name://host:port,…`, an IPv6 address in brackets). What is not
    /// of that form is left out: another version's words must not hide the listeners that are understood.
    #[must_use]
    pub fn parse(protocol_data: &str) -> Self {
        let listeners = protocol_data
            .split(',')
            .filter_map(|listener| {
                let (name, address) = listener.trim().split_once("://")?;
                let (host, port) = address.rsplit_once(':')?;
                let host = host
                    .strip_prefix('[')
                    .and_then(|host| host.strip_suffix(']'))
                    .unwrap_or(host);
                if name.is_empty() || host.is_empty() {
                    return None;
                }
                Some((name.to_owned(), Node::new(host, port.parse().ok()?)))
            })
            .collect();
        Self { listeners }
    }

    /// The node for clients of a listener: the one of the same name, else the first, as in KoP.
    #[must_use]
    pub fn node(&self, listener: &str) -> Option<&Node> {
        self.listeners
            .iter()
            .find(|(name, _)| name.eq_ignore_ascii_case(listener))
            .or_else(|| self.listeners.first())
            .map(|(_, node)| node)
    }
}

impl fmt::Display for Advertised {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (i, (name, node)) in self.listeners.iter().enumerate() {
            let comma = if i == 0 { "" } else { "," };
            if node.host.contains(':') {
                write!(f, "{comma}{name}://[{}]:{}", node.host, node.port)?;
            } else {
                write!(f, "{comma}{name}://{}:{}", node.host, node.port)?;
            }
        }
        Ok(())
    }
}

/// KoP's node id: Pulsar's `Murmur3_32Hash.makeHash` of the host and the port's digits with nothing between them.
/// Never negative.
#[must_use]
pub fn node_id(host: &str, port: u16) -> i32 {
    let hash = murmur3_32(format!("{host}{port}").as_bytes());
    i32::try_from(hash & 0x7FFF_FFFF).unwrap_or(0)
}

/// MurmurHash3, x86, 32 bits, seed 0 (Austin Appleby, public domain).
fn murmur3_32(bytes: &[u8]) -> u32 {
    fn scramble(word: u32) -> u32 {
        word.wrapping_mul(0xCC9E_2D51)
            .rotate_left(15)
            .wrapping_mul(0x1B87_3593)
    }
    let chunks = bytes.chunks_exact(4);
    let tail = chunks
        .remainder()
        .iter()
        .rev()
        .fold(0, |word, byte| (word << 8) | u32::from(*byte));
    let mut hash = chunks.fold(0_u32, |hash, chunk| {
        let word = chunk
            .iter()
            .rev()
            .fold(0, |word, byte| (word << 8) | u32::from(*byte));
        (hash ^ scramble(word))
            .rotate_left(13)
            .wrapping_mul(5)
            .wrapping_add(0xE654_6B64)
    });
    hash ^= scramble(tail);
    hash ^= u32::try_from(bytes.len()).unwrap_or(u32::MAX);
    hash = (hash ^ (hash >> 16)).wrapping_mul(0x85EB_CA6B);
    hash = (hash ^ (hash >> 13)).wrapping_mul(0xC2B2_AE35);
    hash ^ (hash >> 16)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn murmur3_agrees_with_another_implementation() {
        // From hash4j's Hashing.murmur3_32(), sign bit cleared.
        for (text, hash) in [
            ("", 0),
            ("a", 1_009_084_850),
            ("ab", 465_557_343),
            ("abc", 870_159_354),
            ("abcd", 1_139_631_978),
            ("ü9092", 721_993_312),
        ] {
            assert_eq!(murmur3_32(text.as_bytes()) & 0x7FFF_FFFF, hash, "{text}");
        }
    }

    #[test]
    fn node_ids_are_those_of_kop() {
        assert_eq!(node_id("localhost", 9092), 1_490_328_723);
        assert_eq!(node_id("127.0.0.1", 9092), 782_843_879);
        assert_eq!(node_id("broker-1.example.com", 19092), 2_060_875_462);
        assert_eq!(Node::new("localhost", 9092).id, 1_490_328_723);
    }

    #[test]
    fn advertised_listeners_survive_the_way_through_the_load_report() {
        let text = "PLAINTEXT://10.0.0.1:9092,SSL://[::1]:9093";
        let advertised = Advertised::parse(text);
        assert_eq!(advertised.to_string(), text);
        assert_eq!(advertised.node("SSL"), Some(&Node::new("::1", 9093)));
        assert_eq!(advertised.node("other"), Some(&Node::new("10.0.0.1", 9092)));
    }

    #[test]
    fn what_is_not_understood_is_left_out() {
        let advertised = Advertised::parse("x, ://h:1, A://h, B://h:99999, C://:1, D://h:4");
        assert_eq!(advertised.to_string(), "D://h:4");
        assert_eq!(Advertised::parse("").node("A"), None);
    }
}
