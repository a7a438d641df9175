//! Servers that take back what they said, and rows that are deleted.
//!
//! A server that is restored from a backup may hold a branch prepared that has ended since: the moment of the backup
//! came between its promise and its end. With the branch's end its witness is gone, or the fence. MariaDB knows a
//! second way there: once a session was reset, the branch that it holds is not listed, the answer to its end is OK, and
//! when the server starts anew it is prepared as before. Until then it holds its locks, its witness' among them.

use super::bugs::Bug;
use super::setting::Setting;
use super::step::Broken;
use super::world::{Line, Past, Reply, Slot, State, Witness, World};
use crate::protocol::{Finish, Vote};

impl World {
    /// The server starts anew, from a backup or with what it had hidden.
    pub fn bring_back(&mut self, setting: &Setting, index: usize) -> Result<(), Broken> {
        let line = self.sites[index].line;
        let heard = matches!(line, Line::Answered(Reply::Voted(Vote::Unknown) | Reply::Finished(Finish::Unknown)));
        if matches!(line, Line::Idle | Line::Asked(_) | Line::Answered(_)) && !heard {
            self.cut(setting, index)?;
        }
        let site = &mut self.sites[index];
        self.returns -= u8::from(site.state != State::Hidden);
        site.past = match (site.past, site.state) {
            (Past::WasCommitted, _) | (_, State::Committed) => Past::WasCommitted,
            _ => Past::WasGone,
        };
        (site.state, site.witness) = (State::Prepared, Witness::None);
        // No session outlives its server.
        (site.late, site.stray) = (None, None);
        Ok(())
    }

    /// What the journal knows durably needs no witness.
    pub fn may_prune(&self, setting: &Setting, index: usize) -> bool {
        let deal = &self.deals[index / setting.participants()];
        let noted = |slot: Slot| matches!(slot, Slot::Cached | Slot::Durable);
        let needless = match self.sites[index].witness {
            Witness::Decided => noted(deal.done),
            Witness::Alone => noted(deal.alone),
            Witness::Fence | Witness::None => false,
        };
        self.up && !self.poisoned && needless
    }

    /// The journal is flushed first.
    pub fn prune(&mut self, setting: &Setting, index: usize) {
        for deal in &mut self.deals {
            for slot in [&mut deal.done, &mut deal.alone] {
                if *slot == Slot::Cached && setting.bug != Some(Bug::PrunedBeforeTheNote) {
                    *slot = Slot::Durable;
                }
            }
        }
        self.sites[index].witness = Witness::None;
    }
}
