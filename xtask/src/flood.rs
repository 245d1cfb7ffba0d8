//! A lean NBD client: 4 KiB requests at random offsets, with a fixed number in flight. One receive
//! takes all replies that have arrived, and one send carries as many new requests, since fio's
//! overhead per request would limit the rate of a fast server.

use std::path::Path;
use std::time::{Duration, Instant};

use anyhow::{Result, ensure};

use crate::fio::LoadResult;
use crate::nbd::{Client, Command, REPLY_BYTES, reply, request};
use crate::stats::to_f64;

const BLOCK_BYTES: usize = 4096;
const BUFFER_BYTES: usize = 1 << 20;

/// Keeps `depth` reads or writes in flight for `seconds`.
pub(crate) fn run(
    socket: &Path,
    command: Command,
    depth: usize,
    seconds: u64,
) -> Result<LoadResult> {
    let mut client = Client::connect(socket, "")?;
    let blocks = usize::try_from(client.bytes())? / BLOCK_BYTES;
    let is_read = command == Command::Read;
    let answer_bytes = REPLY_BYTES + if is_read { BLOCK_BYTES } else { 0 };
    let (data, mut random) = (vec![0xa5; BLOCK_BYTES], fastrand::Rng::with_seed(seconds));
    let mut put_request = |out: &mut Vec<u8>, handle: usize| {
        let offset = (random.usize(..blocks) * BLOCK_BYTES) as u64;
        out.extend(request(command, handle as u64, offset, 4096));
        out.extend_from_slice(if is_read { &[] } else { &data });
    };
    let (mut out, mut in_flight) = (Vec::new(), vec![true; depth]);
    let begun = Instant::now();
    (0..depth).for_each(|handle| put_request(&mut out, handle));
    let (mut buffer, mut filled, mut requests) = (vec![0; BUFFER_BYTES], 0, 0);
    let mut left = depth;
    while left > 0 {
        client.send(&out)?;
        filled += client.receive_some(&mut buffer[filled..])?;
        let whole = filled / answer_bytes * answer_bytes;
        let goes_on = begun.elapsed() < Duration::from_secs(seconds);
        out.clear();
        for answer in buffer[..whole].chunks_exact(answer_bytes) {
            let (handle, error) = reply(answer)?;
            ensure!(error == 0, "a request failed with error {error}");
            let handle = usize::try_from(handle)?;
            let is_known = in_flight.get_mut(handle).is_some_and(std::mem::take);
            ensure!(is_known, "a reply to an unknown request");
            requests += 1;
            if goes_on {
                put_request(&mut out, handle);
                in_flight[handle] = true;
            } else {
                left -= 1;
            }
        }
        buffer.copy_within(whole..filled, 0);
        filled -= whole;
    }
    let per_s = to_f64(requests) / begun.elapsed().as_secs_f64();
    Ok(LoadResult { requests, per_s, bytes: requests * BLOCK_BYTES as u64, p999_ms: 0.0 })
}
