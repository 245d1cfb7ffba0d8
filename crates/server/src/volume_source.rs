//! The names of volumes and the paths or addresses of their stores, as users write them.

use larder_io::nbd_client::NbdUri;
use larder_report::escape;
use std::path::{Path, PathBuf};

/// The name of a volume and its path or address.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct VolumeSource {
    /// Its name.
    pub name: String,
    /// The path or address of its store.
    pub path: PathBuf,
    /// The address of an NBD export on another server, if `path` is one.
    pub upstream: Option<NbdUri>,
}

/// Maximum length of the name of a volume, as of the name of a file. Metrics repeat it.
const NAME_BYTES_MAX: usize = 255;

/// Returns true if the scheme is that of an NBD export.
fn is_nbd_address(text: &str) -> bool {
    text.split_once("://")
        .is_some_and(|(scheme, _)| matches!(scheme, "nbd" | "nbds" | "nbd+unix" | "nbds+unix"))
}

impl VolumeSource {
    /// Returns its file or block device; `None` for an export of another server.
    #[must_use]
    pub fn file(&self) -> Option<PathBuf> {
        self.upstream.is_none().then(|| self.path.clone())
    }

    /// Creates a volume from a path or an address. The default name is the file name without its
    /// extension, or the last component of the export's name.
    ///
    /// # Errors
    /// The address is invalid, or the name is not valid for a volume.
    pub fn new(name: Option<&str>, path: &str) -> Result<Self, String> {
        if path.is_empty() {
            return Err("a volume needs a path".into());
        }
        let upstream: Option<NbdUri> = if is_nbd_address(path) {
            Some(path.parse().map_err(|error| format!("{error}"))?)
        } else {
            None
        };
        let default_name = match &upstream {
            Some(uri) => uri.export.rsplit('/').find(|part| !part.is_empty()),
            None => Path::new(path).file_stem().and_then(|stem| stem.to_str()),
        };
        let name = name.or(default_name).unwrap_or("volume").to_owned();
        if name.len() > NAME_BYTES_MAX {
            return Err(format!(
                "the name of a volume has at most {NAME_BYTES_MAX} bytes, and this one has {}; \
                 write a shorter NAME=PATH",
                name.len()
            ));
        }
        if name.contains(escape::is_unsafe) {
            return Err(format!(
                "{} cannot be the name of a volume: it has control characters; write NAME=PATH",
                escape::text(&name)
            ));
        }
        Ok(VolumeSource { name, path: path.into(), upstream })
    }

    /// Parses `[name=]PATH` or `[name=]ADDRESS`.
    ///
    /// # Errors
    /// The reason why the text is refused.
    pub fn parse(text: &str) -> Result<Self, String> {
        let (name, path) = match text.split_once('=') {
            // A path may contain "="; a name contains no slash.
            Some((name, path)) if !name.is_empty() && !name.contains('/') => (Some(name), path),
            _ => (None, text),
        };
        VolumeSource::new(name, path)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn volumes_are_named_after_their_file() {
        let named = |text| VolumeSource::parse(text).unwrap().name;
        assert_eq!(named("/data/disk.img"), "disk");
        assert_eq!(named("db=/data/disk.img"), "db");
        assert_eq!(named("/data/a=b/disk.img"), "disk");
        assert!(VolumeSource::parse("name=").is_err());
        let upstream = VolumeSource::parse("db=nbd://host/a/disk?").unwrap();
        assert_eq!((upstream.name.as_str(), upstream.upstream.is_some()), ("db", true));
        assert_eq!(named("nbd://host/a/disk"), "disk");
        assert_eq!(named("nbds://host/?tls-certificates=/etc/pki"), "volume");
        assert_eq!(named("nbd+unix:///vol?socket=/run/s"), "vol");
        assert!(VolumeSource::parse("nbd://").unwrap_err().contains("names no host"));
        assert!(VolumeSource::parse("http://host/x").unwrap().upstream.is_none());
    }

    #[test]
    fn the_name_of_a_volume_has_at_most_255_bytes() {
        let (longest, longer) = ("n".repeat(255), "n".repeat(256));
        for (before, after) in [("", "=disk.img"), ("nbd://host/", "")] {
            let text = |name: &str| format!("{before}{name}{after}");
            assert_eq!(VolumeSource::parse(&text(&longest)).unwrap().name, longest);
            let refused = VolumeSource::parse(&text(&longer)).unwrap_err();
            assert!(refused.contains("has at most 255 bytes, and this one has 256"), "{refused}");
        }
        // The limit is in bytes, not in characters.
        assert!(VolumeSource::parse(&format!("{}=disk.img", "\u{fc}".repeat(128))).is_err());
    }
}
