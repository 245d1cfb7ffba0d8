//! The token that a client over TCP must present.

use anyhow::{Context, Result, ensure};
use larder_io::owned_file::{self, FileReaders};
use std::hint::black_box;
use std::path::Path;

/// Minimum length; shorter tokens could be guessed.
const LENGTH_MIN: usize = 16;
const LENGTH_MAX: usize = 256;
/// Maximum size of a token file; a longer one has other contents.
const FILE_BYTES_MAX: u64 = 4096;

/// A secret, which `Debug` does not print.
#[derive(Clone)]
pub struct Token(Box<[u8]>);

impl std::fmt::Debug for Token {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Token")
    }
}

/// Returns the credentials after the scheme "Bearer", which is case-insensitive (RFC 9110, 11.1).
fn credentials(header: &[u8]) -> Option<&[u8]> {
    let (scheme, parameters) = header.split_at_checked(b"Bearer".len())?;
    let is_bearer = scheme.eq_ignore_ascii_case(b"Bearer") && parameters.starts_with(b" ");
    is_bearer.then(|| parameters.trim_ascii_start())
}

impl Token {
    /// Reads the token: the only line of a file that only its owner may read.
    ///
    /// # Errors
    /// It cannot be read, is no token, or others than its owner have access to it.
    pub fn read(path: &Path) -> Result<Self> {
        let context = || format!("read the token in {}", path.display());
        let text =
            owned_file::read(path, FileReaders::Secret, FILE_BYTES_MAX).with_context(context)?;
        let mut token = text.as_slice();
        while let [rest @ .., b'\n' | b'\r'] = token {
            token = rest;
        }
        ensure!(
            (LENGTH_MIN..=LENGTH_MAX).contains(&token.len())
                && token.iter().all(u8::is_ascii_graphic),
            "{}: it must be one line of {LENGTH_MIN} to {LENGTH_MAX} ASCII characters without \
             blanks; head -c 32 /dev/urandom | base64 makes one",
            context()
        );
        Ok(Token(token.into()))
    }

    /// Creates a token from a text.
    #[must_use]
    pub fn of(text: &str) -> Self {
        Token(text.as_bytes().into())
    }

    /// Returns the value of the Authorization header.
    #[must_use]
    pub fn header(&self) -> String {
        format!("Bearer {}", String::from_utf8_lossy(&self.0))
    }

    /// Returns true if a header carries the token. The comparison time does not depend on the
    /// position of a difference.
    #[must_use]
    pub fn matches_header(&self, header: &[u8]) -> bool {
        let Some(presented) = credentials(header) else { return false };
        let mut differs = u8::from(presented.len() != self.0.len());
        for (index, byte) in presented.iter().enumerate() {
            differs |= black_box(byte ^ self.0[index % self.0.len()]);
        }
        black_box(differs) == 0
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs::Permissions;
    use std::os::unix::fs::PermissionsExt;

    #[test]
    fn only_the_token_itself_is_taken() {
        let token = Token((*b"0123456789abcdef").into());
        assert!(token.matches_header(b"Bearer 0123456789abcdef"));
        assert!(token.matches_header(token.header().as_bytes()));
        assert!(token.matches_header(b"bearer 0123456789abcdef"), "the scheme has no case");
        assert!(token.matches_header(b"BEARER  0123456789abcdef"));
        for wrong in [
            "",
            "Bearer ",
            "0123456789abcdef",
            "bearer0123456789abcdef",
            "Bearers 0123456789abcdef",
            "Bearer",
            "Bearer 0123456789abcdeF",
            "Bearer 0123456789abcde",
            "Bearer 0123456789abcdef0123456789abcdef",
            "Basic 0123456789abcdef",
        ] {
            assert!(!token.matches_header(wrong.as_bytes()), "{wrong:?}");
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
        assert!(
            read("0123456789abcdef\n", 0o600).unwrap().matches_header(b"Bearer 0123456789abcdef")
        );
        for mode in [0o640, 0o604, 0o620] {
            let error = read("0123456789abcdef\n", mode).unwrap_err();
            assert!(error.contains("other than its owner"), "{error}");
        }
        for text in
            ["", "short", "two lines of\ntext in it", "0123456789 abcdef", "\u{fc}3456789abcdef01"]
        {
            assert!(read(text, 0o600).unwrap_err().contains("one line of"), "{text:?}");
        }
        let error = format!("{:#}", Token::read(dir.path()).unwrap_err());
        assert!(error.contains("not a regular file"), "{error}");
        assert!(Token::read(&dir.path().join("none")).is_err());
    }
}
