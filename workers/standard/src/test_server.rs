//! An HTTP server of a few lines that answers with prepared bytes and remembers what it was asked.

use std::net::SocketAddr;
use std::time::Duration;

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::mpsc;

/// One request as it came in.
#[derive(Clone, Debug)]
pub(crate) struct Received {
    pub(crate) connection: usize,
    pub(crate) head: String,
    pub(crate) body: Vec<u8>,
}

impl Received {
    pub(crate) fn header(&self, name: &str) -> Option<&str> {
        self.head.lines().skip(1).find_map(|line| {
            let (found, value) = line.split_once(':')?;
            found.eq_ignore_ascii_case(name).then(|| value.trim())
        })
    }
}

/// What to do with a request.
#[derive(Clone, Debug)]
pub(crate) enum Answer {
    /// These bytes, and the connection stays open.
    Bytes(Vec<u8>),
    /// These bytes, and then new ones of a body without an end.
    Endless(Vec<u8>),
    /// These bytes, and then silence on the open connection.
    Silence(Vec<u8>),
    /// The connection is cut.
    Cut,
}

pub(crate) struct TestServer {
    pub(crate) address: SocketAddr,
    received: mpsc::UnboundedReceiver<Received>,
}

impl TestServer {
    /// Listens on a free port of 127.0.0.1 and answers every request alike.
    pub(crate) async fn start(answer: Answer) -> Self {
        Self::on("127.0.0.1:0", answer).await
    }

    pub(crate) async fn on(address: &str, answer: Answer) -> Self {
        let listener = TcpListener::bind(address).await.unwrap();
        let address = listener.local_addr().unwrap();
        let (sender, received) = mpsc::unbounded_channel();
        tokio::spawn(async move {
            let mut connection = 0;
            while let Ok((stream, _)) = listener.accept().await {
                connection += 1;
                tokio::spawn(serve(stream, connection, answer.clone(), sender.clone()));
            }
        });
        Self { address, received }
    }

    /// Speaks first and then hangs up, as a server of another protocol does.
    pub(crate) async fn greeting(bytes: &'static [u8]) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        tokio::spawn(async move {
            while let Ok((mut stream, _)) = listener.accept().await {
                let _ = stream.write_all(bytes).await;
            }
        });
        let (_, received) = mpsc::unbounded_channel();
        Self { address, received }
    }

    /// A plain answer with a body.
    pub(crate) async fn answering(status: &str, headers: &str, body: &str) -> Self {
        Self::start(plain(status, headers, body)).await
    }

    pub(crate) fn url(&self, path: &str) -> String {
        format!("http://{}{path}", self.address)
    }

    pub(crate) async fn next(&mut self) -> Received {
        tokio::time::timeout(Duration::from_secs(60), self.received.recv()).await.unwrap().unwrap()
    }

    /// Whether a request has come that was not looked at.
    pub(crate) fn is_untouched(&mut self) -> bool {
        self.received.try_recv().is_err()
    }
}

/// The bytes of an ordinary answer.
pub(crate) fn plain(status: &str, headers: &str, body: &str) -> Answer {
    let length = body.len();
    Answer::Bytes(
        format!("HTTP/1.1 {status}\r\n{headers}content-length: {length}\r\n\r\n{body}").into_bytes(),
    )
}

async fn serve(
    mut stream: TcpStream,
    connection: usize,
    answer: Answer,
    sender: mpsc::UnboundedSender<Received>,
) {
    let mut buffer = Vec::new();
    while let Some(received) = read_request(&mut stream, &mut buffer, connection).await {
        let _ = sender.send(received);
        match &answer {
            Answer::Bytes(bytes) => {
                if stream.write_all(bytes).await.is_err() {
                    return;
                }
            }
            Answer::Endless(bytes) => {
                let mut result = stream.write_all(bytes).await;
                while result.is_ok() {
                    result = stream.write_all(&[b'x'; 4096]).await;
                }
                return;
            }
            Answer::Silence(bytes) => {
                let _ = stream.write_all(bytes).await;
                // Until the other side gives up.
                let _ = stream.read(&mut [0; 1]).await;
                return;
            }
            Answer::Cut => return,
        }
    }
}

async fn read_request(stream: &mut TcpStream, buffer: &mut Vec<u8>, connection: usize) -> Option<Received> {
    let end = loop {
        if let Some(end) = buffer.windows(4).position(|window| window == b"\r\n\r\n") {
            break end + 4;
        }
        if stream.read_buf(buffer).await.ok()? == 0 {
            return None;
        }
    };
    let head = String::from_utf8_lossy(&buffer[..end]).into_owned();
    let mut received = Received { connection, head, body: Vec::new() };
    let length: usize = received.header("content-length").map_or(0, |length| length.parse().unwrap());
    while buffer.len() < end + length {
        if stream.read_buf(buffer).await.ok()? == 0 {
            return None;
        }
    }
    received.body = buffer[end..end + length].to_vec();
    buffer.drain(..end + length);
    Some(received)
}
