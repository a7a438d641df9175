//! A relay before a server that counts round trips. It knows nothing of the protocol: a client that says something
//! after the server has spoken begins a round trip, however many messages and statements it sends together.

use std::net::{Ipv4Addr, SocketAddr};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::task::JoinHandle;

/// A relay; dropped, it takes no more connections.
pub struct Relay {
    url: String,
    trips: Arc<AtomicU64>,
    accepting: JoinHandle<()>,
}

impl Relay {
    /// Before the server on this port of loopback, which a URL names.
    pub async fn start(url: &str, port: u16) -> Self {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await.expect("a port on loopback");
        let own = listener.local_addr().expect("a bound listener has an address").port();
        let trips = Arc::new(AtomicU64::new(0));
        let accepting = tokio::spawn(accept(listener, (Ipv4Addr::LOCALHOST, port).into(), trips.clone()));
        Self { url: url.replace(&format!(":{port}/"), &format!(":{own}/")), trips, accepting }
    }

    /// The same URL through the relay.
    pub fn url(&self) -> String {
        self.url.clone()
    }

    /// Round trips so far, of all connections, greetings included.
    pub fn trips(&self) -> u64 {
        self.trips.load(Ordering::Relaxed)
    }
}

impl Drop for Relay {
    fn drop(&mut self) {
        self.accepting.abort();
    }
}

async fn accept(listener: TcpListener, server: SocketAddr, trips: Arc<AtomicU64>) {
    loop {
        let (client, _) = listener.accept().await.expect("a connection");
        // Either end may go when it likes.
        tokio::spawn(relay(client, server, trips.clone()));
    }
}

async fn relay(mut client: TcpStream, server: SocketAddr, trips: Arc<AtomicU64>) -> std::io::Result<()> {
    let mut server = TcpStream::connect(server).await?;
    client.set_nodelay(true)?;
    server.set_nodelay(true)?;
    let (mut asked, mut answered) = (vec![0; 16 * 1024], vec![0; 16 * 1024]);
    let mut server_spoke_last = true;
    loop {
        tokio::select! {
            read = client.read(&mut asked) => {
                let read = read?;
                if read == 0 {
                    return Ok(());
                }
                if std::mem::take(&mut server_spoke_last) {
                    trips.fetch_add(1, Ordering::Relaxed);
                }
                server.write_all(&asked[..read]).await?;
            }
            read = server.read(&mut answered) => {
                let read = read?;
                if read == 0 {
                    return Ok(());
                }
                server_spoke_last = true;
                client.write_all(&answered[..read]).await?;
            }
        }
    }
}
