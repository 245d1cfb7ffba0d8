//! The layout of a disk: the track and the angle of each byte.
//!
//! The disk is one spiral of tracks in zones. Outer tracks hold more bytes, so the rate falls from
//! the first byte to the last. The track size includes head switches within a cylinder and the skew
//! between tracks, so it corresponds to the sustained rate; a sequential transfer never waits
//! between tracks. Track 0 is the outermost. Angles are nanoseconds of rotation, from 0 to one
//! revolution.

use larder_core::clock::Nanos;
use larder_core::units::as_f64;
use larder_schema::as_u64;

/// Zones from the outside to the inside; drives have 15 to 30.
const ZONES: u64 = 16;

/// Largest rounding error of an angle that does not count as missed; 512 bytes take 3,400 ns.
const ROUNDING: Nanos = 1_000;

/// The positions of all bytes of a disk.
#[derive(Clone, Debug)]
pub(super) struct Layout {
    zones: Vec<Zone>,
    /// Nanoseconds of one revolution.
    pub(super) revolution: Nanos,
    /// Nanoseconds by which the platter is ahead of the clock; below a revolution.
    pub(super) phase: Nanos,
    /// Tracks from the first to the last byte.
    pub(super) tracks: u64,
    /// Zones for each byte; about the same everywhere.
    zones_per_byte: f64,
}

#[derive(Clone, Copy, Debug)]
struct Zone {
    first_byte: u64,
    first_track: u64,
    track_bytes: u64,
}

/// A position on the platter.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct PlatterPosition {
    pub(super) track: u64,
    /// Bytes of the track before the position, and of the whole track.
    part: (u64, u64),
}

impl Layout {
    /// Creates the layout of `length` bytes on a disk that turns in `revolution` nanoseconds, with
    /// `outer` bytes per second at the first byte and `inner` at the last. A track has whole
    /// sectors of `sector` bytes.
    pub(super) fn new(
        length: u64,
        revolution: Nanos,
        (outer, inner): (u64, u64),
        sector: u64,
    ) -> Self {
        assert!(outer >= inner && inner > 0 && revolution > 0, "a disk that turns");
        let per_track = |rate: u64| {
            let bytes = u128::from(rate) * u128::from(revolution) / 1_000_000_000;
            let sectors = bytes / u128::from(sector);
            u64::try_from(sectors).expect("a track of sane size").max(1) * sector
        };
        let mut zones: Vec<Zone> = Vec::new();
        let (mut first_byte, mut first_track) = (0, 0);
        for index in 0..ZONES {
            let rate = outer - (outer - inner) * index / (ZONES - 1);
            let track_bytes = per_track(rate);
            zones.push(Zone { first_byte, first_track, track_bytes });
            // Zones have whole tracks, so that the angle is continuous at the beginning of the next
            // zone.
            let tracks = (length / ZONES).div_ceil(track_bytes).max(1);
            first_byte += tracks * track_bytes;
            first_track += tracks;
        }
        let zones_per_byte = as_f64(ZONES) / as_f64(first_byte);
        let mut layout = Layout { zones, revolution, phase: 0, tracks: 0, zones_per_byte };
        layout.tracks = layout.position(length.max(1) - 1).track + 1;
        layout
    }

    /// Returns the position of `byte`.
    pub(super) fn position(&self, byte: u64) -> PlatterPosition {
        let zone = self.zone(byte);
        let offset_in_zone = byte - zone.first_byte;
        PlatterPosition {
            track: zone.first_track + offset_in_zone / zone.track_bytes,
            part: (offset_in_zone % zone.track_bytes, zone.track_bytes),
        }
    }

    /// Returns the nanoseconds of rotation from the index mark to a position.
    fn angle(&self, position: PlatterPosition) -> Nanos {
        scale(position.part.0, self.revolution, position.part.1)
    }

