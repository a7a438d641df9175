//! Prepared branches of other programs, which are there all the time and stay.

use crate::servers::Flavor;
use crate::world::Side;
use handfast::id::{BranchId, hex};

/// Ids that look like ours, more and less: another program's, one of another node, one of a client's own node and of an
/// opening that its journal never made, and one that only begins like ours.
const NAMES: [&str; 4] = [
    "somebody-else",
    "hf1.stranger.9f3c2a7b11d0e842.1042.0.1",
    "hf1.soak-0.9f3c2a7b11d0e842.7.1.0",
    "hf1.soak-1.not-an-id",
];

/// Prepares them; each has a row of its own.
///
/// # Panics
/// When the server refuses.
pub async fn prepare(side: &Side) {
    side.query("CREATE TABLE elsewhere (n INT PRIMARY KEY)").await;
    for (n, name) in NAMES.iter().enumerate() {
        let work = format!("INSERT INTO elsewhere VALUES ({n})");
        let statements = match side.flavor() {
            Flavor::Postgres => format!("BEGIN; {work}; PREPARE TRANSACTION '{name}'"),
            Flavor::MariaDb | Flavor::MySql => {
                let xid = xid(name);
                format!("XA START {xid}; {work}; XA END {xid}; XA PREPARE {xid}")
            }
        };
        side.query(&statements).await;
    }
}

fn xid(name: &str) -> String {
    match name.parse::<BranchId>() {
        Ok(branch) => branch.xid_sql(),
        Err(_) => format!("X'{}',X'',1", hex(name.as_bytes())),
    }
}

/// Everything that is prepared on a server, whoever's it is, in order.
pub async fn all_prepared(side: &Side) -> Vec<String> {
    let list = match side.flavor() {
        Flavor::Postgres => "SELECT gid FROM pg_prepared_xacts",
        Flavor::MariaDb => "XA RECOVER",
        Flavor::MySql => "XA RECOVER CONVERT XID",
    };
    let rows = side.query(list).await.into_iter();
    let mut names: Vec<String> = rows.map(|row| row.into_iter().flatten().collect::<Vec<_>>().join(" ")).collect();
    names.sort();
    names
}
