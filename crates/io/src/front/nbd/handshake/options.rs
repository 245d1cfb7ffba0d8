//! Parsers for the data of options.
//!
//! NBD's proto.md, "Option types": `INFO` and `GO` (name, information requests),
//! `LIST_META_CONTEXT` and `SET_META_CONTEXT` (name, queries), and "Metadata querying". The parsers
//! check every length inside the data against the remaining data, and copy nothing.

use crate::nbd_wire as wire;

/// Refusal of an option's data: an error reply and its text.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct OptionRefusal {
    /// One of `REP_ERR_*`.
    pub reply: u32,
    /// Human-readable text.
    pub text: &'static str,
}

impl OptionRefusal {
    pub(super) const fn invalid(text: &'static str) -> Self {
        Self { reply: wire::REP_ERR_INVALID, text }
    }

    pub(super) const fn too_big(text: &'static str) -> Self {
        Self { reply: wire::REP_ERR_TOO_BIG, text }
    }
}

/// Takes numbers and strings from the front of option data.
struct Cursor<'a> {
    rest: &'a [u8],
}

impl<'a> Cursor<'a> {
    fn bytes(&mut self, len: usize) -> Result<&'a [u8], OptionRefusal> {
        let (head, rest) = self
            .rest
            .split_at_checked(len)
            .ok_or(OptionRefusal::invalid("the option's data end too early"))?;
        self.rest = rest;
        Ok(head)
    }

    fn array<const N: usize>(&mut self) -> Result<[u8; N], OptionRefusal> {
        Ok(self.bytes(N)?.try_into().expect("as many bytes"))
    }

    fn u16(&mut self) -> Result<u16, OptionRefusal> {
        Ok(u16::from_be_bytes(self.array()?))
    }

    fn u32(&mut self) -> Result<u32, OptionRefusal> {
        Ok(u32::from_be_bytes(self.array()?))
    }

    /// Takes a string after its 32-bit length. The length is checked before the bytes, so that a
    /// long one is refused as too big even if the data is truncated.
    fn string(&mut self, bytes_max: u32) -> Result<&'a [u8], OptionRefusal> {
        let len = self.u32()?;
        if len > bytes_max {
            return Err(OptionRefusal::too_big("a name or query is too long"));
        }
        self.bytes(len as usize)
    }

    fn end(&self) -> Result<(), OptionRefusal> {
        if self.rest.is_empty() {
            Ok(())
        } else {
            Err(OptionRefusal::invalid("the option's data are longer than what they describe"))
        }
    }
}

/// The data of `INFO` and `GO`.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct InfoQuery<'a> {
    /// Name of the requested export.
    pub name: &'a [u8],
    /// True if the client requests the canonical name.
    pub wants_name: bool,
    /// True if the client requests the description.
    pub wants_description: bool,
    /// True if the client requests the block sizes.
    pub wants_block_size: bool,
}

impl<'a> InfoQuery<'a> {
    /// Parses the data. Unknown information requests are ignored, as the protocol demands.
    pub(super) fn parse(data: &'a [u8], name_bytes_max: u32) -> Result<Self, OptionRefusal> {
        let mut cursor = Cursor { rest: data };
        let name = cursor.string(name_bytes_max)?;
        let mut query =
            Self { name, wants_name: false, wants_description: false, wants_block_size: false };
        for _ in 0..cursor.u16()? {
            match cursor.u16()? {
                wire::INFO_NAME => query.wants_name = true,
                wire::INFO_DESCRIPTION => query.wants_description = true,
                wire::INFO_BLOCK_SIZE => query.wants_block_size = true,
                _ => {}
            }
        }
        cursor.end()?;
        Ok(query)
    }
}

/// The data of `LIST_META_CONTEXT` and `SET_META_CONTEXT`.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct MetaQuery<'a> {
    /// Name of the requested export.
    pub name: &'a [u8],
    /// Number of queries.
    pub queries: u32,
    /// True if one of them is `base:allocation`.
    pub exact: bool,
    /// True if one of them is `base:`, which lists the namespace.
    pub wildcard: bool,
}

impl<'a> MetaQuery<'a> {
    /// Parses the data. Queries of unknown namespaces are ignored, as the protocol demands; one
    /// without a namespace is refused.
    pub(super) fn parse(data: &'a [u8], name_bytes_max: u32) -> Result<Self, OptionRefusal> {
        let mut cursor = Cursor { rest: data };
        let name = cursor.string(name_bytes_max)?;
        let queries = cursor.u32()?;
        let mut query = Self { name, queries, exact: false, wildcard: false };
        // A wrong count ends with the data: each query takes at least four bytes.
        for _ in 0..queries {
            let text = cursor.string(wire::STRING_BYTES_MAX)?;
            if !text.contains(&b':') {
                return Err(OptionRefusal::invalid("a metadata query has no namespace"));
            }
            query.exact |= text == wire::BASE_ALLOCATION.as_bytes();
            query.wildcard |= text == b"base:";
        }
        cursor.end()?;
        Ok(query)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn info_query_is_cut_nowhere_without_an_error() {
        let data = b"\0\0\0\x04disk\0\x03\0\x01\0\x03\x12\x34";
        let query = InfoQuery::parse(data, 4096).unwrap();
        assert_eq!(query.name, b"disk");
        assert!(query.wants_name && query.wants_block_size && !query.wants_description);
        for cut in 0..data.len() {
            let refusal = InfoQuery::parse(&data[..cut], 4096).unwrap_err();
            assert_eq!(refusal.reply, wire::REP_ERR_INVALID, "cut at {cut}");
        }
        let longer = InfoQuery::parse(b"\0\0\0\0\0\0x", 4096).unwrap_err();
        assert_eq!(longer.reply, wire::REP_ERR_INVALID);
        let name = InfoQuery::parse(b"\xff\xff\xff\xff\0\0", 4096).unwrap_err();
        assert_eq!(name.reply, wire::REP_ERR_TOO_BIG);
    }

    #[test]
    fn meta_query_is_cut_nowhere_without_an_error() {
        let data = b"\0\0\0\x01d\0\0\0\x02\0\0\0\x0fbase:allocation\0\0\0\x03x:y";
        let query = MetaQuery::parse(data, 4096).unwrap();
        assert_eq!(query, MetaQuery { name: b"d", queries: 2, exact: true, wildcard: false });
        for cut in 0..data.len() {
            let refusal = MetaQuery::parse(&data[..cut], 4096).unwrap_err();
            assert_eq!(refusal.reply, wire::REP_ERR_INVALID, "cut at {cut}");
        }
        let list = MetaQuery::parse(b"\0\0\0\0\0\0\0\x01\0\0\0\x05base:", 4096).unwrap();
        assert!(list.wildcard && !list.exact);
        let none = MetaQuery::parse(b"\0\0\0\0\0\0\0\x01\0\0\0\x03abc", 4096).unwrap_err();
        assert_eq!(none.reply, wire::REP_ERR_INVALID);
        let count = MetaQuery::parse(b"\0\0\0\0\xff\xff\xff\xff", 4096).unwrap_err();
        assert_eq!(count.reply, wire::REP_ERR_INVALID);
    }
}
