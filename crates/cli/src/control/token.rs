//! The token that whoever controls over TCP must show.

use anyhow::{Context, Result, ensure};
use std::fs::Metadata;
use std::hint::black_box;
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::Path;

/// Shorter tokens could be guessed.
const LENGTH_MIN: usize = 16;
const LENGTH_MAX: usize = 256;

/// A secret; it is never printed.
#[derive(Clone)]
pub(crate) struct Token(Box<[u8]>);

impl std::fmt::Debug for Token {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Token")
    }
}

/// Whether others than the owner may do anything with a file.
fn others_may(metadata: &Metadata) -> bool {
    metadata.permissions().mode().trailing_zeros() < 6
}

impl Token {
    /// The one line of a file that only its owner may read.
    pub(crate) fn read(path: &Path) -> Result<Self> {
        let what = || format!("read the token in {}", path.display());
        let metadata = std::fs::metadata(path).with_context(what)?;
        ensure!(metadata.is_file(), "{}: it is not a file", what());
        ensure!(
            !others_may(&metadata),
            "{}: others than its owner may use the file (mode {:o}); chmod 600 it",
            what(),
            metadata.mode() & 0o777
        );
        let text = std::fs::read_to_string(path).with_context(what)?;
        let token = text.trim_end_matches(['\n', '\r']);
        ensure!(
            (LENGTH_MIN..=LENGTH_MAX).contains(&token.len())
                && token.bytes().all(|byte| byte.is_ascii_graphic()),
            "{}: it must be one line of {LENGTH_MIN} to {LENGTH_MAX} ASCII characters without \
             blanks; head -c 32 /dev/urandom | base64 makes one",
            what()
        );
        Ok(Token(token.as_bytes().into()))
    }

    /// One that was made just now.
    pub(crate) fn of(text: &str) -> Self {
        Token(text.as_bytes().into())
    }

    /// The header that shows it.
    pub(crate) fn header(&self) -> String {
        format!("Bearer {}", String::from_utf8_lossy(&self.0))
    }

    /// Whether a header shows it. How long this takes does not depend on where they differ.
    pub(crate) fn is_shown_by(&self, header: &[u8]) -> bool {
        let Some(shown) = header.strip_prefix(b"Bearer ") else { return false };
        let mut differs = u8::from(shown.len() != self.0.len());
        for (place, byte) in shown.iter().enumerate() {
            differs |= black_box(byte ^ self.0[place % self.0.len()]);
        }
        black_box(differs) == 0
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs::Permissions;

    #[test]
    fn only_the_token_itself_is_taken() {
        let token = Token((*b"0123456789abcdef").into());
        assert!(token.is_shown_by(b"Bearer 0123456789abcdef"));
        assert!(token.is_shown_by(token.header().as_bytes()));
        for wrong in [
            "",
            "Bearer ",
            "0123456789abcdef",
            "bearer 0123456789abcdef",
            "Bearer 0123456789abcdeF",
            "Bearer 0123456789abcde",
            "Bearer 0123456789abcdef0123456789abcdef",
            "Basic 0123456789abcdef",
        ] {
            assert!(!token.is_shown_by(wrong.as_bytes()), "{wrong:?}");
        }
        assert_eq!(format!("{token:?}"), "Token", "it is not printed");
    }

    #[test]
    fn a_file_that_others_may_read_is_refused() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("token");
        let read = |text: &str, mode: u32| {
            std::fs::write(&path, text).unwrap();
            std::fs::set_permissions(&path, Permissions::from_mode(mode)).unwrap();
            Token::read(&path).map_err(|error| format!("{error:#}"))
        };
        assert!(read("0123456789abcdef\n", 0o600).unwrap().is_shown_by(b"Bearer 0123456789abcdef"));
        for mode in [0o640, 0o604, 0o620] {
            let error = read("0123456789abcdef\n", mode).unwrap_err();
            assert!(error.contains("others than its owner"), "{error}");
        }
        for text in
            ["", "short", "two lines of\ntext in it", "0123456789 abcdef", "\u{fc}3456789abcdef01"]
        {
            assert!(read(text, 0o600).unwrap_err().contains("one line of"), "{text:?}");
        }
        assert!(Token::read(dir.path()).unwrap_err().to_string().contains("not a file"));
        assert!(Token::read(&dir.path().join("none")).is_err());
    }
}
