//! Facts about deadlines of a connection, with bounds short enough to wait for.

use bytes::{BufMut, BytesMut};
use tokio::io::AsyncWriteExt;
use tokio::net::TcpListener;

use super::*;
use crate::config::Limits;
use crate::net::fixture::server;

/// Serves one connection under changed bounds; gives the client's end, and what ends the connection.
async fn serve(change: impl FnOnce(&mut Limits)) -> (TcpStream, tokio::task::JoinHandle<End>) {
    let Ok(mut server) = Arc::try_unwrap(server(&[]).await) else {
        panic!("nobody else holds the server yet")
    };
    change(&mut server.limits);
    let shared = Arc::new(Shared::new(Arc::new(server)));
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let client = TcpStream::connect(listener.local_addr().unwrap())
        .await
        .unwrap();
    let (stream, peer) = listener.accept().await.unwrap();
    let origin = Origin {
        id: 1,
        peer,
        listener: "PLAINTEXT".into(),
    };
    let served = tokio::spawn(async move { State::new(shared, origin).serve(stream).await });
    (client, served)
}

/// ApiVersions v0 as a frame.
fn request() -> Bytes {
    let mut bytes = BytesMut::new();
    bytes.put_slice(&[0, 0, 0, 10, 0, 18, 0, 0, 0, 0, 0, 1, 255, 255]);
    bytes.freeze()
}

#[tokio::test]
async fn a_frame_that_does_not_go_on_is_given_up() {
    let (mut client, served) = serve(|limits| limits.frame_timeout_ms = 200).await;
    client.write_all(&request()).await.unwrap();
    let mut reply = [0; 12];
    client.read_exact(&mut reply).await.unwrap();
    let started = Instant::now();
    client.write_all(&request()[..9]).await.unwrap();
    let end = served.await.unwrap();
    assert!(matches!(end, End::SlowFrame), "{end}");
    assert!(
        started.elapsed() >= Duration::from_millis(190),
        "{:?}",
        started.elapsed()
    );
}

#[tokio::test]
async fn a_frame_that_comes_drop_by_drop_has_no_more_time_than_another() {
    let (mut client, served) = serve(|limits| limits.frame_timeout_ms = 300).await;
    let started = Instant::now();
    let drops = async {
        for byte in request() {
            if client.write_all(&[byte]).await.is_err() {
                break;
            }
            tokio::time::sleep(Duration::from_millis(60)).await;
        }
    };
    let (end, ()) = tokio::join!(served, drops);
    let end = end.unwrap();
    assert!(matches!(end, End::SlowFrame), "{end}");
    assert!(started.elapsed() < Duration::from_secs(5));
}

#[tokio::test]
async fn a_peer_that_takes_no_replies_is_given_up() {
    let (mut client, served) = serve(|limits| {
        limits.write_timeout_ms = 300;
        limits.max_reply_bytes_per_connection = 4_096;
    })
    .await;
    // Many requests whose replies are larger than what the kernel's buffers hold.
    let many: Vec<u8> = std::iter::repeat_n(request(), 200_000).flatten().collect();
    let (mut reader, mut writer) = client.split();
    let writing = async {
        // Ends with an error when the connection is closed.
        let _ = writer.write_all(&many).await;
    };
    let (end, ()) = tokio::join!(served, writing);
    let end = end.unwrap();
    assert!(matches!(end, End::SlowReader), "{end}");
    let mut byte = [0; 1];
    reader.read_exact(&mut byte).await.unwrap();
}

#[tokio::test]
async fn a_whole_budget_lets_a_connection_wait_and_go_on() {
    let Ok(mut server) = Arc::try_unwrap(server(&[]).await) else {
        panic!("nobody else holds the server yet")
    };
    server.limits.max_bytes_in_flight = 1_000;
    let shared = Arc::new(Shared::new(Arc::new(server)));
    let all = Arc::clone(&shared.budget)
        .acquire_many_owned(1_000)
        .await
        .unwrap();
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let mut client = TcpStream::connect(listener.local_addr().unwrap())
        .await
        .unwrap();
    let (stream, peer) = listener.accept().await.unwrap();
    let origin = Origin {
        id: 1,
        peer,
        listener: "PLAINTEXT".into(),
    };
    let served = tokio::spawn(async move { State::new(shared, origin).serve(stream).await });
    client.write_all(&request()).await.unwrap();
    let mut byte = [0; 1];
    let silent = tokio::time::timeout(Duration::from_millis(100), client.peek(&mut byte)).await;
    assert!(silent.is_err(), "nothing is answered without memory");
    drop(all);
    let mut reply = [0; 12];
    client.read_exact(&mut reply).await.unwrap();
    drop(client);
    let end = served.await.unwrap();
    assert!(matches!(end, End::PeerClosed | End::Io(_)), "{end}");
}
