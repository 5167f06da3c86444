//! Pulsar's admin interface over HTTP, as `pulsar-admin` speaks it: just enough for tests.

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::time::Duration;

use serde_json::Value;

/// How long one request may take.
const LIMIT: Duration = Duration::from_secs(30);

/// A status code with the body.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Answer {
    /// The HTTP status.
    pub status: u16,
    /// The body as text.
    pub body: String,
}

impl Answer {
    /// The body, unless the status is not one of success.
    pub fn good(self) -> Result<String, String> {
        if (200..300).contains(&self.status) {
            Ok(self.body)
        } else {
            Err(format!("status {}: {}", self.status, self.body))
        }
    }
}

/// The web port of one broker.
#[derive(Clone, Copy, Debug)]
pub struct Admin {
    address: SocketAddr,
}

impl Admin {
    /// The admin interface at this address.
    pub fn at(address: SocketAddr) -> Self {
        Self { address }
    }

    /// Sends a request with a JSON body, follows redirects to other brokers, and gives what came back.
    pub fn send(&self, method: &str, path: &str, body: &str) -> Result<Answer, String> {
        let mut address = self.address;
        let mut path = path.to_owned();
        for _ in 0..4 {
            let (answer, location) = exchange(address, method, &path, body)?;
            match location {
                Some(location) if (300..400).contains(&answer.status) => {
                    (address, path) = parse_location(&location)?;
                }
                _ => return Ok(answer),
            }
        }
        Err(format!("{path}: redirected again and again"))
    }

    /// A `GET` that must succeed.
    pub fn get(&self, path: &str) -> Result<String, String> {
        self.must("GET", path, "")
    }

    /// A `GET` of JSON that must succeed.
    pub fn json(&self, path: &str) -> Result<Value, String> {
        let text = self.get(path)?;
        serde_json::from_str(&text).map_err(|error| format!("GET {path}: {error}: {text}"))
    }

    /// A request that must succeed.
    pub fn must(&self, method: &str, path: &str, body: &str) -> Result<String, String> {
        let answer = self.send(method, path, body)?;
        answer
            .good()
            .map_err(|problem| format!("{method} {path}: {problem}"))
    }

    /// Creates a partitioned topic (`public/default/name`).
    pub fn create_partitioned(&self, topic: &str, partitions: u32) -> Result<(), String> {
        let path = format!("/admin/v2/persistent/{topic}/partitions");
        self.must("PUT", &path, &partitions.to_string()).map(drop)
    }

    /// Gives a partitioned topic more partitions.
    pub fn expand(&self, topic: &str, partitions: u32) -> Result<(), String> {
        let path = format!("/admin/v2/persistent/{topic}/partitions");
        self.must("POST", &path, &partitions.to_string()).map(drop)
    }

    /// Deletes a partitioned topic, whoever uses it.
    pub fn delete_partitioned(&self, topic: &str) -> Result<(), String> {
        let path = format!("/admin/v2/persistent/{topic}/partitions?force=true");
        self.must("DELETE", &path, "").map(drop)
    }

    /// How many partitions a topic has (0: it is not partitioned, or not there).
    pub fn partitions(&self, topic: &str) -> Result<u64, String> {
        let path = format!("/admin/v2/persistent/{topic}/partitions");
        let metadata = self.json(&path)?;
        metadata["partitions"]
            .as_u64()
            .ok_or_else(|| format!("{path}: {metadata}"))
    }

    /// The `host:port` of the web service of a topic's owner, which the look-up makes one if it has none.
    pub fn owner(&self, topic: &str) -> Result<String, String> {
        let path = format!("/lookup/v2/topic/persistent/{topic}");
        let found = self.json(&path)?;
        let url = found["httpUrl"].as_str().unwrap_or_default();
        let owner = url.strip_prefix("http://");
        owner
            .map(str::to_owned)
            .ok_or_else(|| format!("{path}: {found}"))
    }

    /// The bundle that a topic lies in (`0x00000000_0x10000000`).
    pub fn bundle(&self, topic: &str) -> Result<String, String> {
        let answer = self.get(&format!("/lookup/v2/topic/persistent/{topic}/bundle"))?;
        Ok(answer.trim_matches('"').to_owned())
    }

