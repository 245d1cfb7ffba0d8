//! Values on the command line: sizes with units, names, volumes, addresses.

use crate::output::OutputFile;
use bytesize::ByteSize;
use larder_core::cache::ShareMode;
use larder_core::hint::Hint;
use larder_core::mode::{FlushMode, WriteMode};
use larder_core::policy::PolicyKind;
use larder_core::tunables::{TUNABLES, Tunables};
use larder_core::units::{BLOCK_BYTES_U64, PAGE_BLOCKS_MAX};
use larder_io::front::fuse::MountRestrictions;
use larder_io::front::nbd::ListenAddress;
use larder_io::nbd_client::NbdUri;
use larder_report::escape;
use std::any::TypeId;
use std::collections::HashMap;
use std::net::{SocketAddr, ToSocketAddrs};
use std::num::NonZero;
use std::path::{Path, PathBuf};

mod choice;
mod rule;

pub(crate) use choice::PolicyChoice;
pub(crate) use rule::{RuleArgument, rule};

/// Lets options take values that begin with a hyphen, so that the parser of a value refuses `-1`
/// and names the expected form. Options that accept any text are excepted: there a hyphen begins
/// the next option.
pub(crate) fn allow_hyphens(command: clap::Command) -> clap::Command {
    let texts = [
        TypeId::of::<String>(),
        TypeId::of::<PathBuf>(),
        TypeId::of::<OutputFile>(),
        TypeId::of::<PathOrNone>(),
    ];
    let takes_one = |arg: &clap::Arg| {
        let count = arg.get_num_args().map_or(1, |count| count.min_values());
        arg.get_long().is_some() && arg.get_action().takes_values() && count == 1
    };
    command
        .mut_args(|arg| {
            let is_text = texts.iter().any(|text| arg.get_value_parser().type_id() == *text);
            if takes_one(&arg) && !is_text { arg.allow_hyphen_values(true) } else { arg }
        })
        .mut_subcommands(allow_hyphens)
}

/// Parses a number of bytes, as in `256MiB`.
pub(crate) fn bytes(text: &str) -> Result<u64, String> {
    let size: Option<ByteSize> = text.parse().ok();
    let size = size.ok_or_else(|| format!("\"{text}\" is not a size; write 4KiB, 256MiB, 2GiB"))?;
    // The library saturates at `u64::MAX` instead of returning an error.
    match size.as_u64() {
        u64::MAX => Err(format!("\"{text}\" is not a size: it is 16 EiB or more")),
        bytes => Ok(bytes),
    }
}

/// Parses a ceiling: a number of bytes, or `all` for no ceiling.
pub(crate) fn ceiling(text: &str) -> Result<u64, String> {
    if text == "all" { Ok(u64::MAX) } else { bytes(text) }
}

