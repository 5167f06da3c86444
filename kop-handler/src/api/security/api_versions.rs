//! ApiVersions (key 18), versions 0–4: which APIs are served, in which versions.
//!
//! Answers from the table, so that exactly what is handled is advertised. Produce is the one exception: it is
//! advertised from 0 and served from 3, because librdkafka switches compression off otherwise. A version that we do
//! not know is answered in the layout of v0 with UNSUPPORTED_VERSION and our own range of this API, so that the client
//! can go on (KIP-511).
//! v3: client software name and version, features, flexible (the response header stays at v0 always).
//! v4: features whose lowest version is 0 may be listed (KIP-584).

use std::sync::Arc;

use kafka_protocol::messages::api_versions_response::ApiVersion;
use kafka_protocol::messages::{ApiKey, ApiVersionsRequest, ApiVersionsResponse};

use crate::api::{Call, ClientSoftware, Line, Server, TABLE};
use crate::error::Fault;
use crate::wire::WireError;
use crate::wire::response::{self, Encoded};

/// Longest name and version of a client's software that is kept, in bytes.
const MAX_SOFTWARE_BYTES: usize = 128;

pub(crate) async fn handle(
    _server: &Arc<Server>,
    call: &Call,
    request: ApiVersionsRequest,
) -> ApiVersionsResponse {
    if call.version >= 3 {
        let (name, version) = (
            request.client_software_name.as_str(),
            request.client_software_version.as_str(),
        );
        if !is_software_name(name) || !is_software_name(version) {
            return refusal(&Fault::InvalidRequest(String::new()));
        }
        *call.connection.software.lock() = Some(ClientSoftware {
            name: name.to_owned(),
            version: version.to_owned(),
        });
    }
    ApiVersionsResponse::default().with_api_keys(
        TABLE
            .iter()
            .filter(|line| line.advertised)
            .map(advertised)
            .collect(),
    )
}

/// The reply to a version that we do not know: always in the layout of v0.
pub(crate) fn unsupported_version(correlation_id: i32) -> Result<Encoded, WireError> {
    let reply = refusal(&Fault::UnsupportedVersion(String::new())).with_api_keys(
        TABLE
            .iter()
            .filter(|line| line.key == ApiKey::ApiVersions)
            .map(advertised)
            .collect(),
    );
    response::encode(correlation_id, 0, &reply)
}

fn refusal(fault: &Fault) -> ApiVersionsResponse {
    ApiVersionsResponse::default().with_error_code(fault.code())
}

fn advertised(line: &Line) -> ApiVersion {
    let min = if line.key == ApiKey::Produce {
        0
    } else {
        line.min
    };
    ApiVersion::default()
        .with_api_key(line.key as i16)
        .with_min_version(min)
        .with_max_version(line.max)
}

/// KIP-511: letters and digits, with `-` and `.` inside.
fn is_software_name(text: &str) -> bool {
    let bytes = text.as_bytes();
    let edge = |byte: Option<&u8>| byte.is_some_and(u8::is_ascii_alphanumeric);
    bytes.len() <= MAX_SOFTWARE_BYTES
        && edge(bytes.first())
        && edge(bytes.last())
        && bytes
            .iter()
            .all(|byte| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'.'))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn software_names_follow_kip_511() {
        for good in ["apache-kafka-java", "librdkafka", "2.12.1", "a"] {
            assert!(is_software_name(good), "{good}");
        }
        for bad in ["", "-a", "a-", "a b", "ä", &"a".repeat(129)] {
            assert!(!is_software_name(bad), "{bad}");
        }
    }

    #[test]
    fn an_unknown_version_is_answered_in_the_layout_of_v0() {
        let encoded = unsupported_version(7).unwrap_or_else(|error| panic!("{error}"));
        let bytes = encoded.segments.concat();
        // length, correlation id, error 35, one key: 18, 0 to 4
        assert_eq!(
            bytes,
            [
                0, 0, 0, 16, 0, 0, 0, 7, 0, 35, 0, 0, 0, 1, 0, 18, 0, 0, 0, 4
            ]
        );
    }
}
