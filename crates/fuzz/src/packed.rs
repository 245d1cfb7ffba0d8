//! Frames of zstd with stored blocks: compressing an input takes longer than reading it.

/// The maximum number of bytes of a block.
const BLOCK_BYTES_MAX: usize = 128 << 10;
/// The magic number, and the descriptor of a frame without checksum and dictionary: the length of
/// the content follows in four bytes.
const HEAD: [u8; 5] = [0x28, 0xb5, 0x2f, 0xfd, 0xa0];

/// Returns a frame with the given content.
pub(crate) fn frame(content: &[u8]) -> Vec<u8> {
    let number = |bytes: usize| u32::try_from(bytes).expect("an input is short").to_le_bytes();
    let mut frame = [&HEAD[..], &number(content.len())].concat();
    let mut rest = content;
    loop {
        let (block, remaining) = rest.split_at(rest.len().min(BLOCK_BYTES_MAX));
        rest = remaining;
        // The lowest bit marks the last block; two zero bits mark a stored block.
        let head = number(block.len() << 3 | usize::from(rest.is_empty()));
        frame.extend(&head[..3]);
        frame.extend(block);
        if rest.is_empty() {
            return frame;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_frame_unpacks_to_its_content() {
        for length in [0, 1, 300, BLOCK_BYTES_MAX, BLOCK_BYTES_MAX + 1, 3 * BLOCK_BYTES_MAX] {
            let content = b"content".repeat(length / 7 + 1);
            let packed = frame(&content[..length]);
            assert_eq!(zstd::decode_all(&packed[..]).unwrap(), content[..length], "{length} bytes");
            assert_eq!(zstd::bulk::decompress(&packed, length).unwrap(), content[..length]);
        }
    }
}
