//! The kernel's BTF: offsets of structure members, and numbers of types and enumerators.
//!
//! The parser reads the BPF type format (Documentation/bpf/btf.rst) once from front to back.
//! Invariants: malformed data is an error, never a guess; offsets are bytes, and a bit field counts
//! as not found.

pub(crate) const BTF_PATH: &str = "/sys/kernel/btf/vmlinux";

const MAGIC: u16 = 0xeb9f;
/// Bytes of the header that the parser uses.
const HEADER: usize = 24;

const ARRAY: u32 = 3;
const STRUCT: u32 = 4;
const UNION: u32 = 5;
const ENUM: u32 = 6;
const TYPEDEF: u32 = 8;

/// An error reading kernel types. Every message can follow "cannot".
#[derive(Debug, thiserror::Error)]
pub(crate) enum TypesError {
    #[error("read {BTF_PATH}: {0}")]
    Io(#[from] std::io::Error),
    #[error("understand {BTF_PATH} at byte {0}")]
    Malformed(usize),
    #[error("find {0} among the types of this kernel")]
    NotFound(String),
}

#[derive(Debug)]
pub(crate) struct Types {
    bytes: Vec<u8>,
    strings: usize,
    /// Byte offset of each type; entry 0 is unused.
    type_offsets: Vec<usize>,
}

#[derive(Clone, Copy, Debug)]
struct Type {
    position: usize,
    kind: u32,
    count: usize,
    /// True if member offsets also hold the member's size in bits.
    bits: bool,
}

impl Types {
    /// Reads the types of the running kernel.
    ///
    /// # Errors
    /// The kernel was built without BTF, or the data is malformed.
    pub(crate) fn read() -> Result<Types, TypesError> {
        Types::parse(std::fs::read(BTF_PATH)?)
    }

    fn parse(bytes: Vec<u8>) -> Result<Types, TypesError> {
        let mut types = Types { bytes, strings: 0, type_offsets: vec![0] };
        let magic = types.bytes.get(..2).ok_or(TypesError::Malformed(0))?;
        if magic != MAGIC.to_le_bytes() {
            return Err(TypesError::Malformed(0));
        }
        let header = types.size(4)?.max(HEADER);
        let mut position = header.saturating_add(types.size(8)?);
        let end = position.saturating_add(types.size(12)?);
        types.strings = header.saturating_add(types.size(16)?);
        while position < end {
            types.type_offsets.push(position);
            let found = types.at(position)?;
            position += 12 + payload_bytes(found).ok_or(TypesError::Malformed(position))?;
        }
        Ok(types)
    }

    fn word(&self, position: usize) -> Result<u32, TypesError> {
        let bytes = self.bytes.get(position..position.saturating_add(4));
        let bytes = bytes.and_then(|bytes| bytes.try_into().ok());
        bytes.map(u32::from_le_bytes).ok_or(TypesError::Malformed(position))
    }

    fn size(&self, position: usize) -> Result<usize, TypesError> {
        usize::try_from(self.word(position)?).ok().ok_or(TypesError::Malformed(position))
    }

    fn at(&self, position: usize) -> Result<Type, TypesError> {
        let info = self.word(position + 4)?;
        let count = usize::try_from(info & 0xffff).ok().ok_or(TypesError::Malformed(position))?;
        Ok(Type { position, kind: info >> 24 & 0x1f, count, bits: info >> 31 == 1 })
    }

    /// Returns true if the word at an offset refers to the string `name`.
    fn is_named(&self, position: usize, name: &str) -> bool {
        let Ok(offset) = self.size(position) else { return false };
        let text = self.bytes.get(self.strings.saturating_add(offset)..).unwrap_or_default();
        text.strip_prefix(name.as_bytes()).is_some_and(|rest| rest.first() == Some(&0))
    }

    fn find(&self, kinds: &[u32], name: &str) -> Option<(u32, Type)> {
        let mut all = (1_u32..).zip(self.type_offsets.iter().skip(1));
        all.find_map(|(number, &position)| {
            let found = self.at(position).ok()?;
            (kinds.contains(&found.kind) && self.is_named(position, name))
                .then_some((number, found))
        })
    }

    /// Returns the number of a typedef.
    pub(crate) fn typedef(&self, name: &str) -> Result<u32, TypesError> {
        let found = self.find(&[TYPEDEF], name);
        found.map(|(number, _)| number).ok_or_else(|| TypesError::NotFound(name.to_owned()))
    }

    /// Returns the byte offset of a structure member, including members of nested anonymous
    /// structures.
    pub(crate) fn offset(&self, of: &str, member: &str) -> Result<i16, TypesError> {
        let not_found = || TypesError::NotFound(format!("{member} of struct {of}"));
        let (_, found) = self.find(&[STRUCT], of).ok_or_else(not_found)?;
        let bits = self.member(found, member, 0)?.ok_or_else(not_found)?;
        if bits % 8 != 0 {
            return Err(not_found());
        }
        i16::try_from(bits / 8).ok().ok_or_else(not_found)
    }

    /// Returns the bit offset of a member.
    fn member(&self, of: Type, name: &str, depth: u32) -> Result<Option<u32>, TypesError> {
        for number in 0..of.count {
            let position = of.position + 12 + 12 * number;
            let word = self.word(position + 8)?;
            let bits = if of.bits { word & 0xff_ffff } else { word };
            if self.is_named(position, name) {
                return Ok(Some(bits));
            }
            if self.word(position)? != 0 || depth > 8 {
                continue;
            }
            let inner = self
                .type_offsets
                .get(self.size(position + 4)?)
                .ok_or(TypesError::Malformed(position))?;
            let inner = self.at(*inner)?;
            if matches!(inner.kind, STRUCT | UNION)
                && let Some(more) = self.member(inner, name, depth + 1)?
            {
                return Ok(Some(bits + more));
            }
        }
        Ok(None)
    }