/// Parses a duration; returns nanoseconds.
pub(crate) fn time(text: &str) -> Result<u64, String> {
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
pub(crate) fn page_blocks(text: &str) -> Result<u32, String> {
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

fn one_of<T>(kind: &str, text: &str, found: Option<T>, names: &[&str]) -> Result<T, String> {
    found.ok_or_else(|| format!("there is no {kind} \"{text}\"; one of {}", names.join(", ")))
}

/// Returns the error message for an unknown name, with the most similar known name.
pub(crate) fn unknown<'a>(
    kind: &str,
    name: &str,
    known: impl IntoIterator<Item = &'a str>,
) -> String {
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
pub(crate) fn policy(text: &str) -> Result<PolicyKind, String> {
    one_of("policy", text, PolicyKind::from_name(text), &PolicyKind::ALL.map(PolicyKind::name))
}

/// Parses the name of a policy, or `auto`.
pub(crate) fn policy_choice(text: &str) -> Result<PolicyChoice, String> {
    let found = match text {
        "auto" => Some(PolicyChoice::Auto),
        name => PolicyKind::from_name(name).map(PolicyChoice::Fixed),
    };
    let mut names = PolicyKind::ALL.map(PolicyKind::name).to_vec();
    names.push("auto");
    one_of("policy", text, found, &names)
}

/// Parses the name of a mode in which volumes share the memory.
pub(crate) fn share(text: &str) -> Result<ShareMode, String> {
    let names: Vec<_> = ShareMode::ALL.iter().map(|mode| mode.name()).collect();
    one_of("way to share", text, ShareMode::from_name(text), &names)
}

/// Parses the name of a write mode.
pub(crate) fn write_mode(text: &str) -> Result<WriteMode, String> {
    let names: Vec<_> = WriteMode::ALL.iter().map(|mode| mode.name()).collect();
    one_of("write mode", text, WriteMode::from_name(text), &names)
}

/// Parses a mount restriction by its name in mount(8).
pub(crate) fn restriction(text: &str) -> Result<MountRestrictions, String> {
    match text {
        "ro" => Err("for a read-only mount write --write-mode read-only".into()),
        "suid" | "dev" | "exec" | "rw" => {
            Err(format!("\"{text}\" permits what SOURCE's mount may forbid; leave it out"))
        }
        _ => {
            let names = ["nosuid", "nodev", "noexec", "nosymfollow"];
            one_of("restriction", text, MountRestrictions::parse(text), &names)
        }
    }
}

/// Parses the name of a flush mode.
pub(crate) fn flush_mode(text: &str) -> Result<FlushMode, String> {
    let names: Vec<_> = FlushMode::ALL.iter().map(|mode| mode.name()).collect();
    one_of("flush mode", text, FlushMode::from_name(text), &names)
}

/// Parses the name of a hint.
pub(crate) fn hint(text: &str) -> Result<Hint, String> {
    let names: Vec<_> = Hint::ALL.iter().map(|hint| hint.name()).collect();
    one_of("hint", text, Hint::from_name(text), &names)
}

/// Parses the name of a preset of tunables.
pub(crate) fn preset(text: &str) -> Result<String, String> {
    let found = Tunables::preset(text).map(|_| text.to_owned());
    one_of("preset", text, found, &["larder", "nt"])
}

/// Parses a setting of a tunable, as in `age-max=2000`.
pub(crate) fn setting(text: &str) -> Result<(String, u64), String> {
    let named = text.rsplit_once('=').filter(|(name, _)| !name.is_empty());
    let (name, value) = named.ok_or("write it as NAME=NUMBER")?;
    Ok((name.to_owned(), whole_number(value)?))
}

/// Parses a percentage. Without the `%` sign only 0, or 1 and more, is accepted: 0.3 is ambiguous,
/// as it could mean 30%.
pub(crate) fn per_cent(text: &str) -> Option<f64> {
    match text.strip_suffix('%') {
        Some(number) => number.trim().parse().ok(),
        None => text.trim().parse().ok().filter(|&number: &f64| number == 0.0 || number >= 1.0),
    }
}

/// Parses the value of a tunable.
pub(crate) fn whole_number(text: &str) -> Result<u64, String> {
    text.parse().ok().ok_or_else(|| {
        format!("\"{text}\" is not a number; write a whole number from 0 to {}", u64::MAX)
    })
}

/// Parses a number of threads.
pub(crate) fn threads(text: &str) -> Result<NonZero<usize>, String> {
    text.parse().ok().ok_or_else(|| {
        format!("\"{text}\" is not a number of threads; write 1 or more, or leave the option out")
    })
}

/// Sets a tunable.
///
/// # Errors
/// No tunable has this name, or the value is out of its range.
pub(crate) fn set_tunable(tunables: &mut Tunables, name: &str, value: u64) -> Result<(), String> {
    let known = TUNABLES.iter().map(|tunable| tunable.name);
    if !known.clone().any(|known| known == name) {
        return Err(unknown("tunable", name, known));
    }
    tunables.set(name, value).map_err(|error| error.to_string())
}

/// Parses `unix:PATH` or `tcp:ADDRESS:PORT`.
pub(crate) fn listen(text: &str) -> Result<ListenAddress, String> {
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

/// A volume on the command line: its name and its path or address.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct VolumeArgument {
    pub(crate) name: String,
    pub(crate) path: PathBuf,
    /// The address of an NBD export on another server, if `path` is one.
    pub(crate) upstream: Option<NbdUri>,
}

/// Maximum length of the name of a volume, as of the name of a file. Metrics repeat it.
const NAME_BYTES_MAX: usize = 255;

/// Returns true if the scheme is that of an NBD export.
fn is_nbd_address(text: &str) -> bool {
    text.split_once("://")
        .is_some_and(|(scheme, _)| matches!(scheme, "nbd" | "nbds" | "nbd+unix" | "nbds+unix"))
}

impl VolumeArgument {
    /// Returns its file or block device; `None` for an export of another server.
    pub(crate) fn file(&self) -> Option<PathBuf> {
        self.upstream.is_none().then(|| self.path.clone())
    }

    /// Creates a volume from a path or an address. The default name is the file name without its
    /// extension, or the last component of the export's name.
    ///
    /// # Errors
    /// The address is invalid, or the name is not valid for a volume.
    pub(crate) fn new(name: Option<&str>, path: &str) -> Result<Self, String> {
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
        Ok(VolumeArgument { name, path: path.into(), upstream })
    }
}

/// Parses `[name=]PATH` or `[name=]ADDRESS`.
pub(crate) fn volume(text: &str) -> Result<VolumeArgument, String> {
    let (name, path) = match text.split_once('=') {
        // A path may contain "="; a name contains no slash.
        Some((name, path)) if !name.is_empty() && !name.contains('/') => (Some(name), path),
        _ => (None, text),
    };
    VolumeArgument::new(name, path)
}

/// Parses a number of bytes, or `off` for 0.
pub(crate) fn bytes_or_off(text: &str) -> Result<u64, String> {
    if text == "off" { Ok(0) } else { bytes(text) }
}

/// A value for one volume, or for all of them.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Named<T> {
    /// The volume; `None` for all volumes.
    pub(crate) volume: Option<String>,
    pub(crate) value: T,
}

/// Parses `[NAME=]VALUE`. A name may contain "=", a value does not.
pub(crate) fn named<T>(
    value: impl Fn(&str) -> Result<T, String> + Clone,
) -> impl Fn(&str) -> Result<Named<T>, String> + Clone {
    move |text| match text.rsplit_once('=') {
        Some((name, text)) => Ok(Named { volume: Some(name.to_owned()), value: value(text)? }),
        None => Ok(Named { volume: None, value: value(text)? }),
    }
}

/// Parses `[NAME.]TUNABLE=VALUE`. A name may contain ".", the name of a tunable does not.
pub(crate) fn named_setting(text: &str) -> Result<Named<(String, u64)>, String> {
    let (name, value) = setting(text)?;
    Ok(match name.rsplit_once('.') {
        Some((volume, tunable)) => {
            Named { volume: Some(volume.to_owned()), value: (tunable.to_owned(), value) }
        }
        None => Named { volume: None, value: (name, value) },
    })
}

/// The values of a flag by volume: the last value given for the volume, else the last given for
/// all.
#[derive(Debug)]
pub(crate) struct ByVolume<'a, T> {
    by_name: HashMap<&'a str, &'a T>,
    all: Option<&'a T>,
}

