//! Facts about deadlines of a connection, with bounds short enough to wait for.

use bytes::{BufMut, BytesMut};
use tokio::io::AsyncWriteExt;
use tokio::net::TcpListener;

use super::*;
use crate::config::Limits;
use crate::net::fixture::server;
use crate::plugin::rooms;

/// Serves one connection under changed bounds; gives the client's end, and what ends the connection.
async fn serve(change: impl FnOnce(&mut Limits)) -> (TcpStream, tokio::task::JoinHandle<End>) {
    Bed::new(change).await.client().await
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

/// A Produce without topics whose names (of its client, of its transaction) make it a frame of `length` bytes.
fn produce(length: usize) -> Vec<u8> {
    const REST: usize = 8 + 2 + 2 + 10;
    let names = length.saturating_sub(REST);
    let client = names.min(30_000);
    let mut bytes = Vec::with_capacity(4 + length);
    bytes.put_u32(u32::try_from(length).unwrap());
    bytes.put_slice(&[0, 0, 0, 7, 0, 0, 0, 1]);
    for name in [client, names - client] {
        bytes.put_i16(i16::try_from(name).unwrap());
        bytes.resize(bytes.len() + name, b'n');
    }
    // acks −1, timeout 1 s, no topics.
    bytes.put_slice(&[255, 255, 0, 0, 3, 232, 0, 0, 0, 0]);
    assert_eq!(bytes.len(), 4 + length);
    bytes
}

/// Reads one reply.
async fn answer(client: &mut TcpStream) -> Vec<u8> {
    let length = client.read_u32().await.unwrap();
    let mut reply = vec![0; usize::try_from(length).unwrap()];
    client.read_exact(&mut reply).await.unwrap();
    reply
}

/// More clients of one broker.
struct Bed {
    shared: Arc<Shared>,
    listener: TcpListener,
}

impl Bed {
    async fn new(change: impl FnOnce(&mut Limits)) -> Self {
        let Ok(mut server) = Arc::try_unwrap(server(&[]).await) else {
            panic!("nobody else holds the server yet")
        };
        change(&mut server.limits);
        Self {
            shared: Arc::new(Shared::new(Arc::new(server))),
            listener: TcpListener::bind("127.0.0.1:0").await.unwrap(),
        }
    }

    /// A client's end, and what serves the other one.
    async fn accept(&self) -> (TcpStream, State, TcpStream) {
        let client = TcpStream::connect(self.listener.local_addr().unwrap());
        let (client, accepted) = tokio::join!(client, self.listener.accept());
        let (client, (stream, peer)) = (client.unwrap(), accepted.unwrap());
        client.set_nodelay(true).unwrap();
        let origin = Origin {
            id: 1,
            peer,
            listener: "PLAINTEXT".into(),
        };
        let state = State::new(Arc::clone(&self.shared), origin);
        (client, state, stream)
    }

    async fn client(&self) -> (TcpStream, tokio::task::JoinHandle<End>) {
        let (client, mut state, stream) = self.accept().await;
        let served = tokio::spawn(async move { state.serve(stream).await });
        (client, served)
    }

    /// Waits until so many bytes of the budget are free.
    async fn free(&self, bytes: usize) {
        let reached = async {
            while self.shared.budget.free() != bytes {
                tokio::time::sleep(Duration::from_millis(2)).await;
            }
        };
        let reached = tokio::time::timeout(Duration::from_secs(5), reached).await;
        let free = self.shared.budget.free();
        assert!(reached.is_ok(), "{free} bytes are free, not {bytes}");
    }
}

const QUICKLY: Duration = Duration::from_secs(2);

#[tokio::test]
async fn a_promise_takes_nothing_from_the_budget_and_what_arrives_takes_at_most_twice_itself() {
    let budget = 1 << 20;
    let bed = Bed::new(|limits| limits.max_bytes_in_flight = budget).await;
    let mut promised = Vec::new();
    for _ in 0..50 {
        let (mut client, served) = bed.client().await;
        // 16 MiB of Produce, of which its first bytes come.
        client
            .write_all(&[1, 0, 0, 0, 0, 0, 0, 7, 0, 0, 0, 1])
            .await
            .unwrap();
        promised.push((client, served));
    }
    let (mut other, _served) = bed.client().await;
    for length in [22, 16_000, 60_000] {
        other.write_all(&produce(length)).await.unwrap();
        tokio::time::timeout(QUICKLY, answer(&mut other))
            .await
            .unwrap();
    }
    bed.free(budget).await;
    let (first, _) = &mut promised[0];
    first.write_all(&vec![0; 100_000]).await.unwrap();
    tokio::time::sleep(Duration::from_millis(50)).await;
    let taken = budget - bed.shared.budget.free();
    assert!((100_000..=200_020).contains(&taken), "{taken} bytes taken");
    drop(promised);
    bed.free(budget).await;
}

#[tokio::test]
async fn an_empty_budget_holds_up_no_small_request_and_of_large_ones_all_but_one() {
    let bed = Bed::new(|limits| limits.max_bytes_in_flight = 1_000).await;
    let all = bed.shared.budget.try_take(1_000).unwrap();
    let (mut small, _small) = bed.client().await;
    for _ in 0..3 {
        small.write_all(&request()).await.unwrap();
        tokio::time::timeout(QUICKLY, answer(&mut small))
            .await
            .unwrap();
    }
    let frame = produce(60_000);
    let (mut first, _first) = bed.client().await;
    first.write_all(&frame[..50_000]).await.unwrap();
    tokio::time::sleep(Duration::from_millis(50)).await;
    // The first is being read beyond the budget: the second waits for its end, though it was sent whole.
    let (mut second, _second) = bed.client().await;
    second.write_all(&frame).await.unwrap();
    let mut byte = [0; 1];
    let silent = tokio::time::timeout(Duration::from_millis(100), second.peek(&mut byte)).await;
    assert!(silent.is_err(), "two frames beyond the budget");
    first.write_all(&frame[50_000..]).await.unwrap();
    for client in [&mut first, &mut second] {
        tokio::time::timeout(QUICKLY, answer(client)).await.unwrap();
    }
    drop(all);
    bed.free(1_000).await;
}

#[tokio::test]
async fn frames_that_wait_for_one_another_are_all_read_and_one_that_stalls_is_given_up() {
    let bed = Bed::new(|limits| {
        limits.max_bytes_in_flight = 100_000;
        limits.overdraft_timeout_ms = 300;
    })
    .await;
    let frame = produce(60_000);
    let mut clients = Vec::new();
    // Each sends half, so that none can be read to its end within the budget.
    for _ in 0..6 {
        let (mut client, served) = bed.client().await;
        client.write_all(&frame[..30_000]).await.unwrap();
        clients.push((client, served));
    }
    tokio::time::sleep(Duration::from_millis(50)).await;
    let mut given_up = 0;
    let mut answered = 0;
    // The last to be asked are the first to go on: whoever holds the others up is given up in its turn.
    for (client, _) in clients.iter_mut().rev() {
        let rest = async {
            client.write_all(&frame[30_000..]).await?;
            client.read_u32().await
        };
        match tokio::time::timeout(Duration::from_secs(5), rest).await {
            Ok(Ok(_)) => answered += 1,
            Ok(Err(_)) => given_up += 1,
            Err(_) => panic!("{answered} answered, {given_up} given up, the rest stuck"),
        }
    }
    assert!(answered >= 1, "{answered} answered, {given_up} given up");
    drop(clients);
    bed.free(100_000).await;
}

#[tokio::test]
async fn a_steady_sender_is_served_however_its_frames_are_cut() {
    let timeout_ms = 200;
    for cut in [1, 4, 5, 13] {
        let (mut client, served) = serve(|limits| limits.frame_timeout_ms = timeout_ms).await;
        client.set_nodelay(true).unwrap();
        let frame = request();
        let started = Instant::now();
        client.write_all(&frame[..cut]).await.unwrap();
        // Each write ends one frame and begins the next, for several times as long as one may take.
        while started.elapsed() < Duration::from_millis(4 * timeout_ms) {
            tokio::time::sleep(Duration::from_millis(40)).await;
            let next = [&frame[cut..], &frame[..cut]].concat();
            client.write_all(&next).await.unwrap();
            answer(&mut client).await;
        }
        let end = served.await.unwrap();
        assert!(matches!(end, End::SlowFrame), "{end}");
        assert!(started.elapsed() >= Duration::from_millis(4 * timeout_ms));
    }
}

#[tokio::test]
async fn a_peer_that_always_sends_does_not_delay_the_end() {
    let bed = Bed::new(|_| {}).await;
    bed.shared.close();
    let (mut client, mut state, stream) = bed.accept().await;
    let flood: Vec<u8> = std::iter::repeat_n(request(), 1_000).flatten().collect();
    client.write_all(&flood).await.unwrap();
    stream.readable().await.unwrap();
    let end = state.serve(stream).await;
    assert!(matches!(end, End::Closing), "{end}");
    let read = rooms::metrics(&bed.shared.server);
    assert!(
        read.contains("kop_server_NETWORK_TOTAL_BYTES_IN{cluster=\"standalone\"} 0"),
        "a request was read after the end began: {read}"
    );
}

#[tokio::test]
async fn a_silent_connection_gives_its_buffer_back_and_is_served_on() {
    let bed = Bed::new(|limits| limits.front_buffer_rest_ms = 100).await;
    let (mut client, mut state, stream) = bed.accept().await;
    let talk = async {
        for _ in 0..3 {
            client.write_all(&request()).await.unwrap();
            tokio::time::timeout(QUICKLY, answer(&mut client))
                .await
                .unwrap();
            tokio::time::sleep(Duration::from_millis(300)).await;
        }
    };
    tokio::select! {
        end = state.serve(stream) => panic!("{end}"),
        () = talk => {}
    }
    assert!(state.framer.is_at_rest());
}

#[tokio::test]
async fn a_connection_that_never_spoke_holds_no_buffer() {
    let bed = Bed::new(|_| {}).await;
    let (_client, mut state, stream) = bed.accept().await;
    let served = tokio::time::timeout(Duration::from_millis(100), state.serve(stream)).await;
    assert!(served.is_err(), "it waits");
    assert!(state.framer.is_at_rest());
}
