//! The recovery tool as a black box: the real program, run against real servers after real crashes, judged by its
//! exit code, its output, and what the databases hold afterwards.

mod by_hand;
mod captures;
mod configuration;
mod crashes;
mod demo;
mod doctor;
mod explain;
mod golden;
mod living;
mod manual;
mod monitoring;
mod refusals;
mod runbook;
mod stage;
mod watch;
