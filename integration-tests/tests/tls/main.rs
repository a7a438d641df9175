//! Encrypted connections, sockets and passwords, on servers that are set up for them with certificates made here.

mod authority;
mod certificates;
mod passwords;
mod secrets;
mod stage;
mod work;
