//! `handfast explain`: all about one transaction, in each situation in which somebody will ask.

use crate::stage::{Stage, killed_at};
use integration_tests::each_pair;

each_pair! {
    async fn scratch(other) {
        let stage = Stage::new(other).await;
        let id = killed_at(&stage, Some("COMMIT PREPARED"), None).await;
        for command in [format!("explain {id}"), "list".into(), format!("--format json explain {id}"), format!("resolve {id} --commit --reason x"), format!("forget {id} --yes --reason x"), "adopt orders --reason x".into(), "drain --wait 1s".into(), "recover".into(), format!("explain {id}"), "list --older-than 1s".into(), "drain".into()] {
            println!("$ handfast {command}\n{}", stage.tool(&command).await);
        }
    }
}
