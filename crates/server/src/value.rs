//! The texts that settings are written as: sizes with units, times, names, addresses.
//!
//! The error of each parser is the reason why it refuses a text, as a sentence without a capital
//! letter.
#![expect(clippy::missing_errors_doc, reason = "the documentation of the module describes them")]

use bytesize::ByteSize;
use larder_core::cache::ShareMode;
use larder_core::clock::MILLISECOND;
use larder_core::curve::choice::PolicyChoice;
use larder_core::hint::Hint;
use larder_core::mode::{FlushMode, WriteMode};
use larder_core::policy::PolicyKind;
use larder_core::tunables::{Bounds, Tunables};
use larder_core::units::{BLOCK_BYTES_U64, PAGE_BLOCKS_MAX};
use larder_io::front::nbd::ListenAddress;
use std::borrow::Cow;
use std::net::{SocketAddr, ToSocketAddrs};
use std::path::PathBuf;
use std::time::Duration;

/// Maximum number of characters of a user's text that a message repeats.
const SHOWN_MAX: usize = 80;

/// Returns the beginning of a user's text, as a message repeats it.
#[must_use]
pub fn shortened(text: &str) -> Cow<'_, str> {
    match text.char_indices().nth(SHOWN_MAX) {
        Some((end, _)) => format!("{}...", &text[..end]).into(),
        None => text.into(),
    }
}

/// Returns the beginning of a user's text in quotation marks.
#[must_use]
pub fn quoted(text: &str) -> String {
    format!("\"{}\"", shortened(text))
}

/// Parses a number of bytes, as in `256MiB`. `M` alone is MiB, as for truncate, fio and qemu; `MB`
/// is 10^6 bytes.
pub fn bytes(text: &str) -> Result<u64, String> {
    let is_letter = |letter: char| "kmgtpe".contains(letter.to_ascii_lowercase());
    let number = text.strip_suffix(is_letter).map(str::trim_end);
    let is_short = number.is_some_and(|number| number.ends_with(|end: char| end.is_ascii_digit()));
    let size: Option<ByteSize> =
        if is_short { format!("{text}iB").parse().ok() } else { text.parse().ok() };
    // The library saturates at `u64::MAX` instead of returning an error.
    match size.map(|size| size.as_u64()) {
        None => Err(format!("{} is not a size; write 4KiB, 256MiB, 2GiB", quoted(text))),
        Some(u64::MAX) => Err(format!("{} is not a size: it is 16 EiB or more", quoted(text))),
        Some(bytes) => Ok(bytes),
    }
}

/// Parses a number of bytes, or `word`, which means `value`.
pub fn bytes_or(word: &str, value: u64, text: &str) -> Result<u64, String> {
    if text == word { Ok(value) } else { bytes(text) }
}

/// Formats a number of bytes as [`bytes`] parses it, in the largest unit that needs no fraction.
#[must_use]
pub fn size_text(bytes: u64) -> String {
    for (shift, unit) in [(30, "GiB"), (20, "MiB"), (10, "KiB")] {
        if bytes > 0 && bytes.trailing_zeros() >= shift {
            return format!("{}{unit}", bytes >> shift);
        }
    }
    bytes.to_string()
}

/// Parses a duration; returns nanoseconds.
pub fn time(text: &str) -> Result<u64, String> {
    let units = [("ns", 1.0), ("us", 1e3), ("ms", 1e6), ("s", 1e9), ("m", 60e9), ("h", 3600e9)];
    let number = units.into_iter().find_map(|(unit, ns)| {
        let number: f64 = text.strip_suffix(unit)?.parse().ok()?;
        Some(number * ns)
    });
    match number {
        #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "in range")]
        Some(ns) if (0.0..1.8e19).contains(&ns) => Ok(ns as u64),
        _ if text.parse().is_ok_and(|number: f64| (0.0..1e18).contains(&number)) => {
            Err(format!("{} has no unit; write {text}s, or 90s, 5m, 1.5h, 20ms", quoted(text)))
        }
        _ => Err(format!("{} is not a time; write 90s, 5m, 1.5h, 20ms", quoted(text))),
    }
}

