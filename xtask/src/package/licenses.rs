//! The packages that are linked into the program, and their licenses.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

use anyhow::{Context as _, Result, ensure};
use serde_json::Value;

use crate::run::{self, cmd};

/// Beginnings of the names of files with a license.
const FILES: &[&str] = &["LICENSE", "LICENCE", "COPYING", "COPYRIGHT", "NOTICE", "UNLICENSE"];

/// A package of crates.io that is linked into the program.
#[derive(Debug)]
pub(crate) struct LinkedPackage {
    pub(crate) name: String,
    pub(crate) version: String,
    /// An expression of SPDX.
    pub(crate) license: String,
    dir: PathBuf,
}

/// Returns the packages that are linked into the program with all features, sorted by name.
pub(crate) fn linked_packages(root: &Path) -> Result<Vec<LinkedPackage>> {
    let host = run::stdout_of(cmd!("rustc --print host-tuple"))?;
    let mut cargo = run::cargo(root);
    cargo.args(["metadata", "--format-version=1", "--locked", "--features", "larder/full"]);
    let metadata = run::json_of(cargo.arg("--filter-platform").arg(host.trim()))?;
    let list = |value: &Value| value.as_array().cloned().unwrap_or_default();
    let packages = list(&metadata["packages"]);
    let nodes = list(&metadata["resolve"]["nodes"]);
    let nodes: BTreeMap<&str, &Value> =
        nodes.iter().filter_map(|node| Some((node["id"].as_str()?, node))).collect();
    let larder = packages.iter().find(|package| package["name"] == "larder");
    let mut queue = vec![larder.and_then(|it| it["id"].as_str()).context("no package larder")?];
    let mut linked = BTreeSet::new();
    while let Some(id) = queue.pop() {
        if !linked.insert(id) {
            continue;
        }
        let dependencies = nodes.get(id).and_then(|node| node["deps"].as_array());
        for dependency in dependencies.into_iter().flatten() {
            let kinds = dependency["dep_kinds"].as_array();
            // Dependencies of tests and build scripts have a kind.
            let is_linked = kinds.is_some_and(|kinds| kinds.iter().any(|it| it["kind"].is_null()));
            queue.extend(dependency["pkg"].as_str().filter(|_| is_linked));
        }
    }
    let is_macro = |package: &Value| {
        list(&package["targets"]).iter().any(|target| target["kind"][0] == "proc-macro")
    };
    let is_foreign = |package: &&Value| {
        let is_linked = package["id"].as_str().is_some_and(|id| linked.contains(id));
        is_linked && package["source"].is_string() && !is_macro(package)
    };
    let mut found = Vec::new();
    for package in packages.iter().filter(is_foreign) {
        let text = |name: &str| package[name].as_str().unwrap_or_default().to_owned();
        let dir = Path::new(&text("manifest_path")).parent().map(Path::to_path_buf);
        found.push(LinkedPackage {
            name: text("name"),
            version: text("version"),
            license: text("license"),
            dir: dir.context("a package has no directory")?,
        });
    }
    found.sort_by(|a, b| (&a.name, &a.version).cmp(&(&b.name, &b.version)));
    ensure!(!found.is_empty(), "no package of crates.io is linked");
    Ok(found)
}

/// Returns the list of the linked packages and the texts of their licenses, each text once.
pub(super) fn text(root: &Path) -> Result<String> {
    let packages = linked_packages(root)?;
    let mut list = String::from("Larder contains these packages of crates.io:\n\n");
    let mut texts: BTreeMap<String, Vec<String>> = BTreeMap::new();
    for package in &packages {
        let name = format!("{} {}", package.name, package.version);
        let license = package.license.replace('/', " OR ");
        let mut files = license_files(&package.dir)?;
        ensure!(!license.is_empty() || !files.is_empty(), "{name} states no license");
        list.extend([name.as_str(), ": ", license.as_str(), "\n"]);
        files.sort();
        for file in files {
            let bytes = std::fs::read(&file).with_context(|| format!("read {}", file.display()))?;
            let text = String::from_utf8_lossy(&bytes).trim().to_owned();
            texts.entry(text).or_default().push(name.clone());
        }
    }
    for (text, mut names) in texts {
        names.dedup();
        let rule = "-".repeat(80);
        list.extend(["\n", &rule, "\n", &names.join(", "), "\n\n", &text, "\n"]);
    }
    Ok(list)
}

fn license_files(dir: &Path) -> Result<Vec<PathBuf>> {
    let entries = std::fs::read_dir(dir).with_context(|| format!("list {}", dir.display()))?;
    let mut files = Vec::new();
    for entry in entries {
        let path = entry.with_context(|| format!("list {}", dir.display()))?.path();
        let name = path.file_name().unwrap_or_default().to_string_lossy().to_uppercase();
        if path.is_file() && FILES.iter().any(|start| name.starts_with(start)) {
            files.push(path);
        }
    }
    Ok(files)
}