impl<'a, T> ByVolume<'a, T> {
    pub(crate) fn new(values: &'a [Named<T>]) -> Self {
        let mut by_volume = ByVolume { by_name: HashMap::new(), all: None };
        for Named { volume, value } in values {
            match volume {
                Some(volume) => drop(by_volume.by_name.insert(volume, value)),
                None => by_volume.all = Some(value),
            }
        }
        by_volume
    }

    /// Returns the value that applies to a volume.
    pub(crate) fn of(&self, volume: &str) -> Option<&'a T> {
        self.by_name.get(volume).copied().or(self.all)
    }
}

/// Formats a number of bytes as [`bytes`] parses it, in the largest unit that needs no fraction.
pub(crate) fn size_text(bytes: u64) -> String {
    for (shift, unit) in [(30, "GiB"), (20, "MiB"), (10, "KiB")] {
        if bytes > 0 && bytes.trailing_zeros() >= shift {
            return format!("{}{unit}", bytes >> shift);
        }
    }
    format!("{bytes}")
}

/// Parses the path of a control socket, or `none`.
pub(crate) fn control(text: &str) -> Result<PathOrNone, String> {
    match text {
        "" => Err("a control socket needs a path".into()),
        "none" => Ok(PathOrNone::None),
        path => Ok(PathOrNone::Path(path.strip_prefix("unix:").unwrap_or(path).into())),
    }
}

/// Parses the path of a directory, or `none`.
pub(crate) fn directory(text: &str) -> Result<PathOrNone, String> {
    match text {
        "" => Err("a directory needs a path".into()),
        "none" => Ok(PathOrNone::None),
        path => Ok(PathOrNone::Path(path.into())),
    }
}

/// An optional path.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum PathOrNone {
    /// The user wrote `none`.
    None,
    /// The path.
    Path(PathBuf),
}

