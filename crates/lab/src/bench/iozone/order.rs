//! The order in which the tests go through the records of a file: exactly the orders of IOzone
//! 3.487, so that results are comparable.

use rand_mt::Mt64;

/// The stride of the stride test in records by default (`-j`).
pub const STRIDE: u64 = 17;
/// The key of the generator's reference program.
const KEY: [u64; 4] = [0x12345, 0x23456, 0x34567, 0x45678];

/// Returns all of `count` records, each once, in the order of the random tests, which is always the
/// same.
///
/// Element i of the list is exchanged with a random one, for each i: not an unbiased shuffle, but
/// the one of IOzone.
pub(super) fn random(count: u64) -> Vec<u64> {
    let mut generator = Mt64::new_with_key(KEY);
    let mut list: Vec<u64> = (0..count).collect();
    for i in 0..list.len() {
        let other = usize::try_from(generator.next_u64() % count).expect("an index of the list");
        list.swap(i, other);
    }
    list
}

/// Returns the records of the stride test: as many reads as there are records, though not each of
/// them.
///
/// After a read, the position is the record behind it. If another stride would come near the end, a
/// new lap begins, at the number of the lap; otherwise the next record is a stride from the last
/// one.
pub(super) fn strided(count: u64, stride: u64) -> impl Iterator<Item = u64> {
    let mut record = 0;
    let mut lap = 0;
    let mut is_first = true;
    let next = move || {
        if std::mem::take(&mut is_first) {
            return 0;
        }
        let position = record + 1;
        if position + stride >= count.saturating_sub(1) {
            lap += 1;
            record = if count <= stride { 0 } else { lap % count };
        } else {
            record = position + stride - 1;
        }
        record
    };
    std::iter::repeat_with(next).take(usize::try_from(count).expect("records of a file"))
}

/// Returns the records of a backward read.
pub(super) fn backward(count: u64) -> impl Iterator<Item = u64> {
    (0..count).rev()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_generator_is_that_of_the_reference() {
        assert_eq!(Mt64::new_with_key(KEY).next_u64(), 7_266_447_313_870_364_031);
    }

    #[test]
    fn random_orders_are_those_of_iozone() {
        assert_eq!(random(4), [0, 3, 1, 2]);
        assert_eq!(random(16), [3, 15, 8, 1, 12, 9, 7, 2, 5, 0, 6, 10, 14, 13, 4, 11]);
        assert!(random(0).is_empty());
        let mut all = random(1000);
        all.sort_unstable();
        assert!(all.into_iter().eq(0..1000), "each once");
    }

    #[test]
    fn strides_leave_out_and_repeat_what_those_of_iozone_do() {
        let order: Vec<u64> = strided(40, STRIDE).collect();
        assert_eq!(order.len(), 40);
        assert_eq!(order[..6], [0, 17, 34, 1, 18, 35]);
        let times = |record: u64| order.iter().filter(|&&other| other == record).count();
        assert_eq!([times(38), times(39), times(17), times(34)], [0, 0, 2, 2]);
        assert!(order.iter().all(|&record| record < 40));
        assert!(strided(17, STRIDE).eq(std::iter::repeat_n(0, 17)), "a small file");
        assert_eq!(strided(0, STRIDE).count(), 0);
    }

    #[test]
    fn a_backward_read_begins_with_the_last_record() {
        assert!(backward(3).eq([2, 1, 0]));
    }
}
