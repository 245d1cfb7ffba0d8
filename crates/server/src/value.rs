//! The texts that settings are written as: sizes with units, times, names, addresses.
//!
//! Each parser returns the reason why it refuses a text, as a sentence without a capital letter.

use crate::policy_choice::PolicyChoice;
use bytesize::ByteSize;
use larder_core::cache::ShareMode;
use larder_core::hint::Hint;
use larder_core::mode::{FlushMode, WriteMode};
use larder_core::policy::PolicyKind;
use larder_core::tunables::Tunables;
use larder_core::units::{BLOCK_BYTES_U64, PAGE_BLOCKS_MAX};
use larder_io::front::nbd::ListenAddress;
use std::net::{SocketAddr, ToSocketAddrs};
use std::path::PathBuf;

/// Parses a number of bytes, as in `256MiB`. `M` alone is MiB, as for truncate, fio and qemu; `MB`
/// is 10^6 bytes.
///
/// # Errors
/// The reason why the text is refused.
pub fn bytes(text: &str) -> Result<u64, String> {
    let is_letter = |letter: char| "kmgtpe".contains(letter.to_ascii_lowercase());
    let number = text.strip_suffix(is_letter).map(str::trim_end);
    let is_short = number.is_some_and(|number| number.ends_with(|end: char| end.is_ascii_digit()));
    let size: Option<ByteSize> =
        if is_short { format!("{text}iB").parse().ok() } else { text.parse().ok() };
    let size = size.ok_or_else(|| format!("\"{text}\" is not a size; write 4KiB, 256MiB, 2GiB"))?;
    // The library saturates at `u64::MAX` instead of returning an error.
    match size.as_u64() {
        u64::MAX => Err(format!("\"{text}\" is not a size: it is 16 EiB or more")),
        bytes => Ok(bytes),
    }
}

/// Parses a ceiling: a number of bytes, or `all` for no ceiling.
///
/// # Errors
/// The reason why the text is refused.
pub fn ceiling(text: &str) -> Result<u64, String> {
    if text == "all" { Ok(u64::MAX) } else { bytes(text) }
}

/// Parses a duration; returns nanoseconds.
///
/// # Errors
/// The reason why the text is refused.
pub fn time(text: &str) -> Result<u64, String> {
    let units = [("ns", 1.0), ("us", 1e3), ("ms", 1e6), ("s", 1e9), ("m", 60e9), ("h", 3600e9)];
    let number = units.into_iter().find_map(|(unit, ns)| {
        let number: f64 = text.strip_suffix(unit)?.parse().ok()?;
        Some(number * ns)
    });
    match number {
        #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "in range")]
        Some(ns) if (0.0..1.8e19).contains(&ns) => Ok(ns as u64),
        _ => Err(format!("\"{text}\" is not a time; write 90s, 5m, 1.5h, 20ms")),
    }
}

/// Parses a page size; returns blocks.
///
/// # Errors
/// The reason why the text is refused.
pub fn page_blocks(text: &str) -> Result<u32, String> {
    let bytes = bytes(text)?;
    let blocks = bytes / BLOCK_BYTES_U64;
    let fits = bytes.is_multiple_of(BLOCK_BYTES_U64)
        && blocks.is_power_of_two()
        && blocks <= u64::from(PAGE_BLOCKS_MAX);
    u32::try_from(blocks)
        .ok()
        .filter(|_| fits)
        .ok_or_else(|| format!("a page of {text}: must be a power of two from 4KiB to 1MiB"))
}

/// Returns what a name stands for; an error lists the known names.
///
/// # Errors
/// The reason why the text is refused.
pub fn one_of<T>(kind: &str, text: &str, found: Option<T>, names: &[&str]) -> Result<T, String> {
    found.ok_or_else(|| format!("there is no {kind} \"{text}\"; one of {}", names.join(", ")))
}

/// Returns the error message for an unknown name, with the most similar known name.
#[must_use]
pub fn unknown<'a>(kind: &str, name: &str, known: impl IntoIterator<Item = &'a str>) -> String {
    // A much shorter name is not a plausible match, and the comparison takes memory for each pair
    // of letters.
    let known = known.into_iter().filter(|known| known.len() * 2 >= name.len());
    let nearest = known
        .map(|known| (strsim::damerau_levenshtein(name, known), known))
        .min()
        .filter(|(distance, known)| *distance <= known.len().max(name.len()) / 2);
    match nearest {
        Some((_, nearest)) => format!("there is no {kind} \"{name}\"; did you mean \"{nearest}\"?"),
        None => format!("there is no {kind} \"{name}\""),
    }
}

/// Parses the name of a policy.
///
/// # Errors
/// The reason why the text is refused.
pub fn policy(text: &str) -> Result<PolicyKind, String> {
    one_of("policy", text, PolicyKind::from_name(text), &PolicyKind::ALL.map(PolicyKind::name))
}

