//! The specification of an array:
//! `LEVEL:COUNTxDEVICE[,chunk=SIZE][,failed=NUMBER[+NUMBER]][,rebuild=NUMBER]
//! [,cache=SIZE[,battery=yes|no]]`. The parts of a device with rates contain colons, those of the
//! array contain equals signs.

use super::SpecSyntax;
use super::text::size_text;
use crate::model::{ArrayLayout, ArrayLevel, MemberSet};
use larder_core::units::BLOCK_BYTES_U64;

/// Default of md.
const CHUNK_BYTES: u64 = 512 << 10;
const CHUNK_BYTES_MAX: u64 = 1 << 30;

/// The cache of the controller of an array.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ControllerCache {
    /// Memory for data, at least [`ControllerCache::BYTES_MIN`].
    pub bytes: u64,
    /// True if it keeps data without power: then a flush has nothing to do.
    pub has_battery: bool,
}

impl ControllerCache {
    /// Minimum memory.
    pub const BYTES_MIN: u64 = 4 << 20;
    /// Maximum memory.
    pub const BYTES_MAX: u64 = 4 << 30;
}

/// The parts of a specification: the layout, the cache, and the text of the device.
pub(super) type ParsedArray = (ArrayLayout, Option<ControllerCache>, String);

/// Parses the specification of an array; `None` if the text is of something else.
pub(super) fn parse(text: &str, syntax: &SpecSyntax) -> Result<Option<ParsedArray>, String> {
    let Some((level, rest)) = text.split_once(':') else { return Ok(None) };
    let Some(level) = ArrayLevel::ALL.into_iter().find(|it| it.name() == level) else {
        return Ok(None);
    };
    let name = level.name();
    let (members, rest) = rest
        .split_once('x')
        .ok_or_else(|| format!("\"{text}\" names no members; write {name}:3xdisk"))?;
    let members = members
        .parse()
        .ok()
        .filter(|members| (level.members_min()..=MemberSet::MAX).contains(members))
        .ok_or_else(|| {
            let least = level.members_min();
            format!("{name} has {least} to {} members, not \"{members}\"", MemberSet::MAX)
        })?;
    let (of_array, of_device): (Vec<&str>, Vec<&str>) =
        rest.split(',').partition(|part| part.contains('='));
    let mut layout = ArrayLayout::new(level, members, CHUNK_BYTES);
    let (mut cache_bytes, mut battery) = (None, None);
    for (index, part) in of_array.iter().enumerate() {
        let key = |part: &str| part.split_once('=').map(|(key, _)| key.to_owned());
        if of_array[..index].iter().any(|earlier| key(earlier) == key(part)) {
            return Err(format!("\"{}\" is there twice", key(part).unwrap_or_default()));
        }
        match part.split_once('=') {
            Some(("chunk", size)) => layout.chunk_bytes = chunk((syntax.bytes)(size)?)?,
            Some(("failed", numbers)) => {
                let numbers = numbers.split('+').map(|number| member(&layout, number));
                layout.failed = numbers.collect::<Result<_, _>>()?;
            }
            Some(("rebuild", number)) => layout.rebuilt = Some(member(&layout, number)?),
            Some(("cache", size)) => cache_bytes = Some(cache((syntax.bytes)(size)?)?),
            Some(("battery", word)) => battery = Some(yes_or_no(word)?),
            Some((key, _)) => {
                let known =
                    ["chunk=SIZE", "failed=NUMBER", "rebuild=NUMBER", "cache=SIZE", "battery=no"];
                return Err((syntax.unknown)("part of an array", key, &known));
            }
            None => {}
        }
    }
    if battery.is_some() && cache_bytes.is_none() {
        return Err("a battery belongs to a cache; add cache=SIZE".into());
    }
    check_failures(&layout)?;
    let has_battery = battery.unwrap_or(true);
    let cache = cache_bytes.map(|bytes| ControllerCache { bytes, has_battery });
    Ok(Some((layout, cache, of_device.join(","))))
}

fn cache(bytes: u64) -> Result<u64, String> {
    let is_valid = (ControllerCache::BYTES_MIN..=ControllerCache::BYTES_MAX).contains(&bytes);
    is_valid.then_some(bytes).ok_or_else(|| "the cache of a controller has 4MiB to 4GiB".into())
}

fn yes_or_no(word: &str) -> Result<bool, String> {
    match word {
        "yes" => Ok(true),
        "no" => Ok(false),
        _ => Err(format!("\"{word}\" is neither yes nor no")),
    }
}

fn chunk(bytes: u64) -> Result<u64, String> {
    let is_valid = bytes.is_power_of_two() && (BLOCK_BYTES_U64..=CHUNK_BYTES_MAX).contains(&bytes);
    is_valid.then_some(bytes).ok_or_else(|| "a chunk is a power of two, 4KiB to 1GiB".into())
}

fn member(layout: &ArrayLayout, number: &str) -> Result<u32, String> {
    let number = number.parse().ok().filter(|number| *number < layout.members);
    let last = layout.members - 1;
    number.ok_or_else(|| format!("the members of this array have the numbers 0 to {last}"))
}

fn check_failures(layout: &ArrayLayout) -> Result<(), String> {
    let rebuilt = layout.rebuilt.filter(|&member| layout.failed.contains(member as usize));
    if let Some(member) = rebuilt {
        return Err(format!("member {member} is rebuilt or has failed; write one of the two"));
    }
    if layout.has_all_data() {
        return Ok(());
    }
    let missing: MemberSet = layout.failed.iter().chain(layout.rebuilt).collect();
    let (name, noun) =
        (layout.level.name(), if missing.count() == 1 { "member" } else { "members" });
    Err(format!("this {name} has lost data without {noun} {missing}"))
}

/// Returns the specification of an array of devices with this text.
pub(super) fn text(layout: &ArrayLayout, cache: Option<ControllerCache>, device: &str) -> String {
    let ArrayLayout { level, members, chunk_bytes, failed, rebuilt } = layout;
    let is_other = *chunk_bytes != CHUNK_BYTES;
    let chunk = is_other.then(|| format!("chunk={}", size_text(*chunk_bytes)));
    let failed = Some(failed).filter(|failed| failed.count() > 0);
    let failed = failed.map(|numbers| format!("failed={numbers}"));
    let rebuilt = rebuilt.map(|number| format!("rebuild={number}"));
    let members = format!("{}:{members}x{device}", level.name());
    let size = cache.map(|cache| format!("cache={}", size_text(cache.bytes)));
    let battery = cache.filter(|cache| !cache.has_battery).map(|_| "battery=no".to_owned());
    [Some(members), chunk, failed, rebuilt, size, battery]
        .into_iter()
        .flatten()
        .collect::<Vec<_>>()
        .join(",")
}