/// Parses an interval; `None` for `off`.
pub fn interval(text: &str) -> Result<Option<Duration>, String> {
    if text == "off" {
        return Ok(None);
    }
    match time(text)? {
        0 => Err("an interval of 0 is not possible; write off to disable it".into()),
        ns => Ok(Some(Duration::from_nanos(ns))),
    }
}

/// Parses a page size; returns blocks.
pub fn page_blocks(text: &str) -> Result<u32, String> {
    let bytes = bytes(text)?;
    let blocks = u32::try_from(bytes / BLOCK_BYTES_U64).ok();
    let fits = |blocks: &u32| blocks.is_power_of_two() && *blocks <= PAGE_BLOCKS_MAX;
    blocks.filter(|blocks| bytes.is_multiple_of(BLOCK_BYTES_U64) && fits(blocks)).ok_or_else(|| {
        format!("{} is no page size; write a power of two, 4KiB to 1MiB", quoted(text))
    })
}

/// Returns what a name stands for; an error lists the known names, the most similar one first.
pub fn one_of<T>(kind: &str, text: &str, found: Option<T>, names: &[&str]) -> Result<T, String> {
    found.ok_or_else(|| {
        let all = names.join(", ");
        match nearest(text, names.iter().copied()) {
            Some(it) => {
                format!(
                    "there is no {kind} {}; did you mean \"{it}\", or one of {all}?",
                    quoted(text)
                )
            }
            None => format!("there is no {kind} {}; write one of {all}", quoted(text)),
        }
    })
}

/// Returns the known name that is most similar to a name, if one is similar.
fn nearest<'a>(name: &str, known: impl IntoIterator<Item = &'a str>) -> Option<&'a str> {
    let lower = name.to_lowercase();
    // A much shorter name is not a plausible match, and the comparison takes memory for each pair
    // of letters.
    let known = known.into_iter().filter(|known| known.len() * 2 >= name.len());
    let distance = |known: &str| {
        let is_start = lower.len() > 1 && known.starts_with(&lower);
        if is_start { 0 } else { strsim::damerau_levenshtein(&lower, known) }
    };
    known
        .map(|known| (distance(known), known))
        .min()
        .filter(|(distance, known)| *distance <= known.len().max(name.len()) / 2)
        .map(|(_, known)| known)
}

/// Maximum number of known names in a message.
const LISTED_MAX: usize = 12;

/// Returns the part of a message that helps after an unknown name: the most similar known name, or
/// all known names if they are few, or else `otherwise`.
fn name_hint<'a>(name: &str, known: impl IntoIterator<Item = &'a str>, otherwise: &str) -> String {
    let known: Vec<_> = known.into_iter().collect();
    match nearest(name, known.iter().copied()) {
        Some(nearest) => format!("; did you mean \"{nearest}\"?"),
        None if (1..=LISTED_MAX).contains(&known.len()) => {
            format!("; write one of {}", known.join(", "))
        }
        None => otherwise.to_owned(),
    }
}

/// Returns the error message for an unknown name, with the known names that help.
#[must_use]
pub fn unknown<'a>(kind: &str, name: &str, known: impl IntoIterator<Item = &'a str>) -> String {
    unknown_or_listed(kind, name, known, "")
}

/// As [`unknown`]; without a similar name, the message ends with `otherwise`.
fn unknown_or_listed<'a>(
    kind: &str,
    name: &str,
    known: impl IntoIterator<Item = &'a str>,
    otherwise: &str,
) -> String {
    format!("there is no {kind} {}{}", quoted(name), name_hint(name, known, otherwise))
}

/// Returns the error message for an unknown setting, with the known ones that help, or else the
/// command that lists them.
#[must_use]
pub fn unknown_setting<'a>(
    kind: &str,
    name: &str,
    known: impl IntoIterator<Item = &'a str>,
) -> String {
    unknown_or_listed(kind, name, known, "; `larder help settings` lists all")
}

/// Returns the error message for an unknown model of a store, or an unknown part of one, with the
/// known names that help, or else the command that lists them.
#[must_use]
pub fn unknown_model<'a>(
    kind: &str,
    name: &str,
    known: impl IntoIterator<Item = &'a str>,
) -> String {
    unknown_or_listed(kind, name, known, "; `larder sim --help` and `larder model list` list all")
}

