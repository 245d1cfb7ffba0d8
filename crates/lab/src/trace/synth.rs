//! Synthetic traces: standard access patterns of the caching literature, generated from parameters
//! and a seed.
//!
//! Invariant: the same parameters and seed give the same records on every machine. Times are
//! Poisson arrivals at the specified rate; latencies are 0, because they are unknown.

mod database;
mod zipf;

use super::{NameKind, Op, Record, Source, TraceError};
use crate::random::Random;
use database::Database;
use zipf::Zipf;

/// The access pattern.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Pattern {
    /// Pages with a Zipf distribution, hot ones scattered over the volume.
    Zipf,
    /// Every page once, in order.
    Scan,
    /// The pages in order, again and again: the worst case of LRU.
    Loop,
    /// The pages from the last to the first, again and again.
    Backward,
    /// Every eighth page in order, then the pages after those, and so on.
    Stride,
    /// Eight sequential readers, each in an eighth of the pages, again and again; interleaved at
    /// random.
    Interleave,
    /// Pages at random, with equal probability.
    Uniform,
    /// Bursts of zipf, scan and loop: 70, 20 and 10 %.
    Mix,
    /// Transactions over an index and a table, with a log, and reports that scan the table.
    Database,
    /// Bursts of zipf, of a loop over a sixteenth of the pages, and of a scan: 60, 25 and 15 %.
    Sample,
}

impl Pattern {
    /// All patterns.
    pub const ALL: [Pattern; 10] = [
        Pattern::Zipf,
        Pattern::Scan,
        Pattern::Loop,
        Pattern::Backward,
        Pattern::Stride,
        Pattern::Interleave,
        Pattern::Uniform,
        Pattern::Mix,
        Pattern::Database,
        Pattern::Sample,
    ];

    /// Returns the name on the command line.
    #[must_use]
    pub fn name(self) -> &'static str {
        const NAMES: [&str; Pattern::ALL.len()] = [
            "zipf",
            "scan",
            "loop",
            "backward",
            "stride",
            "interleave",
            "uniform",
            "mix",
            "database",
            "sample",
        ];
        NAMES[self as usize]
    }

    /// Returns the pattern with this name.
    #[must_use]
    pub fn from_name(name: &str) -> Option<Pattern> {
        Pattern::ALL.into_iter().find(|pattern| pattern.name() == name)
    }
}

/// Parameters of a synthetic trace.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct SynthOptions {
    /// The pattern.
    pub pattern: Pattern,
    /// Number of requests.
    pub requests: u64,
    /// Pages of the volume in the pattern, at least 1.
    pub pages: u64,
    /// Bytes of a page; a request is one page, except in the reports of a database. At most 16 MiB.
    pub page_bytes: u64,
    /// The exponent of the Zipf distribution, above 0.
    pub exponent: f64,
    /// The fraction of writes, 0 to 1; in a database, the fraction of transactions that write.
    pub writes: f64,
    /// Requests per second, above 0.
    pub rate: f64,
    /// Seed of the random numbers.
    pub seed: u64,
}

impl Default for SynthOptions {
    fn default() -> Self {
        SynthOptions {
            pattern: Pattern::Zipf,
            requests: 1_000_000,
            pages: 262_144,
            page_bytes: 4096,
            exponent: 1.0,
            writes: 0.3,
            rate: 1_000.0,
            seed: 1,
        }
    }
}

impl SynthOptions {
    /// The trace of `larder size --sample`: its curve has a steep, a useful and a flat region. The
    /// loop and the hottest pages make it steep, the other pages of the Zipf distribution hit more
    /// with each doubling, and no cache hits the scan.
    pub const SAMPLE: SynthOptions = SynthOptions {
        pattern: Pattern::Sample,
        requests: 100_000,
        pages: 16_384,
        page_bytes: 4096,
        exponent: 0.9,
        writes: 0.3,
        rate: 1_000.0,
        seed: 1,
    };
}

/// Readers of an interleaved pattern, and distance in pages between requests of a strided one.
const READERS: usize = 8;
const STRIDE: u64 = 8;
/// Requests of a burst of a mix or a sample.
const BURST: u64 = 64;
/// The loop of a sample has one page of this many.
const SAMPLE_LOOP_DIVISOR: u64 = 16;
/// Records of a batch.
const BATCH_RECORDS: u64 = 8192;
/// Name of the volume in all patterns except the database.
const VOLUME: &str = "synthetic";

/// A synthetic trace.
#[derive(Debug)]
pub struct Synth {
    options: SynthOptions,
    random: Random,
    pages: Pages,
    database: Database,
    time_ns: f64,
    generated: u64,
    /// Pattern of the current burst of a mix or a sample.
    burst: Pattern,
}

/// The state of the patterns.
#[derive(Debug)]
struct Pages {
    zipf: Zipf,
    count: u64,
    loop_count: u64,
    /// Coprime to the count: it scatters the ranks over the pages.
    stride: u64,
    scanned: u64,
    looped: u64,
    /// Requests of each interleaved reader so far.
    read: [u64; READERS],
}

