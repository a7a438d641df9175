//! One connection through the proxy, and the faults in it.

use super::wire::{Framing, Message, farewell};
use super::{Armed, Fault, Place, Shared, State, lock};
use crate::servers::Flavor;
use std::io;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;

/// Fails as a statement does that somebody cancels, with what is behind it in the same text.
const CANCELLED: &str = "DO $$BEGIN RAISE 'canceling statement' USING ERRCODE = 'query_canceled'; END$$";

/// Takes connections for ever. While the proxy is down they are closed at once.
pub(super) async fn accept(shared: Arc<Shared>, listener: TcpListener) {
    loop {
        let Ok((client, _)) = listener.accept().await else { continue };
        let state = shared.state.subscribe();
        let now = *state.borrow();
        if !now.is_down {
            tokio::spawn(serve(shared.clone(), client, state, now));
        }
    }
}

/// Serves one connection until it ends by itself, by a rule, or with all others.
async fn serve(shared: Arc<Shared>, client: TcpStream, mut state: watch::Receiver<State>, since: State) {
    let work = async {
        let server = TcpStream::connect(shared.server).await?;
        client.set_nodelay(true)?;
        server.set_nodelay(true)?;
        let number = shared.next_connection.fetch_add(1, Ordering::Relaxed);
        let framing = Framing::new(shared.flavor, number);
        let (unsent, due, withheld, cut_after, keeps) = (Vec::new(), None, None, None, None);
        let (shared, was_held) = (&shared, false);
        Connection { shared, client, server, framing, unsent, due, withheld, cut_after, keeps, was_held }.run().await
    };
    tokio::select! {
        // An error means that one of the two has gone: both ends are closed, as the other would see it.
        _ = work => {}
        _ = state.wait_for(|now| now.severed != since.severed) => {}
    }
}

struct Connection<'a> {
    shared: &'a Shared,
    client: TcpStream,
    server: TcpStream,
    framing: Framing,
    /// What came from the client and is not yet a whole message.
    unsent: Vec<u8>,
    /// A rule that was met and whose turn is at the next question.
    due: Option<Arc<Armed>>,
    /// Answers are withheld until this is true.
    withheld: Option<watch::Receiver<bool>>,
    /// So many bytes more of the server's may pass; then the rule has fired, and this ends.
    cut_after: Option<(usize, Arc<Armed>)>,
    /// Where the answers are kept until the next message.
    keeps: Option<Arc<Armed>>,
    /// What was held is delivered: should its client be gone by now, it is acted on all the same.
    was_held: bool,
}

/// Waits until answers may pass again.
async fn released(withheld: &mut Option<watch::Receiver<bool>>) {
    if let Some(until) = withheld {
        // A rule that is gone without a release holds for ever.
        if until.wait_for(|released| *released).await.is_err() {
            std::future::pending::<()>().await;
        }
    }
}

/// Whether a connection goes on.
enum Next {
    Goes,
    Ends,
}