/// Returns the error message for an unknown volume; it follows "cannot".
#[must_use]
pub fn unknown_volume<'a>(name: &str, known: impl IntoIterator<Item = &'a str>) -> String {
    let hint = name_hint(name, known, "");
    format!("find the volume {}: there is no such volume{hint}", quoted(name))
}

/// A type whose values have names.
pub trait NamedValue: Copy + 'static {
    /// The kind of the values in a message.
    const KIND: &'static str;

    /// Returns all values.
    fn all() -> Vec<Self>;

    /// Returns the name of a value.
    fn name(self) -> &'static str;

    /// Returns the short form of the name, if there is one.
    fn short_name(self) -> Option<&'static str> {
        None
    }

    /// Returns the names of all values.
    #[must_use]
    fn names() -> Vec<&'static str> {
        Self::all().into_iter().map(Self::name).collect()
    }
}

macro_rules! named {
    ($($type:ident = $kind:literal),*) => {$(
        impl NamedValue for $type {
            const KIND: &'static str = $kind;

            fn all() -> Vec<Self> {
                $type::ALL.to_vec()
            }

            fn name(self) -> &'static str {
                $type::name(self)
            }
        }
    )*};
}

named!(PolicyKind = "policy", ShareMode = "way to share", FlushMode = "flush mode", Hint = "hint");

impl NamedValue for WriteMode {
    const KIND: &'static str = "write mode";

    fn all() -> Vec<Self> {
        WriteMode::ALL.to_vec()
    }

    fn name(self) -> &'static str {
        WriteMode::name(self)
    }

    /// `back` is `write-back`.
    fn short_name(self) -> Option<&'static str> {
        self.name().strip_prefix("write-")
    }
}

impl NamedValue for PolicyChoice {
    const KIND: &'static str = PolicyKind::KIND;

    fn all() -> Vec<Self> {
        let fixed = PolicyKind::ALL.into_iter().map(PolicyChoice::Fixed);
        fixed.chain([PolicyChoice::Auto]).collect()
    }

    fn name(self) -> &'static str {
        PolicyChoice::name(self)
    }
}

/// Parses the name of a value, or its short form.
pub fn named<T: NamedValue>(text: &str) -> Result<T, String> {
    let is_it = |value: &T| value.name() == text || value.short_name() == Some(text);
    let found = T::all().into_iter().find(is_it);
    one_of(T::KIND, text, found, &T::names())
}

/// The names of the presets of tunables.
pub(crate) const PRESETS: [&str; 3] = ["larder", "nt", "linux"];

/// Parses the name of a preset of tunables.
pub fn preset(text: &str) -> Result<Tunables, String> {
    one_of("preset", text, Tunables::preset(text), &PRESETS)
}

/// Parses `true` or `false`.
pub fn switch(text: &str) -> Result<bool, String> {
    text.parse().ok().ok_or_else(|| format!("{} is neither true nor false", quoted(text)))
}

/// Parses a number of milliseconds, or a time of whole milliseconds.
fn milliseconds(text: &str) -> Option<u64> {
    let whole = |ns: u64| ns.is_multiple_of(MILLISECOND).then_some(ns / MILLISECOND);
    text.parse().ok().or_else(|| time(text).ok().and_then(whole))
}

/// Formats milliseconds as [`time`] parses it, in the largest unit that needs no fraction.
fn milliseconds_text(ms: u64) -> String {
    for (length, unit) in [(3_600_000, "h"), (60_000, "m"), (1000, "s")] {
        if ms > 0 && ms.is_multiple_of(length) {
            return format!("{}{unit}", ms / length);
        }
    }
    format!("{ms}ms")
}

