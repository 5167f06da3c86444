//! `kafkaListeners`, `kafkaAdvertisedListeners` and `kafkaProtocolMap`: which sockets, and what each advertises.
//!
//! Syntax as KoP's: `NAME://host:port`, comma list, IPv6 in brackets, an empty host for the broker's own address. It
//! must not open a socket.

use std::collections::HashMap;
use std::fmt;
use std::sync::Arc;

use handler_api::{ApiError, ErrorCode};

use super::{given, invalid};

const LISTENERS: &str = "kafkaListeners";
const DEPRECATED_LISTENERS: &str = "listeners";
const ADVERTISED: &str = "kafkaAdvertisedListeners";
const PROTOCOL_MAP: &str = "kafkaProtocolMap";

/// A socket to bind and what it advertises.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Listener {
    /// Its name, upper case by convention; clients get addresses of the listener that they came in by.
    pub name: Arc<str>,
    /// What is spoken on it.
    pub protocol: Protocol,
    /// Where to bind; port 0 takes a free one.
    pub bind: Endpoint,
    /// What clients are told; port 0 stands for the port that was bound.
    pub advertised: Endpoint,
}

/// Host and port.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Endpoint {
    /// Name or address, IPv6 without brackets.
    pub host: String,
    /// Port.
    pub port: u16,
}

impl fmt::Display for Endpoint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.host.contains(':') {
            write!(f, "[{}]:{}", self.host, self.port)
        } else {
            write!(f, "{}:{}", self.host, self.port)
        }
    }
}

/// Kafka's security protocols.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Protocol {
    /// Neither encrypted nor authenticated.
    Plaintext,
    /// TLS.
    Ssl,
    /// SASL without encryption.
    SaslPlaintext,
    /// SASL over TLS.
    SaslSsl,
}

impl Protocol {
    fn parse(text: &str) -> Option<Self> {
        match text.to_ascii_uppercase().as_str() {
            "PLAINTEXT" => Some(Self::Plaintext),
            "SSL" => Some(Self::Ssl),
            "SASL_PLAINTEXT" => Some(Self::SaslPlaintext),
            "SASL_SSL" => Some(Self::SaslSsl),
            _ => None,
        }
    }
}

/// One `NAME://host:port`; an empty host stays empty.
fn parse_uri(uri: &str) -> Option<(Arc<str>, Endpoint)> {
    let (name, rest) = uri.trim().split_once("://")?;
    let (host, port) = rest.rsplit_once(':')?;
    let host = match host.strip_prefix('[') {
        Some(address) => address.strip_suffix(']')?,
        None if host.contains(':') => return None,
        None => host,
    };
    let legal = |c: char| c.is_ascii_alphanumeric() || "-%._:".contains(c);
    let named = !name.is_empty()
        && name
            .chars()
            .all(|c| c.is_ascii_alphanumeric() || "-_.".contains(c));
    (named && host.chars().all(legal)).then_some(())?;
    Some((
        name.into(),
        Endpoint {
            host: host.to_owned(),
            port: port.parse().ok()?,
        },
    ))
}

fn parse_uris(key: &str, value: &str) -> Result<Vec<(Arc<str>, Endpoint)>, ApiError> {
    let mut found: Vec<(Arc<str>, Endpoint)> = Vec::new();
    for uri in value.split(',').filter(|uri| !uri.trim().is_empty()) {
        let (name, endpoint) = parse_uri(uri).ok_or_else(|| {
            invalid(
                key,
                value,
                &format!(
                    "{} is not NAME://host:port with a port from 0 to 65535",
                    uri.trim()
                ),
            )
        })?;
        if found.iter().any(|(other, _)| *other == name) {
            return Err(invalid(
                key,
                value,
                &format!("the name {name} appears twice: give each listener its own"),
            ));
        }
        found.push((name, endpoint));
    }
    Ok(found)
}

