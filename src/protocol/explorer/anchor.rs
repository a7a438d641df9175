//! Where the decision is a row on a participant, the anchor, and no journal is kept.
//!
//! Each transaction is then of a process of its own, which may die alone; what is remembered is in the anchor's tables;
//! the passes are of whichever process of the node lives on. It leaves alone what it finds locked. A server may forget a
//! lock whose holder lives: then a pass comes beside a coordinator that is at work, and only the key of the row is
//! between them.

use super::event::{Broken, broken};
use super::setting::Setting;
use super::world::{Request, State, Witness, World};
use crate::id::BranchId;
use crate::protocol::CommitRecord;

impl World {
    /// Whether this site is a transaction's branch on the anchor.
    pub fn is_anchor(&self, setting: &Setting, index: usize) -> bool {
        setting.anchor == Some(index % setting.participants())
    }

    pub fn commit_anchor(
        &mut self,
        setting: &Setting,
        deal: usize,
        anchor: BranchId,
        record: &CommitRecord,
    ) -> Result<(), Broken> {
        let index = setting.site(anchor).expect("a branch of this world");
        let first = deal * setting.participants();
        let mut others = (first..first + setting.participants()).filter(|other| *other != index);
        let promised = |other: usize| record.branches.iter().all(|branch| branch.id != setting.branch(other));
        let open = others.any(|other| !promised(other) && self.sites[other].state != State::Prepared);
        // Behind a lost lock somebody may have rolled back what was promised.
        if open && !self.deals[deal].unlocked {
            return broken("I2", "the anchor decides, and not every other branch has promised");
        }
        assert_eq!(record.branches.len(), self.writers(setting, deal).count(), "the row lists every writer");
        self.send(index, Request::CommitAnchor);
        Ok(())
    }

    /// What the anchor's row makes of its transaction.
    pub fn see_decision(&mut self, setting: &Setting, index: usize) {
        if self.sites[index].witness == Witness::Anchor {
            let deal = &mut self.deals[index / setting.participants()];
            deal.commit = super::world::Slot::Durable;
            deal.decided = true;
        }
    }

    /// The rows are read, of all transactions.
    pub fn read_rows(&mut self, setting: &Setting) {
        let Some(anchor) = setting.anchor else { return };
        for deal in 0..setting.modes.len() {
            let row = self.of(setting, deal)[anchor].witness == Witness::Anchor;
            self.deals[deal].row_read |= row;
        }
    }

    /// The process of one transaction dies, and the others go on.
    pub fn kill(&mut self, setting: &Setting, deal: usize) {
        self.crashes -= 1;
        self.first_life = false;
        self.deals[deal].coordinator = None;
        let first = deal * setting.participants();
        for site in &mut self.sites[first..first + setting.participants()] {
            site.close();
        }
    }
}