/// Parses the value of a tunable: a number in its unit, for bytes also a size, for milliseconds
/// also a time, and `off` for none.
pub fn tunable(bounds: &Bounds, text: &str) -> Result<u64, String> {
    let (min, max) = (bounds.min, bounds.max);
    let value = match bounds.unit {
        "bytes" if min == 0 => bytes_or("off", 0, text).ok(),
        "bytes" => bytes(text).ok(),
        "ms" => milliseconds(text),
        _ => text.parse().ok(),
    };
    value.ok_or_else(|| {
        let form = match bounds.unit {
            "bytes" if min == 0 => format!("off, or a size up to {}", size_text(max)),
            "bytes" => format!("a size from {} to {}", size_text(min), size_text(max)),
            "ms" => {
                let [min, max] = [min, max].map(milliseconds_text);
                format!("one from {min} to {max}, or a number of milliseconds")
            }
            // Shares, such as "per mille of the memory".
            unit if unit.contains(' ') => format!("a number from {min} to {max} ({unit})"),
            unit => format!("a number of {unit} from {min} to {max}"),
        };
        let kind = match bounds.unit {
            "bytes" => "size",
            "ms" => "time",
            _ => "number",
        };
        format!("{} is not a {kind}; write {form}", quoted(text))
    })
}

/// Formats the value of a tunable as [`tunable`] parses it.
pub(crate) fn tunable_text(bounds: &Bounds, value: u64) -> String {
    match (bounds.unit, value) {
        ("bytes", 0) => "off".to_owned(),
        ("bytes", bytes) => size_text(bytes),
        (_, number) => number.to_string(),
    }
}

/// Parses `unix:PATH` or `tcp:ADDRESS:PORT`.
pub fn listen(text: &str) -> Result<ListenAddress, String> {
    match text.split_once(':') {
        Some(("unix", path)) if !path.is_empty() => Ok(ListenAddress::Unix(path.into())),
        // The resolver takes a number for an address of IPv4.
        Some(("tcp", port)) if !port.is_empty() && port.bytes().all(|it| it.is_ascii_digit()) => {
            Err(format!(
                "{} is a port without an address; write tcp:127.0.0.1:{port}",
                quoted(text)
            ))
        }
        Some(("tcp", address)) => {
            let port = address.rsplit_once(':').map_or("", |(_, port)| port);
            let has_port = !port.is_empty() && port.bytes().all(|byte| byte.is_ascii_digit());
            let with_port = format!("{address}{}", if has_port { "" } else { ":10809" });
            let mut addresses = with_port
                .to_socket_addrs()
                .map_err(|error| format!("{} is not an address: {error}", quoted(address)))?;
            let address = addresses.next();
            address.map(ListenAddress::Tcp).ok_or_else(|| format!("{text} names no address"))
        }
        _ => {
            let known = "write unix:PATH or tcp:ADDRESS:PORT";
            Err(format!("{} is not an address; {known}", quoted(text)))
        }
    }
}

/// Parses an address of this machine's loopback interface, as in `127.0.0.1:9090`.
pub fn loopback(text: &str) -> Result<SocketAddr, String> {
    let address: SocketAddr = text.parse().map_err(|error| {
        format!("{} is not an address ({error}); write it as 127.0.0.1:PORT", quoted(text))
    })?;
    if address.ip().is_loopback() {
        return Ok(address);
    }
    Err(format!(
        "{} is not of this machine alone; write 127.0.0.1:PORT or [::1]:PORT",
        quoted(text)
    ))
}

/// An optional path.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum OptionalPath {
    /// The user wrote `none`.
    None,
    /// The path.
    Path(PathBuf),
}

impl OptionalPath {
    /// Parses a path of `what`, or `none`.
    fn parse(what: &str, text: &str) -> Result<Self, String> {
        match text {
            "" => Err(format!("{what} needs a path")),
            "none" => Ok(OptionalPath::None),
            path => Ok(OptionalPath::Path(path.into())),
        }
    }

    /// Returns the path, if it is one.
    #[must_use]
    pub fn path(&self) -> Option<&PathBuf> {
        match self {
            OptionalPath::None => None,
            OptionalPath::Path(path) => Some(path),
        }
    }
}

/// Parses the path of a control socket, or `none`.
pub fn control(text: &str) -> Result<OptionalPath, String> {
    match text.strip_prefix("unix:") {
        Some("") => Err("a control socket needs a path".to_owned()),
        Some(path) => Ok(OptionalPath::Path(path.into())),
        None => OptionalPath::parse("a control socket", text),
    }
}

/// Parses the path of a directory, or `none`.
pub fn directory(text: &str) -> Result<OptionalPath, String> {
    OptionalPath::parse("a directory", text)
}

