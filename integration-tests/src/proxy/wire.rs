//! Where a client's messages begin and end, and what they say.

use crate::servers::Flavor;

/// One message of a client.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Message {
    /// Which of the proxy's connections it came on, counted from 0.
    pub connection: u32,
    /// PostgreSQL: the message's type, `Q` or `P` or another. MySQL: the command's byte.
    pub kind: u8,
    /// The statements in it, if it carries any.
    pub text: String,
}

impl Message {
    /// Whether the client waits for an answer to it: what is counted as a round trip.
    pub fn is_question(&self, flavor: Flavor) -> bool {
        match flavor {
            Flavor::Postgres => matches!(self.kind, QUERY | SYNC),
            // Neither COM_QUIT nor COM_STMT_SEND_LONG_DATA nor COM_STMT_CLOSE has an answer.
            Flavor::MariaDb | Flavor::MySql => !matches!(self.kind, 0x01 | 0x18 | 0x19),
        }
    }
}

/// PostgreSQL's simple query, <https://www.postgresql.org/docs/current/protocol-message-formats.html>.
const QUERY: u8 = b'Q';
const PARSE: u8 = b'P';
const SYNC: u8 = b'S';

/// <https://dev.mysql.com/doc/dev/mysql-server/latest/page_protocol_command_phase.html>
const COM_QUERY: u8 = 0x03;
const COM_STMT_PREPARE: u8 = 0x16;

/// The longest part of a message of MySQL: another part follows.
const WHOLE_PART: usize = 0xff_ffff;

/// The framing of one direction, client to server.
pub(super) struct Framing {
    flavor: Flavor,
    connection: u32,
    /// PostgreSQL: the startup is over, messages have types.
    started: bool,
}

impl Framing {
    pub(super) fn new(flavor: Flavor, connection: u32) -> Self {
        Self { flavor, connection, started: false }
    }

    /// The first message of these bytes, if it is there as a whole: its length, and what it says if it is more than
    /// part of a handshake.
    pub(super) fn first(&mut self, bytes: &[u8]) -> Option<(usize, Option<Message>)> {
        match self.flavor {
            Flavor::Postgres => self.first_of_postgres(bytes),
            Flavor::MariaDb | Flavor::MySql => self.first_of_mysql(bytes),
        }
    }

    fn message(&self, kind: u8, text: &[u8]) -> Message {
        Message { connection: self.connection, kind, text: String::from_utf8_lossy(text).into_owned() }
    }

    fn first_of_postgres(&mut self, bytes: &[u8]) -> Option<(usize, Option<Message>)> {
        // Before the startup message: requests for encryption, or to cancel; they have no type.
        let head = usize::from(self.started);
        let length = u32::from_be_bytes(bytes.get(head..head + 4)?.try_into().ok()?);
        let length = head + usize::try_from(length).ok()?;
        let whole = bytes.get(..length)?;
        if !self.started {
            let version_3 = whole.get(4..6) == Some(&[0, 3]);
            self.started = version_3;
            return Some((length, None));
        }
        let text: &[u8] = match whole[0] {
            QUERY | PARSE => &whole[5..],
            _ => &[],
        };
        Some((length, Some(self.message(whole[0], text))))
    }

    fn first_of_mysql(&self, bytes: &[u8]) -> Option<(usize, Option<Message>)> {
        let (mut length, mut payload) = (0, Vec::new());
        loop {
            let head = bytes.get(length..length + 4)?;
            let part = usize::from(head[0]) | usize::from(head[1]) << 8 | usize::from(head[2]) << 16;
            payload.extend_from_slice(bytes.get(length + 4..length + 4 + part)?);
            length += 4 + part;
            if part < WHOLE_PART {
                break;
            }
        }
        // A command begins a new sequence; what goes on with an older one belongs to the handshake or to LOCAL INFILE.
        let is_command = bytes[3] == 0;
        let message = payload.split_first().filter(|_| is_command).map(|(kind, rest)| {
            let has_text = matches!(*kind, COM_QUERY | COM_STMT_PREPARE);
            self.message(*kind, if has_text { rest } else { &[] })
        });
        Some((length, message))
    }
}

/// What a client says before it closes the connection: the server acts on all that came before, then closes it.
pub(super) fn farewell(flavor: Flavor) -> &'static [u8] {
    match flavor {
        Flavor::Postgres => b"X\0\0\0\x04",
        Flavor::MariaDb | Flavor::MySql => b"\x01\0\0\0\x01",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn messages_of_postgres_are_told_apart() {
        let mut framing = Framing::new(Flavor::Postgres, 3);
        let startup = b"\0\0\0\x09\0\x03\0\0\0";
        assert_eq!(framing.first(b"\0\0\0\x08\x04\xd2\x16\x2f"), Some((8, None)), "a request for encryption");
        assert_eq!(framing.first(&startup[..8]), None);
        assert_eq!(framing.first(startup), Some((9, None)));
        let query = b"Q\0\0\0\x09ab;\0\0S\0\0\0\x04";
        let (length, message) = framing.first(query).unwrap();
        assert_eq!((length, message.unwrap()), (10, Message { connection: 3, kind: b'Q', text: "ab;\0\0".into() }));
        let (length, sync) = framing.first(&query[10..]).unwrap();
        assert_eq!(length, 5);
        assert!(sync.unwrap().is_question(Flavor::Postgres));
    }

    #[test]
    fn messages_of_mysql_are_told_apart() {
        let mut framing = Framing::new(Flavor::MySql, 0);
        assert_eq!(framing.first(b"\x02\0\0\x01ab"), Some((6, None)), "a handshake");
        assert_eq!(framing.first(b"\x03\0\0\0\x03a"), None);
        let (length, query) = framing.first(b"\x03\0\0\0\x03ab").unwrap();
        assert_eq!((length, query.unwrap().text.as_str()), (7, "ab"));
        let mut long = vec![0xff, 0xff, 0xff, 0, COM_QUERY];
        long.resize(4 + WHOLE_PART, b'x');
        assert_eq!(framing.first(&long), None, "another part follows");
        long.extend_from_slice(b"\x01\0\0\x01y");
        let (length, query) = framing.first(&long).unwrap();
        assert_eq!(length, long.len());
        assert!(query.unwrap().text.ends_with("xy"));
    }
}
