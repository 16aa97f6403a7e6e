//! The program as people and scripts run it.

mod bench;
mod dead;
mod enqueue;
mod help;
mod import;
mod jobs;
mod mistakes;
mod operations;
mod pipe;
mod program;
mod queues;
