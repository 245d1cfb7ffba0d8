//! Sizes in the notation of IOzone: `k`, `m` and `g` are powers of 1,024.

use crate::args;

/// Parses a number of bytes. A plain number is refused: it means kB in IOzone and bytes elsewhere.
pub(super) fn size(text: &str) -> Result<u64, String> {
    if !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit()) {
        return Err(format!("\"{text}\" has no unit; write {text}k or {text}KiB"));
    }
    let units = [('k', 10), ('m', 20), ('g', 30)];
    let bytes = units.into_iter().find_map(|(unit, shift)| {
        let number = text.strip_suffix([unit, unit.to_ascii_uppercase()])?;
        number.parse::<u64>().ok()?.checked_mul(1 << shift)
    });
    bytes.map_or_else(|| args::bytes(text), Ok)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn letters_are_powers_of_1024_and_plain_numbers_are_refused() {
        assert_eq!((size("64k"), size("2M"), size("1g")), (Ok(65_536), Ok(2 << 20), Ok(1 << 30)));
        assert_eq!((size("64KiB"), size("1.5MiB")), (Ok(65_536), Ok(3 << 19)));
        assert_eq!(size("512").unwrap_err(), "\"512\" has no unit; write 512k or 512KiB");
        for wrong in ["", "k", "-1k", "99999999999999999999g", "much"] {
            assert!(size(wrong).is_err(), "{wrong}");
        }
    }
}