/// Parses an interval, in nanoseconds, or `off` for 0.
pub(crate) fn time_or_off(text: &str) -> Result<u64, String> {
    match text {
        "off" => Ok(0),
        text => match time(text)? {
            0 => Err("0 is no time between two; write off".into()),
            ns => Ok(ns),
        },
    }
}

/// Parses an address of this machine's loopback interface, as in `127.0.0.1:9090`.
pub(crate) fn loopback(text: &str) -> Result<SocketAddr, String> {
    let address: SocketAddr = text.parse().map_err(|error| {
        format!("\"{text}\" is not an address ({error}); write it as 127.0.0.1:PORT")
    })?;
    if address.ip().is_loopback() {
        Ok(address)
    } else {
        Err(format!("{text} can be reached from outside: use 127.0.0.1:PORT or [::1]:PORT"))
    }
}

/// Returns the parallelism of this machine: the default number of threads.
pub(crate) fn cores() -> NonZero<usize> {
    std::thread::available_parallelism().unwrap_or(NonZero::<usize>::MIN)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_pages_and_modes() {
        assert_eq!(bytes("256MiB").unwrap(), 256 << 20);
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
        assert_eq!(setting("age-max=2000").unwrap(), ("age-max".into(), 2000));
        assert_eq!(setting("=1").unwrap_err(), "write it as NAME=NUMBER");
        assert!(setting("age-max=abc").unwrap_err().contains("write a whole number from 0 to "));
        assert_eq!(
            (per_cent("30"), per_cent("30%"), per_cent("0")),
            (Some(30.0), Some(30.0), Some(0.0))
        );
        assert_eq!((per_cent("0.3%"), per_cent("0.3"), per_cent("x")), (Some(0.3), None, None));
        assert_eq!(setting("a=b.age-max=7").unwrap(), ("a=b.age-max".into(), 7));
    }

    #[test]
    fn volumes_are_named_after_their_file() {
        let named = |text| volume(text).unwrap().name;
        assert_eq!(named("/data/disk.img"), "disk");
        assert_eq!(named("db=/data/disk.img"), "db");
        assert_eq!(named("/data/a=b/disk.img"), "disk");
        assert!(volume("name=").is_err());
        let upstream = volume("db=nbd://host/a/disk?").unwrap();
        assert_eq!((upstream.name.as_str(), upstream.upstream.is_some()), ("db", true));
        assert_eq!(named("nbd://host/a/disk"), "disk");
        assert_eq!(named("nbds://host/?tls-certificates=/etc/pki"), "volume");
        assert_eq!(named("nbd+unix:///vol?socket=/run/s"), "vol");
        assert!(volume("nbd://").unwrap_err().contains("names no host"));
        assert!(volume("http://host/x").unwrap().upstream.is_none());
    }

    #[test]
    fn the_name_of_a_volume_has_at_most_255_bytes() {
        let (longest, longer) = ("n".repeat(255), "n".repeat(256));
        for (before, after) in [("", "=disk.img"), ("nbd://host/", "")] {
            let text = |name: &str| format!("{before}{name}{after}");
            assert_eq!(volume(&text(&longest)).unwrap().name, longest);
            let refused = volume(&text(&longer)).unwrap_err();
            assert!(refused.contains("has at most 255 bytes, and this one has 256"), "{refused}");
        }
        // The limit is in bytes, not in characters.
        assert!(volume(&format!("{}=disk.img", "\u{fc}".repeat(128))).is_err());
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
    fn a_value_of_its_own_goes_before_one_for_all() {
        let parse = |texts: &[&str]| -> Vec<_> {
            texts.iter().map(|text| named(bytes)(text).unwrap()).collect()
        };
        let values = parse(&["1MiB", "a=2MiB", "3MiB", "b=x=4MiB"]);
        let values = ByVolume::new(&values);
        assert_eq!(values.of("a"), Some(&(2 << 20)));
        assert_eq!(values.of("b=x"), Some(&(4 << 20)));
        assert_eq!(values.of("c"), Some(&(3 << 20)), "the last one");
        assert_eq!(ByVolume::new(&parse(&["a=1"])).of("b"), None);
        let set = named_setting("my.disk.age-max=7").unwrap();
        assert_eq!(set.volume.as_deref(), Some("my.disk"));
        assert_eq!(set.value, ("age-max".into(), 7));
        assert_eq!(named_setting("age-max=7").unwrap().volume, None);
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