/// Reads the listeners.
pub(super) fn parse(pairs: &HashMap<String, String>) -> Result<Vec<Listener>, ApiError> {
    let given = |key| given(pairs, key);
    let (key, value) = given(LISTENERS)
        .map(|value| (LISTENERS, value))
        .or_else(|| given(DEPRECATED_LISTENERS).map(|value| (DEPRECATED_LISTENERS, value)))
        .ok_or_else(|| {
            ApiError::new(
                ErrorCode::InvalidConfiguration,
                "kafkaListeners is missing: set it, for example kafkaListeners=PLAINTEXT://127.0.0.1:9092",
            )
        })?;
    let bound = parse_uris(key, value)?;
    if bound.is_empty() {
        return Err(invalid(
            key,
            value,
            "name at least one listener, for example PLAINTEXT://127.0.0.1:9092",
        ));
    }
    let own_address = given("advertisedAddress");
    let (advertised_key, advertised_value) =
        given(ADVERTISED).map_or((key, value), |value| (ADVERTISED, value));
    let mut advertised = parse_uris(advertised_key, advertised_value)?;
    for (name, endpoint) in &mut advertised {
        if !bound.iter().any(|(other, _)| other == name) {
            return Err(invalid(
                advertised_key,
                advertised_value,
                &format!("{name} is no listener of {key}"),
            ));
        }
        if endpoint.host.is_empty() || endpoint.host == "advertisedAddress" {
            endpoint.host = own_address
                .ok_or_else(|| {
                    invalid(
                        advertised_key,
                        advertised_value,
                        "give a host, or set advertisedAddress",
                    )
                })?
                .to_owned();
        }
    }
    let protocols = parse_protocols(given(PROTOCOL_MAP))?;
    let bind_all = given("bindAddress").unwrap_or("0.0.0.0");
    bound
        .into_iter()
        .map(|(name, mut bind)| {
            let protocol = protocol_of(&name, protocols.as_ref(), key, value)?;
            let advertised = advertised
                .iter()
                .find(|(other, _)| *other == name)
                .map_or_else(|| bind.clone(), |(_, endpoint)| endpoint.clone());
            if advertised.host.is_empty() || is_unspecified(&advertised.host) {
                return Err(invalid(
                    advertised_key,
                    advertised_value,
                    &format!("{name} would advertise an address that no client can connect to: set kafkaAdvertisedListeners={name}://HOST:PORT"),
                ));
            }
            if bind.host.is_empty() {
                own_address.unwrap_or(bind_all).clone_into(&mut bind.host);
            }
            Ok(Listener { name, protocol, bind, advertised })
        })
        .collect()
}

fn is_unspecified(host: &str) -> bool {
    host.parse::<std::net::IpAddr>()
        .is_ok_and(|address| address.is_unspecified())
}

/// `kafkaProtocolMap`: listener name → protocol. Absent: names are protocols themselves.
fn parse_protocols(value: Option<&str>) -> Result<Option<HashMap<String, Protocol>>, ApiError> {
    let Some(value) = value else { return Ok(None) };
    let mut map = HashMap::new();
    for pair in value.split(',').filter(|pair| !pair.trim().is_empty()) {
        let (name, protocol) = pair
            .split_once(':')
            .and_then(|(name, protocol)| Some((name.trim(), Protocol::parse(protocol.trim())?)))
            .ok_or_else(|| {
                invalid(
                    PROTOCOL_MAP,
                    value,
                    &format!("{} is not NAME:PROTOCOL with one of PLAINTEXT, SSL, SASL_PLAINTEXT, SASL_SSL", pair.trim()),
                )
            })?;
        if map.insert(name.to_owned(), protocol).is_some() {
            return Err(invalid(
                PROTOCOL_MAP,
                value,
                &format!("{name} appears twice"),
            ));
        }
    }
    Ok(Some(map))
}

fn protocol_of(
    name: &str,
    map: Option<&HashMap<String, Protocol>>,
    key: &str,
    value: &str,
) -> Result<Protocol, ApiError> {
    let (protocol, remedy) = match map {
        Some(map) => (
            map.get(name).copied(),
            format!("add {name} to kafkaProtocolMap"),
        ),
        None => (
            Protocol::parse(name),
            format!(
                "{name} is not PLAINTEXT, SSL, SASL_PLAINTEXT or SASL_SSL: map it with kafkaProtocolMap={name}:PROTOCOL"
            ),
        ),
    };
    let protocol = protocol.ok_or_else(|| invalid(key, value, &remedy))?;
    if protocol != Protocol::Plaintext {
        return Err(invalid(
            key,
            value,
            &format!(
                "{name} asks for TLS or SASL, which is not built yet: use a PLAINTEXT listener, and protect it by the network"
            ),
        ));
    }
    Ok(protocol)
}