/// Parses the name of a policy, or `auto`.
///
/// # Errors
/// The reason why the text is refused.
pub fn policy_choice(text: &str) -> Result<PolicyChoice, String> {
    let found = match text {
        "auto" => Some(PolicyChoice::Auto),
        name => PolicyKind::from_name(name).map(PolicyChoice::Fixed),
    };
    let mut names = PolicyKind::ALL.map(PolicyKind::name).to_vec();
    names.push("auto");
    one_of("policy", text, found, &names)
}

/// Parses the name of a mode in which volumes share the memory.
///
/// # Errors
/// The reason why the text is refused.
pub fn share(text: &str) -> Result<ShareMode, String> {
    let names: Vec<_> = ShareMode::ALL.iter().map(|mode| mode.name()).collect();
    one_of("way to share", text, ShareMode::from_name(text), &names)
}

/// Parses the name of a write mode.
///
/// # Errors
/// The reason why the text is refused.
pub fn write_mode(text: &str) -> Result<WriteMode, String> {
    let names: Vec<_> = WriteMode::ALL.iter().map(|mode| mode.name()).collect();
    one_of("write mode", text, WriteMode::from_name(text), &names)
}

/// Parses the name of a flush mode.
///
/// # Errors
/// The reason why the text is refused.
pub fn flush_mode(text: &str) -> Result<FlushMode, String> {
    let names: Vec<_> = FlushMode::ALL.iter().map(|mode| mode.name()).collect();
    one_of("flush mode", text, FlushMode::from_name(text), &names)
}

/// Parses the name of a hint.
///
/// # Errors
/// The reason why the text is refused.
pub fn hint(text: &str) -> Result<Hint, String> {
    let names: Vec<_> = Hint::ALL.iter().map(|hint| hint.name()).collect();
    one_of("hint", text, Hint::from_name(text), &names)
}

/// Parses the name of a preset of tunables.
///
/// # Errors
/// The reason why the text is refused.
pub fn preset(text: &str) -> Result<Tunables, String> {
    one_of("preset", text, Tunables::preset(text), &["larder", "nt"])
}

/// Parses the value of a tunable.
///
/// # Errors
/// The reason why the text is refused.
pub fn whole_number(text: &str) -> Result<u64, String> {
    text.parse().ok().ok_or_else(|| {
        format!("\"{text}\" is not a number; write a whole number from 0 to {}", u64::MAX)
    })
}

/// Parses `unix:PATH` or `tcp:ADDRESS:PORT`.
///
/// # Errors
/// The reason why the text is refused.
pub fn listen(text: &str) -> Result<ListenAddress, String> {
    match text.split_once(':') {
        Some(("unix", path)) if !path.is_empty() => Ok(ListenAddress::Unix(path.into())),
        Some(("tcp", address)) => {
            let with_port = if address.rsplit_once(':').is_some_and(|(_, port)| {
                !port.is_empty() && port.bytes().all(|b| b.is_ascii_digit())
            }) {
                address.to_owned()
            } else {
                format!("{address}:10809")
            };
            let mut addresses = with_port
                .to_socket_addrs()
                .map_err(|error| format!("\"{address}\" is not an address: {error}"))?;
            let address = addresses.next();
            address.map(ListenAddress::Tcp).ok_or_else(|| format!("{text} names no address"))
        }
        _ => Err(format!("\"{text}\" is not an address; write unix:PATH or tcp:ADDRESS:PORT")),
    }
}

/// Parses a number of bytes, or `off` for 0.
///
/// # Errors
/// The reason why the text is refused.
pub fn bytes_or_off(text: &str) -> Result<u64, String> {
    if text == "off" { Ok(0) } else { bytes(text) }
}

/// Formats a number of bytes as [`bytes`] parses it, in the largest unit that needs no fraction.
#[must_use]
pub fn size_text(bytes: u64) -> String {
    for (shift, unit) in [(30, "GiB"), (20, "MiB"), (10, "KiB")] {
        if bytes > 0 && bytes.trailing_zeros() >= shift {
            return format!("{}{unit}", bytes >> shift);
        }
    }
    format!("{bytes}")
}

/// Parses the path of a control socket, or `none`.
///
/// # Errors
/// The reason why the text is refused.
pub fn control(text: &str) -> Result<PathOrNone, String> {
    match text {
        "" => Err("a control socket needs a path".into()),
        "none" => Ok(PathOrNone::None),
        path => Ok(PathOrNone::Path(path.strip_prefix("unix:").unwrap_or(path).into())),
    }
}