#[cfg(test)]
mod tests {
    use super::*;
    use larder_core::tunables::TUNABLES;

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
            assert_eq!(named::<PolicyKind>(kind.name()).unwrap(), kind);
        }
        assert!(named::<PolicyKind>("mru").unwrap_err().contains("lirs, s3fifo"));
        assert_eq!(named::<WriteMode>("read-only").unwrap(), WriteMode::ReadOnly);
        assert_eq!(named::<FlushMode>("ignore").unwrap(), FlushMode::Ignore);
        assert_eq!(named::<PolicyChoice>("auto").unwrap(), PolicyChoice::Auto);
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
    fn tunables_are_numbers_in_their_unit_or_sizes() {
        let of = |name: &str| TUNABLES.iter().find(|it| it.name == name).unwrap();
        for (name, text, expected) in [
            ("age-max", "2000", 2000),
            ("age-max", "5s", 5000),
            ("age-max", "1.5m", 90_000),
            ("age-max", "2h", 7_200_000),
            ("read-ahead-max", "512KiB", 512 << 10),
            ("read-ahead-max", "4096", 4096),
            ("read-ahead-max", "off", 0),
            ("read-ahead-min", "16KiB", 16 << 10),
        ] {
            assert_eq!(tunable(of(name), text), Ok(expected), "{name}={text}");
        }
        for (name, text, form) in [
            ("age-max", "soon", "a time; write one from 10ms to 1h, or a number of milliseconds"),
            ("first-delay", "1us", "a time; write one from 0ms to 1m, or a number of milliseconds"),
            (
                "dirty-limit",
                "x",
                "a number; write a number from 2 to 900 (per mille of the memory)",
            ),
            ("forced-depth", "-1", "a number; write a number of operations from 1 to 256"),
            ("read-ahead-max", "x", "a size; write off, or a size up to 16MiB"),
            ("read-ahead-min", "off", "a size; write a size from 4KiB to 16MiB"),
        ] {
            let expected = format!("\"{text}\" is not {form}");
            assert_eq!(tunable(of(name), text), Err(expected), "{name}={text}");
        }
        for bounds in &TUNABLES {
            for value in [bounds.min, bounds.max, bounds.default, bounds.nt, bounds.linux] {
                assert_eq!(tunable(bounds, &tunable_text(bounds, value)), Ok(value), "{bounds:?}");
            }
        }
    }

    #[test]
    fn control_over_tcp_stays_on_this_machine() {
        assert_eq!(loopback("127.0.0.1:80").unwrap().port(), 80);
        assert!(loopback("[::1]:80").is_ok());
        for outside in ["0.0.0.0:80", "192.168.0.1:80", "[::]:80"] {
            assert!(
                loopback(outside).unwrap_err().contains("is not of this machine alone"),
                "{outside}"
            );
        }
        assert!(loopback("localhost").is_err());
        assert_eq!(control("none").unwrap(), OptionalPath::None);
        assert_eq!(control("unix:none").unwrap(), OptionalPath::Path("none".into()));
        assert_eq!(control("/run/x").unwrap(), OptionalPath::Path("/run/x".into()));
        assert_eq!(directory("none").unwrap(), OptionalPath::None);
        assert_eq!(directory("/var/x").unwrap(), OptionalPath::Path("/var/x".into()));
        assert_eq!((interval("off"), interval("5m")), (Ok(None), Ok(Some(Duration::from_mins(5)))));
        assert!(interval("0s").is_err() && interval("often").is_err());
    }

    #[test]
    fn a_message_repeats_only_the_beginning_of_a_long_text() {
        let long = "\u{fc}".repeat(1 << 20);
        for error in [
            unknown("key", &long, ["policy"]),
            bytes(&long).unwrap_err(),
            named::<Hint>(&long).unwrap_err(),
            switch(&long).unwrap_err(),
        ] {
            assert!(error.len() < 400 && error.contains("\u{fc}...\""), "{error}");
        }
        assert_eq!(
            unknown("key", "polcy", ["policy"]),
            "there is no key \"polcy\"; did you mean \"policy\"?"
        );
    }
}
