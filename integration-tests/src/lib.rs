//! Handfast against real servers.
//!
//! The tests start their servers themselves, see [`servers`]. PostgreSQL and MariaDB are required. MySQL is required
//! where `CI=true`; elsewhere a test that needs it says loudly that it was skipped.
//!
//! Tests that run once for each server are written with [`each_server!`], tests over two databases with
//! [`each_pair!`]: they end in `::postgres`, `::mariadb`, `::mysql`, `::postgres_mariadb` or `::postgres_mysql`, by
//! which `scripts/test` counts what ran where.

pub mod application;
pub mod conformance;
pub mod proxy;
pub mod servers;
#[cfg(feature = "torture")]
pub mod soak;
pub mod torture;
pub mod world;

/// One test for each server: `each_server! { async fn name(flavor) { .. } }`, with [`Flavor`](servers::Flavor).
#[macro_export]
macro_rules! each_server {
    ($($(#[$meta:meta])* async fn $name:ident($flavor:ident) $body:block)*) => {$(
        mod $name {
            #[allow(unused_imports)]
            use super::*;

            $(#[$meta])*
            async fn run($flavor: $crate::servers::Flavor) $body

            $crate::test_with_servers! { postgres: run(Postgres) }
            $crate::test_with_servers! { mariadb: run(MariaDb) }
            $crate::test_with_servers! { mysql: run(MySql) }
        }
    )*};
}

/// One test for MariaDB and one for MySQL: `each_mysql! { async fn name(flavor) { .. } }`.
#[macro_export]
macro_rules! each_mysql {
    ($($(#[$meta:meta])* async fn $name:ident($flavor:ident) $body:block)*) => {$(
        mod $name {
            #[allow(unused_imports)]
            use super::*;

            $(#[$meta])*
            async fn run($flavor: $crate::servers::Flavor) $body

            $crate::test_with_servers! { mariadb: run(MariaDb) }
            $crate::test_with_servers! { mysql: run(MySql) }
        }
    )*};
}

/// One test over PostgreSQL and MariaDB, one over PostgreSQL and MySQL:
/// `each_pair! { async fn name(other) { .. } }`, where `other` is the second's [`Flavor`](servers::Flavor).
#[macro_export]
macro_rules! each_pair {
    ($($(#[$meta:meta])* async fn $name:ident($flavor:ident) $body:block)*) => {$(
        mod $name {
            #[allow(unused_imports)]
            use super::*;

            $(#[$meta])*
            async fn run($flavor: $crate::servers::Flavor) $body

            $crate::test_with_servers! { postgres_mariadb: run(MariaDb) }
            $crate::test_with_servers! { postgres_mysql: run(MySql) }
        }
    )*};
}

/// One test function of the macros above.
#[doc(hidden)]
#[macro_export]
macro_rules! test_with_servers {
    ($name:ident: $run:ident($flavor:ident)) => {
        #[test]
        fn $name() {
            let flavor = $crate::servers::Flavor::$flavor;
            if $crate::servers::is_available(flavor) {
                $crate::servers::runtime().block_on($run(flavor));
            }
        }
    };
}

/// The guide's page whose examples need what users bring themselves: compiled like the others, which the library has.
#[cfg(doctest)]
#[doc = include_str!("../../docs/guide/observability.md")]
mod observability {}