    /// Returns the value of an enumerator.
    pub(crate) fn enumerator(&self, of: &str, name: &str) -> Result<u32, TypesError> {
        let not_found = || TypesError::NotFound(format!("{name} of enum {of}"));
        let (_, found) = self.find(&[ENUM], of).ok_or_else(not_found)?;
        let mut positions = (0..found.count).map(|number| found.position + 12 + 8 * number);
        let position =
            positions.find(|&position| self.is_named(position, name)).ok_or_else(not_found)?;
        self.word(position + 4)
    }
}

/// Returns the number of bytes that follow the header of a type.
fn payload_bytes(of: Type) -> Option<usize> {
    Some(match of.kind {
        2 | 7..=12 | 16 | 18 => 0,
        1 | 14 | 17 => 4,
        ARRAY => 12,
        STRUCT | UNION | 15 | 19 => 12 * of.count,
        ENUM | 13 => 8 * of.count,
        _ => return None,
    })
}

/// Returns BTF for a map type that requires it, with keys of 32 bits and values of `words` 64-bit
/// words, and the type numbers of key and value.
pub(crate) fn map_types(words: u32) -> (Vec<u8>, u32, u32) {
    let strings = b"\0u32\0u64\0";
    let int = |name: u32, bytes: u32| [name, 1 << 24, bytes, bytes * 8];
    let mut types: Vec<u32> = Vec::new();
    types.extend(int(1, 4));
    types.extend(int(5, 8));
    types.extend([0, ARRAY << 24, 0, 2, 1, words]);
    let types: Vec<u8> = types.into_iter().flat_map(u32::to_le_bytes).collect();
    let length = |bytes: &[u8]| u32::try_from(bytes.len()).expect("a few bytes");
    let header = [24, 0, length(&types), length(&types), length(strings)];
    let mut all = MAGIC.to_le_bytes().to_vec();
    all.extend([1, 0]);
    all.extend(header.into_iter().flat_map(u32::to_le_bytes));
    all.extend(types);
    all.extend(strings);
    (all, 1, 3)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// BTF with `struct outer { u64 a; union { struct { u32 b; u32 c; }; u64 d; }; }`, a typedef of
    /// it and `enum e { X = 3, Y = 7 }`.
    fn sample() -> Vec<u8> {
        let strings = b"\0u32\0u64\0outer\0a\0b\0c\0d\0name\0e\0X\0Y\0";
        let at = |name: &str| {
            let all = std::str::from_utf8(strings).unwrap();
            u32::try_from(all.find(&format!("\0{name}\0")).unwrap() + 1).unwrap()
        };
        let types: Vec<u32> = [
            &[at("u32"), 1 << 24, 4, 32][..],
            &[at("u64"), 1 << 24, 8, 64],
            &[0, STRUCT << 24 | 2, 8, at("b"), 1, 0, at("c"), 1, 32],
            &[0, UNION << 24 | 2, 8, 0, 3, 0, at("d"), 2, 0],
            &[at("outer"), STRUCT << 24 | 2, 16, at("a"), 2, 0, 0, 4, 64],
            &[at("name"), TYPEDEF << 24, 5],
            &[at("e"), ENUM << 24 | 2, 4, at("X"), 3, at("Y"), 7],
        ]
        .concat();
        let types: Vec<u8> = types.into_iter().flat_map(u32::to_le_bytes).collect();
        let length = |bytes: &[u8]| u32::try_from(bytes.len()).unwrap();
        let header = [24, 0, length(&types), length(&types), length(strings)];
        let mut all = MAGIC.to_le_bytes().to_vec();
        all.extend([1, 0]);
        all.extend(header.into_iter().flat_map(u32::to_le_bytes));
        all.extend(types);
        all.extend(strings);
        all
    }

    #[test]
    fn members_are_found_also_in_structures_without_a_name() {
        let types = Types::parse(sample()).unwrap();
        for (member, bytes) in [("a", 0), ("b", 8), ("c", 12), ("d", 8)] {
            assert_eq!(types.offset("outer", member).unwrap(), bytes, "{member}");
        }
        assert_eq!(types.typedef("name").unwrap(), 6);
        assert_eq!(types.enumerator("e", "Y").unwrap(), 7);
        let message = types.offset("outer", "z").unwrap_err().to_string();
        assert_eq!(message, "find z of struct outer among the types of this kernel");
        assert!(types.typedef("outer").is_err() && types.enumerator("e", "Z").is_err());
    }

    #[test]
    fn what_is_cut_short_is_refused_or_lacks_what_is_gone() {
        let whole = sample();
        for length in 0..whole.len() {
            let Ok(types) = Types::parse(whole[..length].to_vec()) else { continue };
            drop(types.offset("outer", "c"));
            drop(types.enumerator("e", "Y"));
        }
        let mut wrong = whole;
        wrong[0] = 0;
        assert!(matches!(Types::parse(wrong), Err(TypesError::Malformed(0))));
    }

    #[test]
    fn our_own_types_are_understood() {
        let (bytes, key, value) = map_types(7);
        let types = Types::parse(bytes).unwrap();
        assert_eq!((types.type_offsets.len(), key, value), (4, 1, 3));
        let array = types.at(types.type_offsets[3]).unwrap();
        assert_eq!((array.kind, types.word(array.position + 20).unwrap()), (ARRAY, 7));
    }
}
