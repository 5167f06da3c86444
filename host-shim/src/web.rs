//! The broker's web port: `/metrics` in Prometheus' text format and `/status.html`, as Pulsar serves them.
//!
//! It must not know where the metrics come from.

use std::convert::Infallible;
use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use http_body_util::Full;
use hyper::body::Incoming;
use hyper::header::{ALLOW, CONTENT_TYPE, HeaderValue};
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper::{Method, Request, Response, StatusCode};
use hyper_util::rt::{TokioIo, TokioTimer};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::Semaphore;
use tokio::task::JoinHandle;

/// Connections served at once; further ones wait in the listener's backlog.
const MAX_CONNECTIONS: usize = 64;
/// Time a client has to send a request's head.
const HEAD_TIMEOUT: Duration = Duration::from_secs(10);
/// Time after which a connection is closed whatever it does.
const CONNECTION_LIFETIME: Duration = Duration::from_secs(300);
/// Largest head of a request in bytes.
const MAX_HEAD_BYTES: usize = 16 * 1024;
/// Wait after a failed accept (no file descriptors left), so that it does not spin.
const ACCEPT_PAUSE: Duration = Duration::from_millis(100);

/// Makes the text of `/metrics`.
pub(crate) type Gather = Arc<dyn Fn() -> String + Send + Sync>;

/// A bound web port that nobody serves yet.
pub(crate) struct Bound {
    listener: TcpListener,
    address: SocketAddr,
}

/// A web port that is served until it is dropped.
pub(crate) struct Web {
    address: SocketAddr,
    task: JoinHandle<()>,
}

impl Bound {
    pub(crate) async fn bind(address: SocketAddr) -> io::Result<Self> {
        let listener = TcpListener::bind(address).await?;
        let address = listener.local_addr()?;
        Ok(Self { listener, address })
    }

    pub(crate) fn serve(self, gather: Gather) -> Web {
        Web {
            address: self.address,
            task: tokio::spawn(accept(self.listener, gather)),
        }
    }
}

impl Web {
    pub(crate) fn address(&self) -> SocketAddr {
        self.address
    }
}

impl Drop for Web {
    fn drop(&mut self) {
        self.task.abort();
    }
}

async fn accept(listener: TcpListener, gather: Gather) {
    let slots = Arc::new(Semaphore::new(MAX_CONNECTIONS));
    loop {
        let Ok(slot) = Arc::clone(&slots).acquire_owned().await else {
            return;
        };
        match listener.accept().await {
            Ok((socket, peer)) => {
                let gather = Arc::clone(&gather);
                tokio::spawn(async move {
                    serve(socket, peer, gather).await;
                    drop(slot);
                });
            }
            Err(error) => {
                tracing::warn!("the web port cannot accept a connection: {error}");
                tokio::time::sleep(ACCEPT_PAUSE).await;
            }
        }
    }
}

async fn serve(socket: TcpStream, peer: SocketAddr, gather: Gather) {
    let service = service_fn(move |request| {
        let response = answer(&request, &gather);
        async move { Ok::<_, Infallible>(response) }
    });
    let connection = http1::Builder::new()
        .timer(TokioTimer::new())
        .header_read_timeout(HEAD_TIMEOUT)
        .max_buf_size(MAX_HEAD_BYTES)
        .serve_connection(TokioIo::new(socket), service);
    match tokio::time::timeout(CONNECTION_LIFETIME, connection).await {
        Ok(Ok(())) | Err(_) => {}
        Ok(Err(error)) => tracing::debug!("web connection of {peer}: {error}"),
    }
}

