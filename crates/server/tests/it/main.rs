//! A server in the process of its test: configuration, start, requests, changes, stop.

mod life;
