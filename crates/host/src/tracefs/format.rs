//! Fields of trace events: the format files of tracefs.
//!
//! Kernel versions add, remove and move fields, so only names are fixed.

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Field {
    /// First byte in the record.
    pub(crate) offset: usize,
    pub(crate) size: usize,
}

impl Field {
    /// Returns the value as an unsigned number; 0 beyond the end of the record, or if the field is
    /// wider than 8 bytes.
    pub(crate) fn unsigned(self, record: &[u8]) -> u64 {
        let Some(bytes) = record.get(self.offset..self.offset + self.size) else { return 0 };
        // Most fields have one of these two sizes, which compile to one load without a copy.
        if let Ok(bytes) = bytes.try_into() {
            return u64::from_le_bytes(bytes);
        }
        if let Ok(bytes) = bytes.try_into() {
            return u32::from_le_bytes(bytes).into();
        }
        if bytes.len() > 8 {
            return 0;
        }
        let mut wide = [0; 8];
        wide[..bytes.len()].copy_from_slice(bytes);
        u64::from_le_bytes(wide)
    }

    /// Returns the lowest 32 bits of the value.
    pub(crate) fn word(self, record: &[u8]) -> u32 {
        let bytes = self.unsigned(record).to_le_bytes();
        u32::from_le_bytes([bytes[0], bytes[1], bytes[2], bytes[3]])
    }

    pub(crate) fn signed(self, record: &[u8]) -> i64 {
        let value = self.unsigned(record).cast_signed();
        let unused = 64 - 8 * u32::try_from(self.size.clamp(1, 8)).expect("at most 8");
        (value << unused) >> unused
    }

    /// Returns a text of fixed length, up to its first zero byte.
    pub(crate) fn text(self, record: &[u8]) -> &[u8] {
        let bytes = record.get(self.offset..self.offset + self.size).unwrap_or_default();
        bytes.split(|&byte| byte == 0).next().unwrap_or_default()
    }
}

/// The number of an event and its fields by name.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Format {
    /// Event number at the start of each record.
    pub(crate) id: u16,
    fields: Vec<(String, Field)>,
}

impl Format {
    /// Parses a format file; returns `None` if the text is not one.
    pub(crate) fn parse(text: &str) -> Option<Format> {
        let id = text.lines().find_map(|line| line.strip_prefix("ID:"))?.trim().parse().ok()?;
        let fields: Vec<_> = text.lines().filter_map(field).collect();
        (!fields.is_empty()).then_some(Format { id, fields })
    }

    pub(crate) fn field(&self, name: &str) -> Option<Field> {
        self.fields.iter().find(|(known, _)| known == name).map(|&(_, field)| field)
    }
}

/// Parses a line such as `field:char name[32]; offset:8; size:32; signed:0;`, with tabs.
pub(super) fn field(line: &str) -> Option<(String, Field)> {
    let rest = line.trim_start().strip_prefix("field:")?;
    let mut parts = rest.split(';').map(str::trim);
    let declaration = parts.next()?;
    // The name is the last word, without the length of an array.
    let name = declaration.split_whitespace().next_back()?;
    let name = name.split('[').next()?.trim_start_matches('*');
    let mut number = |key: &str| parts.next()?.strip_prefix(key)?.parse().ok();
    let (offset, size) = (number("offset:")?, number("size:")?);
    Some((name.to_owned(), Field { offset, size }))
}
