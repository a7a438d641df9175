//! As much of HTTP/1.1 as a client needs that keeps its connection.

use std::io::{Error, ErrorKind, Result};
use std::net::SocketAddr;
use std::time::Duration;
use tokio::io::{AsyncBufReadExt, AsyncReadExt, AsyncWriteExt, BufReader};
use tokio::net::TcpStream;
use tokio::time::timeout;

/// How long an answer may take.
const PATIENCE: Duration = Duration::from_secs(60);

pub struct Connection(BufReader<TcpStream>);

#[derive(Debug)]
pub struct Reply {
    pub status: u16,
    pub body: String,
    /// Whether the server will close the connection: `Connection: close`.
    pub is_last: bool,
}

impl Connection {
    pub async fn open(address: SocketAddr) -> Result<Self> {
        Ok(Self(BufReader::new(TcpStream::connect(address).await?)))
    }

    /// Sends a request and waits for the answer to it.
    pub async fn ask(&mut self, what: &str, body: &str) -> Result<Reply> {
        let asking = async {
            let length = body.len();
            let head =
                format!("{what} HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\nContent-Length: {length}");
            self.0.get_mut().write_all(format!("{head}\r\n\r\n{body}").as_bytes()).await?;
            self.answer().await
        };
        timeout(PATIENCE, asking).await.map_err(|_| Error::from(ErrorKind::TimedOut))?
    }

    async fn answer(&mut self) -> Result<Reply> {
        let wrong = |what: &str| Error::new(ErrorKind::InvalidData, what.to_owned());
        let first = self.line().await?;
        let status = first.split(' ').nth(1).and_then(|status| status.parse().ok()).ok_or_else(|| wrong(&first))?;
        let (mut length, mut is_last) = (None, false);
        loop {
            let line = self.line().await?.to_ascii_lowercase();
            match line.split_once(": ") {
                Some(("content-length", value)) => length = value.parse::<usize>().ok(),
                Some(("connection", value)) => is_last = value == "close",
                None if line.is_empty() => break,
                _ => {}
            }
        }
        let mut body = vec![0; length.ok_or_else(|| wrong("an answer without a length"))?];
        self.0.read_exact(&mut body).await?;
        let body = String::from_utf8(body).map_err(|_| wrong("no text"))?;
        Ok(Reply { status, body, is_last })
    }

    /// One line of the head.
    async fn line(&mut self) -> Result<String> {
        let mut line = String::new();
        if self.0.read_line(&mut line).await? == 0 {
            return Err(Error::new(ErrorKind::UnexpectedEof, "closed without an answer"));
        }
        Ok(line.trim_end().to_owned())
    }
}
