//! A real server and real connections, over loopback.

mod chunks;
mod files;
mod harness;
mod people;
mod restart;