    /// Unloads a bundle; `to` (`host:port` of a web service) asks for its next owner.
    pub fn unload(&self, namespace: &str, bundle: &str, to: Option<&str>) -> Result<(), String> {
        let mut path = format!("/admin/v2/namespaces/{namespace}/{bundle}/unload");
        if let Some(to) = to {
            path.push_str(&format!("?destinationBroker={to}"));
        }
        self.must("PUT", &path, "").map(drop)
    }
}

/// One request on a connection of its own; the answer, and where it redirects to.
fn exchange(
    address: SocketAddr,
    method: &str,
    path: &str,
    body: &str,
) -> Result<(Answer, Option<String>), String> {
    let broken = |error: std::io::Error| format!("{method} {path} at {address}: {error}");
    let mut stream = TcpStream::connect_timeout(&address, LIMIT).map_err(broken)?;
    stream.set_read_timeout(Some(LIMIT)).map_err(broken)?;
    let request = format!(
        "{method} {path} HTTP/1.1\r\nHost: {address}\r\nContent-Type: application/json\r\nAccept: */*\r\n\
         Content-Length: {}\r\nConnection: close\r\n\r\n{body}",
        body.len()
    );
    stream.write_all(request.as_bytes()).map_err(broken)?;
    let mut bytes = Vec::new();
    stream.read_to_end(&mut bytes).map_err(broken)?;
    let text = String::from_utf8_lossy(&bytes);
    parse(&text).ok_or_else(|| format!("{method} {path} at {address}: no HTTP: {text}"))
}

/// Status, body and `Location` of a response that was ended by closing the connection.
fn parse(text: &str) -> Option<(Answer, Option<String>)> {
    let (head, body) = text.split_once("\r\n\r\n")?;
    let mut lines = head.lines();
    let status = lines.next()?.split(' ').nth(1)?.parse().ok()?;
    let header = |wanted: &str| {
        let mut headers = head.lines().skip(1).filter_map(|line| line.split_once(':'));
        let found = headers.find(|(name, _)| name.eq_ignore_ascii_case(wanted));
        found.map(|(_, value)| value.trim().to_owned())
    };
    let chunked = header("Transfer-Encoding").is_some_and(|value| value == "chunked");
    let body = if chunked {
        unchunked(body)?
    } else {
        body.to_owned()
    };
    Some((Answer { status, body }, header("Location")))
}

/// A chunked body without its framing. Sizes count bytes; what we read is ASCII but for topics that tests do not name.
fn unchunked(mut text: &str) -> Option<String> {
    let mut body = String::new();
    loop {
        let (size, rest) = text.split_once("\r\n")?;
        let size = usize::from_str_radix(size.trim(), 16).ok()?;
        if size == 0 {
            return Some(body);
        }
        body.push_str(rest.get(..size)?);
        text = rest.get(size..)?.strip_prefix("\r\n")?;
    }
}

fn parse_location(url: &str) -> Result<(SocketAddr, String), String> {
    let parsed = || {
        let rest = url.strip_prefix("http://")?;
        let (host, path) = rest.split_at(rest.find('/')?);
        let host = host.replace("localhost", "127.0.0.1");
        Some((host.parse().ok()?, path.to_owned()))
    };
    parsed().ok_or_else(|| format!("redirected to {url}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_response_with_a_length_and_one_in_chunks_are_read() {
        let plain = "HTTP/1.1 404 Not Found\r\nServer: x\r\n\r\n{\"reason\":\"no\"}";
        let (answer, location) = parse(plain).unwrap();
        assert_eq!((answer.status, location), (404, None));
        assert!(answer.good().unwrap_err().contains("no"));
        let chunked = "HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n3\r\nabc\r\nA\r\n0123456789\r\n0\r\n\r\n";
        let (answer, _) = parse(chunked).unwrap();
        assert_eq!(answer.good(), Ok("abc0123456789".to_owned()));
        assert_eq!(
            parse("HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n5\r\nabc"),
            None
        );
    }

    #[test]
    fn a_redirect_names_another_broker() {
        let url = "http://localhost:8081/admin/v2/x?authoritative=true";
        let (address, path) = parse_location(url).unwrap();
        assert_eq!(address, SocketAddr::from(([127, 0, 0, 1], 8081)));
        assert_eq!(path, "/admin/v2/x?authoritative=true");
        assert!(parse_location("ftp://x/").is_err());
    }
}