fn answer(request: &Request<Incoming>, gather: &Gather) -> Response<Full<Bytes>> {
    if !matches!(*request.method(), Method::GET | Method::HEAD) {
        let mut response = plain(StatusCode::METHOD_NOT_ALLOWED, "only GET and HEAD\n");
        let allowed = HeaderValue::from_static("GET, HEAD");
        response.headers_mut().insert(ALLOW, allowed);
        return response;
    }
    match request.uri().path() {
        "/metrics" | "/metrics/" => {
            let mut response = plain(StatusCode::OK, gather());
            let format = HeaderValue::from_static("text/plain; version=0.0.4; charset=utf-8");
            response.headers_mut().insert(CONTENT_TYPE, format);
            response
        }
        "/status.html" => plain(StatusCode::OK, "OK"),
        _ => plain(
            StatusCode::NOT_FOUND,
            "not found; there are /metrics and /status.html\n",
        ),
    }
}

fn plain(status: StatusCode, text: impl Into<Bytes>) -> Response<Full<Bytes>> {
    let mut response = Response::new(Full::new(text.into()));
    *response.status_mut() = status;
    let kind = HeaderValue::from_static("text/plain; charset=utf-8");
    response.headers_mut().insert(CONTENT_TYPE, kind);
    response
}

#[cfg(test)]
mod tests {
    use tokio::io::{AsyncReadExt, AsyncWriteExt};

    use super::*;

    async fn web() -> Web {
        let bound = Bound::bind("127.0.0.1:0".parse().unwrap()).await.unwrap();
        bound.serve(Arc::new(|| "a_total 1\n".to_owned()))
    }

    async fn ask(web: &Web, request: &str) -> String {
        let mut socket = TcpStream::connect(web.address()).await.unwrap();
        socket.write_all(request.as_bytes()).await.unwrap();
        let mut answer = String::new();
        socket.read_to_string(&mut answer).await.unwrap();
        answer
    }

    #[tokio::test]
    async fn metrics_are_prometheus_text() {
        let web = web().await;
        for path in ["/metrics", "/metrics/"] {
            let request = format!("GET {path} HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n");
            let answer = ask(&web, &request).await;
            assert!(answer.starts_with("HTTP/1.1 200 OK\r\n"), "{answer}");
            assert!(
                answer.contains("content-type: text/plain; version=0.0.4"),
                "{answer}"
            );
            assert!(answer.ends_with("\r\n\r\na_total 1\n"), "{answer}");
        }
    }

    #[tokio::test]
    async fn the_status_page_answers_ok() {
        let web = web().await;
        let answer = ask(&web, "GET /status.html HTTP/1.0\r\n\r\n").await;
        assert!(answer.ends_with("\r\n\r\nOK"), "{answer}");
    }

    #[tokio::test]
    async fn other_paths_methods_and_garbage_are_refused() {
        let web = web().await;
        let close = "HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n";
        let answer = ask(&web, &format!("GET /x {close}")).await;
        assert!(answer.starts_with("HTTP/1.1 404 "), "{answer}");
        let answer = ask(&web, &format!("DELETE /metrics {close}")).await;
        assert!(answer.starts_with("HTTP/1.1 405 "), "{answer}");
        let answer = ask(&web, "\x00\x01\x02\r\n\r\n").await;
        assert!(answer.starts_with("HTTP/1.1 400 "), "{answer}");
        let long = format!("GET /{} {close}", "x".repeat(2 * MAX_HEAD_BYTES));
        let mut socket = TcpStream::connect(web.address()).await.unwrap();
        let _ = socket.write_all(long.as_bytes()).await;
        let mut answer = Vec::new();
        let _ = socket.read_to_end(&mut answer).await;
        assert!(!answer.starts_with(b"HTTP/1.1 200"));
    }

    #[tokio::test]
    async fn a_crowd_of_silent_connections_does_not_grow_beyond_the_limit() {
        let web = web().await;
        let mut silent = Vec::new();
        for _ in 0..MAX_CONNECTIONS {
            silent.push(TcpStream::connect(web.address()).await.unwrap());
        }
        let request = ask(&web, "GET /status.html HTTP/1.0\r\n\r\n");
        let waiting = tokio::time::timeout(Duration::from_millis(200), request).await;
        assert!(waiting.is_err(), "the limit does not hold");
        silent.pop();
        let answer = ask(&web, "GET /status.html HTTP/1.0\r\n\r\n").await;
        assert!(answer.ends_with("OK"));
    }
}