impl Connection<'_> {
    async fn run(mut self) -> io::Result<()> {
        let mut answer = vec![0; 16 * 1024];
        loop {
            tokio::select! {
                read = self.client.read_buf(&mut self.unsent) => {
                    if read? == 0 {
                        return if self.was_held { self.await_the_end().await } else { Ok(()) };
                    }
                    if let Next::Ends = self.pass_messages().await? {
                        return Ok(());
                    }
                }
                () = released(&mut self.withheld), if self.withheld.is_some() => self.withheld = None,
                read = self.server.read(&mut answer), if self.withheld.is_none() => {
                    let read = read?;
                    if read == 0 {
                        return Ok(());
                    }
                    if let Next::Ends = self.pass_answer(&answer[..read]).await? {
                        return Ok(());
                    }
                }
            }
        }
    }

    /// Passes on what is there of whole messages.
    async fn pass_messages(&mut self) -> io::Result<Next> {
        while let Some((length, message)) = self.framing.first(&self.unsent) {
            let bytes: Vec<u8> = self.unsent.drain(..length).collect();
            self.keeps = None;
            let rule = message.and_then(|message| self.note(message));
            let next = match rule {
                Some(rule) => self.fail(&rule, &bytes).await?,
                None => self.deliver(&bytes).await.map(|()| Next::Goes)?,
            };
            if let Next::Ends = next {
                return Ok(Next::Ends);
            }
        }
        Ok(Next::Goes)
    }

    async fn pass_answer(&mut self, bytes: &[u8]) -> io::Result<Next> {
        if let Some(rule) = &self.keeps {
            lock(&rule.kept).extend_from_slice(bytes);
        }
        let Some((left, rule)) = &mut self.cut_after else {
            return self.client.write_all(bytes).await.map(|()| Next::Goes);
        };
        let part = bytes.len().min(*left);
        *left -= part;
        self.client.write_all(&bytes[..part]).await?;
        if *left > 0 {
            return Ok(Next::Goes);
        }
        rule.fire(self.shared);
        Ok(Next::Ends)
    }

    /// Keeps a message: the rule whose turn it is.
    fn note(&mut self, message: Message) -> Option<Arc<Armed>> {
        let is_question = message.is_question(self.shared.flavor);
        let met = self.shared.rule_for(&message);
        lock(&self.shared.messages).push(message);
        let due = self.due.take_if(|_| is_question);
        match met {
            Some(rule) if due.is_none() && rule.waits(is_question) => {
                self.due = Some(rule);
                None
            }
            met => due.or(met),
        }
    }

    async fn deliver(&mut self, bytes: &[u8]) -> io::Result<()> {
        self.server.write_all(bytes).await
    }

    async fn fail(&mut self, rule: &Arc<Armed>, bytes: &[u8]) -> io::Result<Next> {
        match rule.fault {
            Fault::Replay => return self.replay(rule, bytes).await,
            Fault::Refuse => return self.refuse(rule, bytes).await,
            _ => {}
        }
        match rule.place {
            Place::Before => {
                let next = self.stop(rule).await?;
                if let Next::Goes = next {
                    self.was_held = true;
                    self.deliver(bytes).await?;
                }
                Ok(next)
            }
            Place::After => {
                self.deliver(bytes).await?;
                match rule.fault {
                    Fault::Cut | Fault::Reset => self.await_the_end().await?,
                    Fault::Truncate(bytes) => {
                        self.cut_after = Some((bytes, rule.clone()));
                        return Ok(Next::Goes);
                    }
                    Fault::Hold | Fault::Delay(_) | Fault::Replay | Fault::Refuse => {}
                }
                self.stop(rule).await
            }
        }
    }

    /// Delivers what fails in the message's stead: on PostgreSQL as a statement that was cancelled, on the others as none.
    async fn refuse(&mut self, rule: &Arc<Armed>, bytes: &[u8]) -> io::Result<Next> {
        let spoiled = match self.shared.flavor {
            Flavor::Postgres => {
                let length = u32::try_from(CANCELLED.len() + 5).expect("it is short");
                [b"Q", &length.to_be_bytes()[..], CANCELLED.as_bytes(), b"\0"].concat()
            }
            Flavor::MariaDb | Flavor::MySql => {
                let mut spoiled = bytes.to_vec();
                // Five bytes are in front of the text.
                spoiled[5] = b'!';
                spoiled
            }
        };
        self.deliver(&spoiled).await?;
        rule.fire(self.shared);
        Ok(Next::Goes)
    }

    /// Keeps an answer, or gives the one that was kept.
    async fn replay(&mut self, rule: &Arc<Armed>, bytes: &[u8]) -> io::Result<Next> {
        let kept = lock(&rule.kept).clone();
        if kept.is_empty() {
            self.keeps = Some(rule.clone());
            self.deliver(bytes).await?;
        } else {
            self.client.write_all(&kept).await?;
            lock(&self.shared.rules).retain(|armed| !Arc::ptr_eq(armed, rule));
            rule.fire(self.shared);
        }
        Ok(Next::Goes)
    }

    /// Does what the rule says, at its place.
    async fn stop(&mut self, rule: &Armed) -> io::Result<Next> {
        if let Fault::Reset = rule.fault {
            // Closed with time 0 to linger, a socket is reset.
            self.client.set_zero_linger()?;
            self.server.set_zero_linger()?;
        }
        rule.fire(self.shared);
        match rule.fault {
            Fault::Cut | Fault::Reset | Fault::Truncate(_) => Ok(Next::Ends),
            Fault::Replay | Fault::Refuse => unreachable!("it stops nobody"),
            Fault::Delay(delay) => {
                tokio::time::sleep(delay).await;
                Ok(Next::Goes)
            }
            Fault::Hold => {
                let until = rule.released.subscribe();
                let mut hold = Some(until);
                if rule.place == Place::Before {
                    released(&mut hold).await;
                } else {
                    self.withheld = hold;
                }
                Ok(Next::Goes)
            }
        }
    }

    /// Says good-bye in the client's name, and waits until the server has acted on all and closed the connection.
    async fn await_the_end(&mut self) -> io::Result<()> {
        self.server.write_all(farewell(self.shared.flavor)).await?;
        let mut answer = [0; 4096];
        // A reset is an end, too.
        while let Ok(1..) = self.server.read(&mut answer).await {}
        Ok(())
    }
}