    /// Returns the nanoseconds from `now` until a position of the track is under the head.
    pub(super) fn wait(&self, now: Nanos, position: PlatterPosition) -> Nanos {
        let passed = (now + self.phase) % self.revolution;
        let angle = self.angle(position);
        let wait = if angle >= passed { angle - passed } else { angle + self.revolution - passed };
        // Angles are rounded to nanoseconds: an angle that was missed by less than the gap of a
        // sector must not cost a revolution.
        if self.revolution - wait <= ROUNDING { 0 } else { wait }
    }

    /// Returns the nanoseconds in which `len` bytes from `byte` on pass under the head.
    pub(super) fn transfer(&self, byte: u64, len: u64) -> Nanos {
        scale(len, self.revolution, self.zone(byte).track_bytes)
    }

    /// Returns the number of bytes from `byte` on that pass under the head in `time` nanoseconds.
    pub(super) fn passing(&self, byte: u64, time: Nanos) -> u64 {
        scale(time, self.zone(byte).track_bytes, self.revolution)
    }

    fn zone(&self, byte: u64) -> &Zone {
        // The zones differ by less than a track.
        let guess = usize::try_from(as_u64(as_f64(byte) * self.zones_per_byte));
        let mut index = guess.map_or(self.zones.len() - 1, |it| it.min(self.zones.len() - 1));
        while self.zones[index].first_byte > byte {
            index -= 1;
        }
        while self.zones.get(index + 1).is_some_and(|next| next.first_byte <= byte) {
            index += 1;
        }
        &self.zones[index]
    }
}

/// Returns `value * numerator / denominator` without intermediate overflow.
pub(super) fn scale(value: u64, numerator: u64, denominator: u64) -> u64 {
    if let Some(product) = value.checked_mul(numerator) {
        return product / denominator;
    }
    let scaled = u128::from(value) * u128::from(numerator) / u128::from(denominator);
    u64::try_from(scaled).expect("a time or a size of one disk")
}

#[cfg(test)]
mod tests {
    use super::*;

    const GIB: u64 = 1 << 30;

    fn layout() -> Layout {
        Layout::new(64 * GIB, 8_333_333, (150_000_000, 75_000_000), 4096)
    }

    #[test]
    fn tracks_grow_inwards_and_angles_stay_inside_one_revolution() {
        let layout = layout();
        let positions: Vec<PlatterPosition> =
            (0..64 * 64).map(|index| layout.position(index * GIB / 64)).collect();
        assert!(positions.is_sorted_by_key(|position| position.track));
        assert!(positions.iter().all(|position| layout.angle(*position) < layout.revolution));
        assert_eq!(layout.position(64 * GIB - 1).track + 1, layout.tracks);
    }

    #[test]
    fn inner_bytes_pass_at_half_the_speed() {
        let layout = layout();
        let outer = layout.transfer(0, 1 << 20);
        let inner = layout.transfer(64 * GIB - (1 << 20), 1 << 20);
        assert!(inner > outer * 19 / 10 && inner < outer * 21 / 10, "{outer} ns, {inner} ns");
        assert!(layout.passing(0, outer).abs_diff(1 << 20) < 512);
    }

    #[test]
    fn every_byte_is_in_its_zone() {
        for length in [4096, 1 << 20, 64 * GIB, 1 << 50] {
            let layout = Layout::new(length, 8_333_333, (150_000_000, 75_000_000), 512);
            for (index, zone) in layout.zones.iter().enumerate() {
                let end = layout.zones.get(index + 1).map(|next| next.first_byte - 1);
                for byte in [zone.first_byte, zone.first_byte + 1].into_iter().chain(end) {
                    assert_eq!(layout.zone(byte).first_byte, zone.first_byte, "{length}: {byte}");
                }
            }
            assert_eq!(layout.zone(u64::MAX).first_byte, layout.zones[15].first_byte);
        }
    }

    #[test]
    fn a_disk_smaller_than_its_zones_still_has_places() {
        let layout = Layout::new(4096, 8_333_333, (150_000_000, 75_000_000), 4096);
        assert_eq!(layout.tracks, 1);
        assert_eq!((layout.position(0).track, layout.angle(layout.position(0))), (0, 0));
    }
}
