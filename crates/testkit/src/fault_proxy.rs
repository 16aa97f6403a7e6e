//! A TCP proxy that breaks connections in the ways networks do.

use std::io::Result;
use std::net::SocketAddr;
use std::time::Duration;

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::tcp::{OwnedReadHalf, OwnedWriteHalf};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;
use tokio::task::JoinHandle;
use tokio::time::sleep;

/// What happens to the bytes, of connections that are open and of new ones.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Weather {
    /// They pass.
    Clear,
    /// Connections are closed, and new ones too.
    Cut,
    /// Connections stay open and nothing passes: a half-open connection, as after a cable was pulled.
    Silent,
    /// A few bytes at a time with a pause before each.
    Slow(Duration),
    /// The next connection that passes this many bytes of answers is closed in the middle of a message.
    ResetAfter(usize),
}

/// A proxy in front of one address of this machine. It ends when it is dropped.
#[derive(Debug)]
pub struct FaultProxy {
    port: u16,
    weather: watch::Sender<Weather>,
    task: JoinHandle<()>,
}

impl FaultProxy {
    /// Starts a proxy to `target`, in clear weather.
    ///
    /// # Errors
    /// When no port is free.
    pub async fn start(target: SocketAddr) -> Result<Self> {
        let listener = TcpListener::bind("127.0.0.1:0").await?;
        let port = listener.local_addr()?.port();
        let weather = watch::Sender::new(Weather::Clear);
        let given = weather.clone();
        let task = tokio::spawn(async move {
            while let Ok((client, _)) = listener.accept().await {
                tokio::spawn(serve(client, target, given.subscribe()));
            }
        });
        Ok(Self { port, weather, task })
    }

    /// Where it listens, on 127.0.0.1.
    pub const fn port(&self) -> u16 {
        self.port
    }

    /// Changes what happens from now on.
    pub fn set(&self, weather: Weather) {
        self.weather.send_replace(weather);
    }
}

impl Drop for FaultProxy {
    fn drop(&mut self) {
        self.task.abort();
        self.weather.send_replace(Weather::Cut);
    }
}

async fn serve(client: TcpStream, target: SocketAddr, weather: watch::Receiver<Weather>) {
    if *weather.borrow() == Weather::Cut {
        return;
    }
    let Ok(server) = TcpStream::connect(target).await else { return };
    let _ = (client.set_nodelay(true), server.set_nodelay(true));
    let (from_client, to_client) = client.into_split();
    let (from_server, to_server) = server.into_split();
    // Whichever direction ends, ends both: its halves are dropped.
    tokio::select! {
        () = pump(from_client, to_server, weather.clone(), Direction::Request) => {}
        () = pump(from_server, to_client, weather, Direction::Answer) => {}
    }
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Direction {
    Answer,
    Request,
}

async fn pump(
    mut from: OwnedReadHalf,
    mut to: OwnedWriteHalf,
    mut weather: watch::Receiver<Weather>,
    direction: Direction,
) {
    let mut buffer = vec![0; 16 * 1024];
    let mut passed = 0;
    loop {
        let now = *weather.borrow_and_update();
        match now {
            Weather::Cut => return,
            Weather::Silent => {
                if weather.changed().await.is_err() {
                    return;
                }
                continue;
            }
            Weather::Clear | Weather::Slow(_) | Weather::ResetAfter(_) => {}
        }
        let read = tokio::select! {
            read = from.read(&mut buffer) => read,
            changed = weather.changed() => {
                if changed.is_err() {
                    return;
                }
                continue;
            }
        };
        let Ok(count @ 1..) = read else { return };
        let mut rest = &buffer[..count];
        // The weather may have changed while nothing came.
        let now = *weather.borrow();
        match now {
            Weather::Cut => return,
            Weather::Silent => {
                // What came on the wire is held up with the rest.
                while *weather.borrow_and_update() == Weather::Silent {
                    if weather.changed().await.is_err() {
                        return;
                    }
                }
            }
            Weather::Slow(pause) => {
                while rest.len() > 7 {
                    sleep(pause).await;
                    if to.write_all(&rest[..7]).await.is_err() {
                        return;
                    }
                    rest = &rest[7..];
                }
                sleep(pause).await;
            }
            Weather::ResetAfter(limit) if direction == Direction::Answer => {
                if passed + count > limit {
                    let part = limit.saturating_sub(passed).min(count);
                    let _ = to.write_all(&rest[..part]).await;
                    return;
                }
            }
            Weather::Clear | Weather::ResetAfter(_) => {}
        }
        passed += count;
        if to.write_all(rest).await.is_err() {
            return;
        }
    }
}