impl Pages {
    fn new(count: u64, exponent: f64) -> Self {
        // A stride near the golden ratio moves neighbors in rank far apart.
        let mut stride = (count / 1000 * 618 + 1).max(1);
        while gcd(stride, count) != 1 {
            stride += 1;
        }
        Pages {
            zipf: Zipf::new(count, exponent),
            count,
            loop_count: count,
            stride,
            scanned: 0,
            looped: 0,
            read: [0; READERS],
        }
    }

    /// Returns a page with a Zipf distribution.
    fn hot(&mut self, random: &mut Random) -> u64 {
        let rank = self.zipf.draw(random) - 1;
        let page = u128::from(rank) * u128::from(self.stride) % u128::from(self.count);
        u64::try_from(page).expect("less than the count")
    }

    fn next(&mut self, pattern: Pattern, random: &mut Random) -> u64 {
        match pattern {
            Pattern::Scan => {
                self.scanned += 1;
                self.scanned - 1
            }
            Pattern::Loop => {
                self.looped += 1;
                (self.looped - 1) % self.loop_count
            }
            Pattern::Backward => {
                self.looped += 1;
                self.count - 1 - (self.looped - 1) % self.count
            }
            Pattern::Stride => {
                // The pages form a table with this number of columns, which is read one column
                // after the other.
                let rows = self.count.div_ceil(STRIDE);
                let step = self.looped % (rows * STRIDE);
                self.looped += 1;
                (step % rows * STRIDE + step / rows) % self.count
            }
            Pattern::Interleave => {
                let reader = random.below(READERS as u64);
                let part = (self.count / READERS as u64).max(1);
                let read = &mut self.read[usize::try_from(reader).expect("few")];
                *read += 1;
                (reader * part + (*read - 1) % part) % self.count
            }
            Pattern::Uniform => random.below(self.count),
            _ => self.hot(random),
        }
    }
}

fn gcd(a: u64, b: u64) -> u64 {
    if b == 0 { a } else { gcd(b, a % b) }
}

impl Synth {
    /// Creates a trace.
    ///
    /// # Errors
    /// An option is out of range; the error is a sentence.
    pub fn new(options: SynthOptions) -> Result<Self, String> {
        let SynthOptions { requests, pages, page_bytes, exponent, writes, rate, .. } = options;
        let rules = [
            (pages > 0, "a trace needs at least one page"),
            ((512..=16 << 20).contains(&page_bytes), "a page has 512 bytes to 16 MiB"),
            // A scan always moves to new pages, and the areas of a mix are separate.
            (
                pages.checked_add(requests).is_some_and(|all| all < 1 << 38),
                "pages and requests are fewer than 2^38",
            ),
            (exponent > 0.0 && exponent <= 10.0, "the exponent is above 0, up to 10"),
            ((0.0..=1.0).contains(&writes), "the share of writes is 0 to 1"),
            ((0.001..=1e9).contains(&rate), "the rate is 0.001 to 1e9 requests/s"),
        ];
        if let Some((_, rule)) = rules.into_iter().find(|(is_kept, _)| !is_kept) {
            return Err(rule.to_owned());
        }
        let mut state = Pages::new(pages, exponent);
        if options.pattern == Pattern::Sample {
            state.loop_count = pages.div_ceil(SAMPLE_LOOP_DIVISOR);
        }
        Ok(Synth {
            options,
            random: Random::from_seed(options.seed),
            pages: state,
            database: Database::new(pages, page_bytes),
            time_ns: 0.0,
            generated: 0,
            burst: Pattern::Zipf,
        })
    }

    fn record(&mut self) -> Record {
        let mut record = match self.options.pattern {
            Pattern::Database => {
                let writes = self.options.writes;
                self.database.next(&mut self.random, &mut |random| self.pages.hot(random), writes)
            }
            pattern => self.page(pattern),
        };
        if self.generated > 0 {
            // The argument of ln is at least 2^-53.
            let gap = -zipf::ln(1.0 - self.random.unit()) / self.options.rate;
            self.time_ns += gap * 1e9;
        }
        #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "saturates")]
        let time_ns = self.time_ns as u64;
        record.time_ns = time_ns;
        self.generated += 1;
        record
    }

    /// Returns a request for one page.
    fn page(&mut self, pattern: Pattern) -> Record {
        let has_bursts = matches!(pattern, Pattern::Mix | Pattern::Sample);
        if has_bursts && self.generated.is_multiple_of(BURST) {
            let (parts, zipf, scan) =
                if pattern == Pattern::Mix { (10, 7, 2) } else { (20, 12, 3) };
            let part = self.random.below(parts);
            self.burst = match part {
                _ if part < zipf => Pattern::Zipf,
                _ if part < zipf + scan => Pattern::Scan,
                _ => Pattern::Loop,
            };
        }
        let current = if has_bursts { self.burst } else { pattern };
        let mut page = self.pages.next(current, &mut self.random);
        if has_bursts {
            // Three areas: hot pages, loop, scan.
            page += match current {
                Pattern::Loop => self.pages.count,
                Pattern::Scan => 2 * self.pages.count,
                _ => 0,
            };
        }
        let write = self.random.unit() < self.options.writes;
        Record {
            offset: page * self.options.page_bytes,
            len: self.options.page_bytes,
            op: if write { Op::Write } else { Op::Read },
            ..Record::default()
        }
    }
}

