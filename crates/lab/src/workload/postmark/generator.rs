//! The random numbers of PostMark: MT19937 with the seeding of 1999.
//!
//! Twist and tempering are those of Matsumoto and Nishimura (1998). The seeding is the one that
//! they published on 1999-10-28 and replaced in 2002: two steps of a linear generator for each
//! word, of which the upper halves are taken. Invariant: the same seed gives the same numbers as
//! every PostMark since 1.5, so counts can be compared over 25 years. Numbers have no unit.

const WORDS: usize = 624;
const DISTANCE: usize = 397;
const TWIST: u32 = 0x9908_b0df;
const UPPER: u32 = 0x8000_0000;
/// Multiplier of the linear generator that makes the initial state.
const SEEDING: u32 = 69_069;

/// The generator, and the number of values drawn from it.
#[derive(Clone, Debug)]
pub(super) struct Generator {
    state: Box<[u32; WORDS]>,
    next: usize,
    pub(super) draws: u64,
}

impl Generator {
    /// Returns the stream for `seed`.
    pub(super) fn from_seed(seed: u32) -> Self {
        let step = |value: u32| value.wrapping_mul(SEEDING).wrapping_add(1);
        let mut value = seed;
        let state = std::array::from_fn(|_| {
            let second = step(value);
            let word = (value & 0xffff_0000) | (second >> 16);
            value = step(second);
            word
        });
        Generator { state: Box::new(state), next: WORDS, draws: 0 }
    }

    /// Returns the next 32 bits.
    pub(super) fn word(&mut self) -> u32 {
        if self.next == WORDS {
            self.twist();
        }
        let mut word = self.state[self.next];
        self.next += 1;
        self.draws += 1;
        word ^= word >> 11;
        word ^= (word << 7) & 0x9d2c_5680;
        word ^= (word << 15) & 0xefc6_0000;
        word ^ (word >> 18)
    }

    /// Returns a number below `end`, by a plain remainder; 0, without a draw, if `end` is 0.
    pub(super) fn below(&mut self, end: u32) -> u32 {
        if end == 0 { 0 } else { self.word() % end }
    }

    /// Puts the last number back, so that it is drawn again. At least one must have been drawn
    /// since the last call.
    pub(super) fn put_back(&mut self) {
        assert!(self.next > 0, "a number to put back");
        self.next -= 1;
        self.draws -= 1;
    }

    fn twist(&mut self) {
        for at in 0..WORDS {
            let joined = (self.state[at] & UPPER) | (self.state[(at + 1) % WORDS] & !UPPER);
            let odd = if joined & 1 == 1 { TWIST } else { 0 };
            self.state[at] = self.state[(at + DISTANCE) % WORDS] ^ (joined >> 1) ^ odd;
        }
        self.next = 0;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_data_of_seed_42_begins_as_that_of_the_original() {
        let mut generator = Generator::from_seed(42);
        let drawn = (0..40).map(|_| u8::try_from(32 + generator.below(95)).unwrap());
        let text = String::from_utf8(drawn.collect()).unwrap();
        assert_eq!(text, "LeZebJ6S5~qPv$C$py}hmKd H58nM4~.}pv}Q7wS");
        assert_eq!(generator.draws, 40);
    }

    #[test]
    fn what_is_put_back_is_drawn_again() {
        let [mut plain, mut hesitant] = [7, 7].map(Generator::from_seed);
        for _ in 0..2 * WORDS + 3 {
            hesitant.word();
            hesitant.put_back();
            assert_eq!(hesitant.word(), plain.word());
        }
        assert_eq!(hesitant.draws, plain.draws);
    }

    #[test]
    fn nothing_is_drawn_for_an_empty_range() {
        let mut generator = Generator::from_seed(7);
        assert_eq!(generator.below(0), 0);
        assert_eq!(generator.draws, 0);
        assert_eq!(generator.below(1), 0);
        assert_eq!(generator.draws, 1);
    }
}
