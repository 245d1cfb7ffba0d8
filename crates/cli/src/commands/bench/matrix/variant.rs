//! Variants of a matrix: options of a file system, and priority of the workload.
//!
//! `NAME=MKFS OPTIONS; MOUNT OPTIONS`, or parts with their names in any order: `NAME=fs: ext4;
//! mkfs: -b 1024; mount: noatime; nice: 5; policy: batch; iopriority: idle`.

use larder_host::priority;
use serde_json::Value;
use std::collections::BTreeMap;

/// A variant.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Variant {
    /// The name; empty for all defaults.
    pub(super) name: String,
    /// The file systems that the variant applies to; empty for all.
    fs: Vec<String>,
    /// Options for mkfs.
    pub(super) make_options: Vec<String>,
    /// Options for mount, separated by commas.
    pub(super) mount_options: String,
    /// Priority of the workload.
    pub(super) priority: priority::PriorityChange,
}

/// The names of parts.
const PARTS: [&str; 6] = ["fs", "mkfs", "mount", "nice", "policy", "iopriority"];

impl Variant {
    /// Returns true if the variant applies to this file system.
    pub(super) fn is_for(&self, fs: &str) -> bool {
        self.fs.is_empty() || self.fs.iter().any(|name| name == fs)
    }

    /// Returns the file systems that the variant names.
    pub(super) fn fs(&self) -> &[String] {
        &self.fs
    }

    /// Returns the settings of the variant, by name.
    pub(super) fn settings(&self) -> BTreeMap<String, Value> {
        let mut settings = BTreeMap::new();
        let mut set = |name: &str, value: Value| settings.insert(format!("variant.{name}"), value);
        set("name", self.name.as_str().into());
        set("mkfs", self.make_options.join(" ").into());
        set("mount", self.mount_options.as_str().into());
        if let Some(nice) = self.priority.nice {
            set("nice", nice.into());
        }
        if let Some(policy) = self.priority.policy {
            set("policy", policy.to_string().into());
        }
        if let Some(io) = self.priority.io {
            set("iopriority", io.to_string().into());
        }
        settings
    }

    fn set(&mut self, part: &str, value: &str) -> Result<(), String> {
        match part {
            "fs" => self.fs = value.split(',').map(|name| name.trim().to_owned()).collect(),
            "mkfs" => self.make_options = value.split_whitespace().map(str::to_owned).collect(),
            "mount" if value.contains(char::is_whitespace) => {
                return Err(format!("\"{value}\" are no mount options; write them with commas"));
            }
            "mount" => value.clone_into(&mut self.mount_options),
            "nice" => {
                let nice = value.parse().ok().filter(|nice| (-20..20).contains(nice));
                let error = || format!("\"{value}\" is no nice value; -20 to 19");
                self.priority.nice = Some(nice.ok_or_else(error)?);
            }
            "policy" => self.priority.policy = Some(value.parse()?),
            "iopriority" => self.priority.io = Some(value.parse()?),
            other => {
                let known = PARTS.join(", ");
                return Err(format!("a variant has no part \"{other}\"; it has {known}"));
            }
        }
        Ok(())
    }
}

/// Splits a part into name and value, if it has a name. Options can contain a colon too, but
/// without a blank after it, and not after a single word.
fn split_name(part: &str) -> Option<(&str, &str)> {
    let (name, value) = part.split_once(':')?;
    let is_word = !name.is_empty() && name.bytes().all(|byte| byte.is_ascii_lowercase());
    let is_separated = value.is_empty() || value.starts_with(' ') || PARTS.contains(&name);
    (is_word && is_separated).then(|| (name, value.trim()))
}

/// Parses a variant.
pub(super) fn variant(text: &str) -> Result<Variant, String> {
    let (name, parts) = text.split_once('=').ok_or_else(|| {
        format!("\"{text}\" is no variant; write NAME=MKFS OPTIONS; MOUNT OPTIONS")
    })?;
    let name = name.trim();
    let is_word = |c: char| c.is_alphanumeric() || "-_.+".contains(c);
    if name.is_empty() || !name.chars().all(is_word) {
        return Err(format!("\"{name}\" is no name of a variant; letters, digits, - _ . +"));
    }
    let mut variant = Variant { name: name.to_owned(), ..Variant::default() };
    let mut positions = ["mkfs", "mount"].into_iter();
    let mut seen: Vec<&str> = Vec::new();
    for part in parts.split(';').map(str::trim) {
        let (name, value) = match split_name(part) {
            Some(pair) => pair,
            // The position determines an unnamed part; an empty part keeps its position.
            None => match positions.next() {
                Some(part_name) => (part_name, part),
                None if part.is_empty() => continue,
                None => return Err(format!("\"{part}\" is one part too many without a name")),
            },
        };
        if value.is_empty() && !PARTS[1..3].contains(&name) {
            return Err(format!("the part \"{name}\" of a variant needs a value"));
        }
        if !value.is_empty() {
            if seen.contains(&name) {
                return Err(format!("the part \"{name}\" of a variant is there twice"));
            }
            seen.push(name);
            variant.set(name, value)?;
        }
    }
    Ok(variant)
}

#[cfg(test)]
mod tests {
    use super::*;
    use larder_host::priority::PriorityChange;

    #[test]
    fn parts_stand_in_their_places_or_have_names() {
        let plain = variant("tuned=-b 1024 -E stride=4; noatime,barrier=0").unwrap();
        assert_eq!(plain.name, "tuned");
        assert_eq!(plain.make_options, ["-b", "1024", "-E", "stride=4"]);
        assert_eq!(plain.mount_options, "noatime,barrier=0");
        let named = "tuned=mount: noatime,barrier=0; mkfs: -b 1024 -E stride=4";
        assert_eq!(variant(named).unwrap(), plain);
        assert_eq!(variant("x=").unwrap(), Variant { name: "x".to_owned(), ..Variant::default() });
        assert_eq!(variant("x=; noatime").unwrap().mount_options, "noatime");
        let all =
            variant("x=-K; nice: 5; policy: batch; iopriority: idle; fs: xfs, btrfs").unwrap();
        let (policy, io) = ("batch".parse().ok(), "idle".parse().ok());
        let expected = PriorityChange { nice: Some(5), policy, io };
        assert_eq!((all.priority, all.make_options), (expected, vec!["-K".to_owned()]));
        let only = variant("x=fs:xfs").unwrap();
        assert!(only.is_for("xfs") && !only.is_for("ext4") && plain.is_for("ext4"));
        // A colon inside an option does not end a name.
        assert_eq!(variant("x=-E a:b; c:d").unwrap().mount_options, "c:d");
    }

    #[test]
    fn what_is_wrong_is_named() {
        for (text, reason) in [
            ("tuned", "\"tuned\" is no variant; write NAME="),
            ("=; noatime", "\"\" is no name of a variant"),
            ("a b=", "\"a b\" is no name of a variant"),
            ("x=-a; b; c", "\"c\" is one part too many without a name"),
            ("x=prio: 5", "a variant has no part \"prio\"; it has fs, mkfs,"),
            ("x=nice: 20", "\"20\" is no nice value; -20 to 19"),
            ("x=nice:", "the part \"nice\" of a variant needs a value"),
            ("x=policy: fast", "\"fast\" is no scheduling policy"),
            ("x=iopriority: 3", "\"3\" is no I/O priority"),
            ("x=; a b", "\"a b\" are no mount options"),
            ("x=-a; b; mount: c", "the part \"mount\" of a variant is there twice"),
        ] {
            let error = variant(text).unwrap_err();
            assert!(error.starts_with(reason), "{text}: {error}");
        }
    }
}