impl Source for Synth {
    fn read_batch(&mut self, batch: &mut Vec<Record>) -> Result<(), TraceError> {
        for _ in 0..BATCH_RECORDS.min(self.options.requests - self.generated) {
            let record = self.record();
            batch.push(record);
        }
        Ok(())
    }

    fn name(&self, kind: NameKind, number: u32) -> Option<&str> {
        match (self.options.pattern, kind, number) {
            (Pattern::Database, ..) => database::name(kind, number),
            (_, NameKind::Volume, 0) => Some(VOLUME),
            _ => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::trace::tests::drain;

    fn make(options: SynthOptions) -> Vec<Record> {
        drain(&mut Synth::new(options).unwrap()).unwrap()
    }

    #[test]
    fn one_seed_gives_one_trace() {
        for pattern in Pattern::ALL {
            let options = SynthOptions { pattern, requests: 20_000, ..SynthOptions::default() };
            let records = make(options);
            assert_eq!(records.len(), 20_000, "{pattern:?}");
            assert_eq!(records, make(options));
            assert_ne!(records, make(SynthOptions { seed: 2, ..options }));
            assert!(records.is_sorted_by_key(|record| record.time_ns));
            assert_eq!(Pattern::from_name(pattern.name()), Some(pattern));
        }
    }

    #[test]
    fn patterns_are_what_they_are_called() {
        let base = SynthOptions { requests: 3_000, pages: 1_000, ..SynthOptions::default() };
        let different = |pattern| {
            let pages: std::collections::HashSet<u64> =
                make(SynthOptions { pattern, ..base }).iter().map(|r| r.offset).collect();
            pages.len()
        };
        assert_eq!(different(Pattern::Scan), 3_000);
        assert_eq!(different(Pattern::Loop), 1_000);
        assert!(different(Pattern::Zipf) < 800);
        let steps = |pattern, step: i64| {
            let options = SynthOptions { writes: 0.0, ..base };
            let records = make(SynthOptions { pattern, ..options });
            let starts = records.iter().map(|r| i64::try_from(r.offset / 4096).unwrap());
            let starts: Vec<i64> = starts.collect();
            starts.windows(2).filter(|pair| pair[1] - pair[0] == step).count()
        };
        assert!(steps(Pattern::Backward, -1) > 2_990);
        assert!(steps(Pattern::Stride, 8) > 2_900);
        assert!((200..600).contains(&steps(Pattern::Interleave, 1)), "one in eight goes on");
        assert!(steps(Pattern::Uniform, 1) < 20);
        assert_eq!(different(Pattern::Stride), 1_000);
        let records = make(SynthOptions { pattern: Pattern::Sample, ..base });
        let looped = |r: &&Record| (1_000..2_000).contains(&(r.offset / 4096));
        let pages: std::collections::HashSet<u64> =
            records.iter().filter(looped).map(|r| r.offset).collect();
        assert_eq!(pages.len(), 63, "a sixteenth");
        let writes = make(base).iter().filter(|r| r.op == Op::Write).count();
        assert!((800..1_000).contains(&writes), "{writes} of 3,000 are writes");
        let last = make(base)[2_999].time_ns;
        assert!((2_700_000_000..3_300_000_000).contains(&last), "3,000 at 1,000/s: {last} ns");
    }

    #[test]
    fn the_sample_is_the_same_everywhere() {
        let records = make(SynthOptions::SAMPLE);
        // FNV-1a over times, offsets and operations.
        let mut hash = 0xcbf2_9ce4_8422_2325_u64;
        for record in &records {
            for value in [record.time_ns, record.offset, record.op as u64] {
                hash = (hash ^ value).wrapping_mul(0x0100_0000_01b3);
            }
        }
        assert_eq!((records.len(), hash), (100_000, 0x3e45_7fbf_bd16_9f84));
    }

    #[test]
    fn options_out_of_range_are_refused() {
        let base = SynthOptions::default();
        for error in [
            SynthOptions { pages: 0, ..base },
            SynthOptions { page_bytes: 1, ..base },
            SynthOptions { requests: u64::MAX, ..base },
            SynthOptions { exponent: 0.0, ..base },
            SynthOptions { exponent: f64::NAN, ..base },
            SynthOptions { writes: 1.5, ..base },
            SynthOptions { rate: 0.0, ..base },
        ] {
            assert!(Synth::new(error).is_err(), "{error:?}");
        }
    }
}
