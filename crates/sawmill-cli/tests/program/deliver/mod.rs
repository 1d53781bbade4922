//! `sawmill deliver` against real servers: behaviour G19.

#![cfg(feature = "deliver")]
#![allow(clippy::disallowed_methods, reason = "these tests run in real time")]

mod authority;
mod email;
mod forward;
mod smtp;
mod usage;
mod web;
mod webhook;
