//! A client that speaks raw protocol bytes over one blocking connection: any request of the codec in any version,
//! bytes that are no request at all, and replies read to their last byte.
//!
//! It knows nothing of topics or groups, retries nothing and hides nothing.

use std::io::{ErrorKind, Read, Write};
use std::net::{Shutdown, SocketAddr, TcpStream};
use std::time::Duration;

use bytes::{Buf, BufMut, Bytes, BytesMut};
use kafka_protocol::messages::{RequestHeader, ResponseHeader};
use kafka_protocol::protocol::{
    Decodable, HeaderVersion, Request, StrBytes, encode_request_header_into_buffer,
};

/// How long a reply may take before the test fails.
pub const PATIENCE: Duration = Duration::from_secs(40);

/// A frame that is larger cannot be a reply to a test.
const MAX_REPLY: usize = 256 << 20;

/// One connection.
#[derive(Debug)]
pub struct Raw {
    stream: TcpStream,
    next_correlation_id: i32,
}

impl Raw {
    /// Connects.
    #[track_caller]
    pub fn connect(address: SocketAddr) -> Self {
        let stream = TcpStream::connect(address).expect("the broker accepts connections");
        stream
            .set_read_timeout(Some(PATIENCE))
            .expect("a timeout can be set");
        stream.set_nodelay(true).expect("an option can be set");
        Self {
            stream,
            next_correlation_id: 1000,
        }
    }

    /// Sends a request and gives its correlation id.
    #[track_caller]
    pub fn send<R: Request>(&mut self, version: i16, request: &R) -> i32 {
        let mut body = Vec::new();
        request
            .encode(&mut body, version)
            .unwrap_or_else(|error| panic!("{} {version}: {error}", R::KEY));
        self.send_body(R::KEY, version, &body)
    }

    /// Sends a body of one's own behind a right header, and gives the correlation id.
    #[track_caller]
    pub fn send_body(&mut self, key: i16, version: i16, body: &[u8]) -> i32 {
        self.next_correlation_id += 1;
        let header = RequestHeader::default()
            .with_request_api_key(key)
            .with_request_api_version(version)
            .with_correlation_id(self.next_correlation_id)
            .with_client_id(Some(StrBytes::from_static_str("raw")));
        let mut frame = BytesMut::new();
        encode_request_header_into_buffer(&mut frame, &header).expect("a key of the codec");
        frame.put_slice(body);
        self.send_frame(&frame);
        self.next_correlation_id
    }

    /// Sends a frame: its length, then its bytes.
    #[track_caller]
    pub fn send_frame(&mut self, frame: &[u8]) {
        let mut bytes = Vec::with_capacity(4 + frame.len());
        bytes.put_i32(i32::try_from(frame.len()).expect("a frame of less than 2 GiB"));
        bytes.put_slice(frame);
        self.send_bytes(&bytes);
    }

    /// Sends bytes as they are.
    #[track_caller]
    pub fn send_bytes(&mut self, bytes: &[u8]) {
        self.stream.write_all(bytes).expect("the broker reads");
    }

    /// Sends bytes as they are; whether the broker still took them. A peer that has closed may or may not.
    pub fn try_send_bytes(&mut self, bytes: &[u8]) -> bool {
        self.stream.write_all(bytes).is_ok()
    }

    /// Says that nothing more will be sent; replies can still be read.
    pub fn finish_sending(&mut self) {
        let _ = self.stream.shutdown(Shutdown::Write);
    }

    /// Receives the reply to the request with `correlation_id`, which has to be the next one.
    #[track_caller]
    pub fn receive<R: Request>(&mut self, version: i16, correlation_id: i32) -> R::Response {
        let Some(mut frame) = self.receive_frame() else {
            panic!(
                "key {} version {version}: the broker closed the connection",
                R::KEY
            );
        };
        let header_version = R::Response::header_version(version);
        let header = ResponseHeader::decode(&mut frame, header_version).expect("a response header");
        assert_eq!(
            header.correlation_id, correlation_id,
            "replies come in the order of requests"
        );
        let reply = R::Response::decode(&mut frame, version)
            .unwrap_or_else(|error| panic!("key {} version {version}: {error}", R::KEY));
        assert!(
            !frame.has_remaining(),
            "key {} version {version}: bytes behind the reply",
            R::KEY
        );
        reply
    }

    /// Sends a request and receives its reply.
    #[track_caller]
    pub fn call<R: Request>(&mut self, version: i16, request: &R) -> R::Response {
        let correlation_id = self.send(version, request);
        self.receive::<R>(version, correlation_id)
    }

    /// The next frame without its length; `None` if the broker closed the connection.
    #[track_caller]
    pub fn receive_frame(&mut self) -> Option<Bytes> {
        let mut length = [0; 4];
        if !self.fill(&mut length) {
            return None;
        }
        let length = usize::try_from(i32::from_be_bytes(length)).expect("a length");
        assert!(length <= MAX_REPLY, "a reply of {length} bytes");
        let mut frame = vec![0; length];
        assert!(
            self.fill(&mut frame),
            "the broker closed the connection inside a reply"
        );
        Some(frame.into())
    }

    /// Waits until the broker closes the connection; panics if it sends something or nothing happens.
    #[track_caller]
    pub fn expect_closed(&mut self) {
        if let Some(frame) = self.receive_frame() {
            panic!(
                "the broker answered with {} bytes: {:02x?}",
                frame.len(),
                frame
            );
        }
    }

    /// Whether nothing arrives for `time`.
    #[track_caller]
    pub fn is_silent_for(&mut self, time: Duration) -> bool {
        self.stream
            .set_read_timeout(Some(time))
            .expect("a timeout can be set");
        let mut byte = [0];
        let peeked = self.stream.peek(&mut byte);
        self.stream
            .set_read_timeout(Some(PATIENCE))
            .expect("a timeout can be set");
        matches!(peeked, Err(error) if matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::TimedOut))
    }

    /// Fills `out`; false if the connection ended before its first byte.
    #[track_caller]
    fn fill(&mut self, out: &mut [u8]) -> bool {
        let mut have = 0;
        while have < out.len() {
            match self.stream.read(&mut out[have..]) {
                Ok(0) if have == 0 => return false,
                Ok(0) => panic!("the connection ended after {have} of {} bytes", out.len()),
                Ok(count) => have += count,
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(error) if error.kind() == ErrorKind::ConnectionReset && have == 0 => {
                    return false;
                }
                Err(error) => panic!("no reply: {error}"),
            }
        }
        true
    }
}
