//! Binding and accepting. It must not know what is spoken on a connection.

use std::io;
use std::net::{SocketAddr, TcpListener, ToSocketAddrs};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use handler_api::{ApiError, ErrorCode};
use socket2::{Domain, Protocol as SocketProtocol, Socket, Type};
use tokio::net::TcpStream;
use tokio::time::Instant;

use super::Shared;
use super::connection::{self, Origin};
use crate::config::Listener;

/// Connections that the kernel keeps until they are accepted (it caps the number by `net.core.somaxconn`).
const BACKLOG: i32 = 1024;

/// Pause after a failed accept: the usual cause is a lack of file descriptors, which only time cures.
const ACCEPT_PAUSE: Duration = Duration::from_millis(100);

/// A socket that is bound but does not listen yet, so that a client is not kept waiting until the broker is up.
#[derive(Debug)]
pub(crate) struct Bound {
    /// Its listener; the advertised port is the real one.
    pub(crate) listener: Listener,
    /// Where it is bound.
    pub(crate) address: SocketAddr,
    socket: Socket,
}

/// Binds all listeners.
///
/// # Errors
/// [`ErrorCode::InvalidConfiguration`] that names `kafkaListeners` and the address.
pub(crate) fn bind(listeners: &[Listener]) -> Result<Vec<Bound>, ApiError> {
    listeners.iter().map(bind_one).collect()
}

fn bind_one(listener: &Listener) -> Result<Bound, ApiError> {
    let failed = |error: io::Error| taken(&listener.name, &listener.bind, &error);
    let addresses = (listener.bind.host.as_str(), listener.bind.port)
        .to_socket_addrs()
        .map_err(failed)?;
    let mut last = io::Error::new(io::ErrorKind::NotFound, "the name has no address");
    for address in addresses {
        match open(address) {
            Ok((socket, address)) => {
                let mut listener = listener.clone();
                if listener.advertised.port == 0 {
                    listener.advertised.port = address.port();
                }
                return Ok(Bound {
                    listener,
                    address,
                    socket,
                });
            }
            Err(error) => last = error,
        }
    }
    Err(failed(last))
}

fn open(address: SocketAddr) -> io::Result<(Socket, SocketAddr)> {
    let socket = Socket::new(
        Domain::for_address(address),
        Type::STREAM,
        Some(SocketProtocol::TCP),
    )?;
    socket.set_reuse_address(true)?;
    if address.is_ipv6() {
        socket.set_only_v6(false)?;
    }
    socket.set_nonblocking(true)?;
    socket.bind(&address.into())?;
    let bound = socket
        .local_addr()?
        .as_socket()
        .ok_or_else(|| io::Error::other("not an IP socket"))?;
    Ok((socket, bound))
}

fn taken(name: &str, address: &dyn std::fmt::Display, error: &io::Error) -> ApiError {
    ApiError::new(
        ErrorCode::InvalidConfiguration,
        format!(
            "kafkaListeners: cannot listen on {name}://{address}: {error}: free the port, or choose another address"
        ),
    )
}

impl Bound {
    /// Accepts connections from now on.
    ///
    /// # Errors
    /// As [`bind`]: another process may have come first.
    pub(crate) fn listen(self) -> Result<Listening, ApiError> {
        let failed = |error: io::Error| taken(&self.listener.name, &self.address, &error);
        self.socket.listen(BACKLOG).map_err(failed)?;
        Ok(Listening {
            name: Arc::clone(&self.listener.name),
            listener: self.socket.into(),
        })
    }
}

/// A socket that listens.
#[derive(Debug)]
pub(crate) struct Listening {
    name: Arc<str>,
    listener: TcpListener,
}

impl Listening {
    /// Accepts until the plugin closes. Runs on the plugin's runtime.
    pub(crate) async fn serve(self, shared: Arc<Shared>) {
        let listener = match tokio::net::TcpListener::from_std(self.listener) {
            Ok(listener) => listener,
            Err(error) => {
                tracing::error!(listener = %self.name, %error, "a listener cannot be served");
                return;
            }
        };
        let mut closing = shared.server.closing.subscribe();
        loop {
            let accepted = tokio::select! {
                accepted = listener.accept() => accepted,
                _ = closing.wait_for(|closing| *closing) => return,
            };
            match accepted {
                Ok((stream, peer)) => admit(&shared, &self.name, stream, peer),
                Err(error) => {
                    if let Some(dropped) = shared.refusals.admit(Instant::now()) {
                        tracing::warn!(listener = %self.name, %error, dropped, "accepting a connection failed");
                    }
                    tokio::time::sleep(ACCEPT_PAUSE).await;
                }
            }
        }
    }
}

fn admit(shared: &Arc<Shared>, listener: &Arc<str>, stream: TcpStream, peer: SocketAddr) {
    let Ok(place) = Arc::clone(&shared.places).try_acquire_owned() else {
        shared.server.metrics.connections_refused.add(1);
        if let Some(dropped) = shared.refusals.admit(Instant::now()) {
            let most = shared.server.limits.max_connections;
            tracing::warn!(%peer, most, dropped, "a connection is refused: as many as kopMaxConnections allows are open");
        }
        return;
    };
    // Replies are joined by us, not by the kernel. A socket that cannot be set up is broken already and will say so.
    let _ = stream.set_nodelay(true);
    let origin = Origin {
        id: shared.next_id.fetch_add(1, Ordering::Relaxed),
        peer,
        listener: Arc::clone(listener),
    };
    let shared = Arc::clone(shared);
    tokio::spawn(async move {
        connection::run(shared, origin, stream).await;
        drop(place);
    });
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::{Endpoint, Protocol};

    fn listener(port: u16) -> Listener {
        let endpoint = Endpoint {
            host: "127.0.0.1".to_owned(),
            port,
        };
        Listener {
            name: "PLAINTEXT".into(),
            protocol: Protocol::Plaintext,
            bind: endpoint.clone(),
            advertised: endpoint,
        }
    }

    #[test]
    fn the_port_that_was_bound_is_advertised() {
        let bound = bind(&[listener(0)]).unwrap_or_else(|error| panic!("{error}"));
        let [bound] = bound.as_slice() else {
            panic!("one listener")
        };
        assert_ne!(bound.address.port(), 0);
        assert_eq!(bound.listener.advertised.port, bound.address.port());
    }

    #[test]
    fn a_taken_port_names_the_key_and_the_address() {
        let other = TcpListener::bind("127.0.0.1:0").unwrap_or_else(|error| panic!("{error}"));
        let port = other
            .local_addr()
            .map(|address| address.port())
            .unwrap_or(0);
        let error = bind(&[listener(port)]).expect_err("the port is taken");
        assert_eq!(error.kind(), ErrorCode::InvalidConfiguration);
        let text = error.to_string();
        assert!(
            text.contains("kafkaListeners") && text.contains(&format!("127.0.0.1:{port}")),
            "{text}"
        );
    }

    #[test]
    fn a_port_taken_between_binding_and_listening_is_reported_too() {
        let mut first = bind(&[listener(0)]).unwrap_or_else(|error| panic!("{error}"));
        let first = first.remove(0);
        let port = first.address.port();
        let mut second = bind(&[listener(port)]).unwrap_or_else(|error| panic!("{error}"));
        let _listening = first.listen().unwrap_or_else(|error| panic!("{error}"));
        let error = second.remove(0).listen().expect_err("the port is taken");
        assert!(error.to_string().contains("kafkaListeners"), "{error}");
    }
}