/// Parses the path of a directory, or `none`.
///
/// # Errors
/// The reason why the text is refused.
pub fn directory(text: &str) -> Result<PathOrNone, String> {
    match text {
        "" => Err("a directory needs a path".into()),
        "none" => Ok(PathOrNone::None),
        path => Ok(PathOrNone::Path(path.into())),
    }
}

/// An optional path.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum PathOrNone {
    /// The user wrote `none`.
    None,
    /// The path.
    Path(PathBuf),
}

impl PathOrNone {
    /// Returns the path, if it is one.
    #[must_use]
    pub fn path(&self) -> Option<&PathBuf> {
        match self {
            PathOrNone::None => None,
            PathOrNone::Path(path) => Some(path),
        }
    }
}

/// Parses an interval, in nanoseconds, or `off` for 0.
///
/// # Errors
/// The reason why the text is refused.
pub fn time_or_off(text: &str) -> Result<u64, String> {
    match text {
        "off" => Ok(0),
        text => match time(text)? {
            0 => Err("0 is no time between two; write off".into()),
            ns => Ok(ns),
        },
    }
}

/// Parses an address of this machine's loopback interface, as in `127.0.0.1:9090`.
///
/// # Errors
/// The reason why the text is refused.
pub fn loopback(text: &str) -> Result<SocketAddr, String> {
    let address: SocketAddr = text.parse().map_err(|error| {
        format!("\"{text}\" is not an address ({error}); write it as 127.0.0.1:PORT")
    })?;
    if address.ip().is_loopback() {
        Ok(address)
    } else {
        Err(format!("{text} can be reached from outside: use 127.0.0.1:PORT or [::1]:PORT"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_pages_and_modes() {
        assert_eq!(bytes("256MiB").unwrap(), 256 << 20);
        let short = [("4k", 4 << 10), ("1.5M", 3 << 19), ("2 G", 2 << 30), ("7", 7), ("7B", 7)];
        for (text, expected) in short {
            assert_eq!(bytes(text), Ok(expected), "{text}");
        }
        assert_eq!((bytes("1MB"), bytes("1kB")), (Ok(1_000_000), Ok(1000)));
        assert!(bytes("many").unwrap_err().contains("not a size"));
        assert!(bytes("99999999999999999999g").unwrap_err().contains("16 EiB or more"));
        assert_eq!(page_blocks("64KiB").unwrap(), 16);
        for wrong in ["2KiB", "12KiB", "2MiB", "5000"] {
            assert!(page_blocks(wrong).is_err(), "{wrong}");
        }
        for kind in PolicyKind::ALL {
            assert_eq!(policy(kind.name()).unwrap(), kind);
        }
        assert!(policy("mru").unwrap_err().contains("lirs, s3fifo"));
        assert_eq!(write_mode("read-only").unwrap(), WriteMode::ReadOnly);
        assert_eq!(flush_mode("ignore").unwrap(), FlushMode::Ignore);
    }

    #[test]
    fn addresses() {
        assert_eq!(listen("unix:/run/x").unwrap(), ListenAddress::Unix("/run/x".into()));
        let ListenAddress::Tcp(address) = listen("tcp:127.0.0.1").unwrap() else { panic!() };
        assert_eq!(address.port(), 10_809);
        let ListenAddress::Tcp(address) = listen("tcp:[::1]:99").unwrap() else { panic!() };
        assert_eq!(address.port(), 99);
        assert!(listen("/run/x").is_err());
    }

    #[test]
    fn sizes_are_written_as_they_are_read() {
        for (bytes_in, text) in [(0, "0"), (512, "512"), (4096, "4KiB"), (3 << 29, "1536MiB")] {
            assert_eq!(size_text(bytes_in), text);
            assert_eq!(bytes(text).unwrap(), bytes_in);
        }
        assert_eq!(size_text(2 << 30), "2GiB");
    }

    #[test]
    fn control_over_tcp_stays_on_this_machine() {
        assert_eq!(loopback("127.0.0.1:80").unwrap().port(), 80);
        assert!(loopback("[::1]:80").is_ok());
        for outside in ["0.0.0.0:80", "192.168.0.1:80", "[::]:80"] {
            assert!(loopback(outside).unwrap_err().contains("from outside"), "{outside}");
        }
        assert!(loopback("localhost").is_err());
        assert_eq!(control("none").unwrap(), PathOrNone::None);
        assert_eq!(control("/run/x").unwrap(), PathOrNone::Path("/run/x".into()));
        assert_eq!(directory("none").unwrap(), PathOrNone::None);
        assert_eq!(directory("/var/x").unwrap(), PathOrNone::Path("/var/x".into()));
        assert_eq!((time_or_off("off").unwrap(), time_or_off("5m").unwrap()), (0, 300_000_000_000));
        assert!(time_or_off("0s").is_err() && time_or_off("often").is_err());
    }
}
