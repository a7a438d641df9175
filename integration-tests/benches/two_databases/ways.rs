//! The ways to do the work, and what is compared with what.

use crate::bridged::{Bridged, Setup};
use crate::direct::{Direct, Hands};
use crate::stage::Access;
use crate::{bridged, direct};
use futures_util::future::BoxFuture;
use handfast::Bridge;
use std::collections::BTreeMap;
use std::sync::Arc;

/// A way to do the work. Its transactions for different workers, or of different numbers, touch different rows.
pub trait Way: Send + Sync {
    /// One whole transaction of a worker, until its end is certain.
    fn transact(&self, worker: usize, number: usize) -> BoxFuture<'_, ()>;

    /// Waits until nothing goes on in the background.
    fn settle(&self) -> BoxFuture<'_, ()> {
        Box::pin(async {})
    }
}

/// A way and how it is told of.
#[derive(Clone, Copy)]
pub struct Variant {
    pub name: &'static str,
    /// Those that its throughput is compared with.
    pub against: &'static [&'static str],
    how: How,
    /// The other server has no part in it: it is measured with the first one only.
    pub postgres_alone: bool,
}

#[derive(Clone, Copy)]
enum How {
    ByHand(direct::Kind),
    Handfast(Setup, bridged::Kind),
}

const fn by_hand(name: &'static str, against: &'static [&'static str], kind: direct::Kind) -> Variant {
    Variant { name, against, how: How::ByHand(kind), postgres_alone: matches!(kind, direct::Kind::PostgresAlone) }
}

const fn handfast(name: &'static str, against: &'static [&'static str], setup: Setup, kind: bridged::Kind) -> Variant {
    let postgres_alone = matches!(kind, bridged::Kind::PostgresAlone);
    Variant { name, against, how: How::Handfast(setup, kind), postgres_alone }
}

const FLOORS: &[&str] = &["floor", "floor+proof"];
const ALL_FLOORS: &[&str] = &["floor", "floor+proof", "floor+begin"];

/// Every way there is, those that are compared with each other side by side.
const ALL: &[Variant] = &[
    by_hand("local", &[], direct::Kind::Local),
    by_hand("floor", &["local"], direct::Kind::Floor { proof: false, begin_apart: false }),
    handfast("handfast", ALL_FLOORS, Setup::DEFAULT, bridged::Kind::Both),
    by_hand("floor+proof", &["floor"], direct::Kind::Floor { proof: true, begin_apart: false }),
    by_hand("floor+begin", &["floor"], direct::Kind::Floor { proof: true, begin_apart: true }),
    handfast("witness=false", FLOORS, Setup::WITHOUT_WITNESS, bridged::Kind::Both),
    handfast("decided", FLOORS, Setup::DEFAULT, bridged::Kind::Decided),
    handfast("anchor-pg", FLOORS, Setup::ANCHOR_POSTGRES, bridged::Kind::Both),
    handfast("anchor-mysql", FLOORS, Setup::ANCHOR_MYSQL, bridged::Kind::Both),
    by_hand("local+read", &[], direct::Kind::LocalAndRead),
    handfast("read-only", &["local+read"], Setup::DEFAULT, bridged::Kind::ReadOnly),
    by_hand("local-mysql", &[], direct::Kind::MysqlAlone),
    handfast("single-mysql", &["local-mysql"], Setup::DEFAULT, bridged::Kind::MysqlAlone),
    by_hand("local-undo", &[], direct::Kind::RollBack),
    handfast("undo", &["local-undo"], Setup::DEFAULT, bridged::Kind::RollBack),
    by_hand("local-pg", &[], direct::Kind::PostgresAlone),
    handfast("single-pg", &["local-pg"], Setup::DEFAULT, bridged::Kind::PostgresAlone),
];

/// Those that this version of Handfast can be configured for; the names of the others.
pub fn known(access: &Access) -> (Vec<Variant>, Vec<&'static str>) {
    let is_known = |variant: &Variant| match variant.how {
        How::ByHand(_) => true,
        How::Handfast(setup, _) => handfast::Config::from_toml(&bridged::config(access, setup).toml()).is_ok(),
    };
    let (known, unknown): (Vec<_>, Vec<_>) = ALL.iter().copied().partition(is_known);
    (known, unknown.iter().map(|variant| variant.name).collect())
}

/// What some variants work with: those of one configuration share a bridge, all by hand their connections.
pub struct Ways {
    hands: Option<Arc<Hands>>,
    bridges: BTreeMap<Setup, Bridge>,
}

impl Ways {
    pub async fn open(access: &Access, variants: &[Variant]) -> Self {
        let mut ways = Self { hands: None, bridges: BTreeMap::new() };
        for variant in variants {
            match variant.how {
                How::ByHand(_) if ways.hands.is_none() => ways.hands = Some(Arc::new(Hands::new(access).await)),
                How::Handfast(setup, _) if !ways.bridges.contains_key(&setup) => {
                    let bridge = Bridge::open(bridged::config(access, setup).build()).await.expect("a bridge");
                    ways.bridges.insert(setup, bridge);
                }
                How::ByHand(_) | How::Handfast(..) => {}
            }
        }
        ways
    }

    pub fn way(&self, variant: &Variant) -> Arc<dyn Way> {
        match variant.how {
            How::ByHand(kind) => Arc::new(Direct::new(self.hands.clone().expect("opened for this variant"), kind)),
            How::Handfast(setup, kind) => Arc::new(Bridged::new(self.bridges[&setup].clone(), kind)),
        }
    }

    /// Ends every session. Nobody works any more.
    pub async fn close(self) {
        for bridge in self.bridges.into_values() {
            bridge.close().await.expect("nothing is left to do");
        }
        if let Some(hands) = self.hands {
            Arc::into_inner(hands).expect("nobody works with them any more").close().await;
        }
    }
}
