//! `structure [REVISION]...`: the size of the product code of each crate, at these revisions.
//!
//! Product code is that of `crates/*/src` without tests, helpers of tests, and entry points for
//! fuzzing.

use std::collections::BTreeMap;
use std::path::Path;

use anyhow::{Context as _, Result};
use syn::spanned::Spanned;
use syn::visit::{self, Visit};

use crate::run::{self, cmd};

/// The longest function and the longest file that are not counted as long, in lines.
const FUNCTION_LINES: usize = 60;
const FILE_LINES: usize = 300;
/// Parts of the paths of files that are no product code.
const NO_PRODUCT: [&str; 7] = [
    "/tests.rs",
    "/tests/",
    "/testing.rs",
    "/testing/",
    "fuzzing.rs",
    "crates/testing/",
    "crates/fuzz/",
];

/// The sizes of the product code of a crate.
#[derive(Default)]
struct Sizes {
    /// Lines of each file.
    files: Vec<usize>,
    long_functions: usize,
    public_items: usize,
    /// Number of fields and name of the structure with the most fields.
    largest: (usize, String),
    /// Lines of the tests in the present file.
    test_lines: usize,
}

impl Sizes {
    fn add(&mut self, text: &str) -> Result<()> {
        self.test_lines = 0;
        self.visit_file(&syn::parse_file(text)?);
        self.files.push(text.lines().count().saturating_sub(self.test_lines));
        Ok(())
    }

    fn count_function(&mut self, function: &impl Spanned, visibility: &syn::Visibility) {
        self.long_functions += usize::from(lines_of(function) > FUNCTION_LINES);
        self.count_item(visibility);
    }

    fn count_item(&mut self, visibility: &syn::Visibility) {
        self.public_items += usize::from(matches!(visibility, syn::Visibility::Public(_)));
    }
}

fn lines_of(code: &impl Spanned) -> usize {
    let span = code.span();
    span.end().line + 1 - span.start().line
}

impl<'ast> Visit<'ast> for Sizes {
    fn visit_item_mod(&mut self, module: &'ast syn::ItemMod) {
        if module.attrs.iter().any(|it| it.path().is_ident("cfg") && is_test(it)) {
            self.test_lines += lines_of(module);
        } else {
            visit::visit_item_mod(self, module);
        }
    }

    fn visit_item_fn(&mut self, function: &'ast syn::ItemFn) {
        self.count_function(function, &function.vis);
    }

    fn visit_impl_item_fn(&mut self, function: &'ast syn::ImplItemFn) {
        self.count_function(function, &function.vis);
    }

    fn visit_item_struct(&mut self, item: &'ast syn::ItemStruct) {
        self.count_item(&item.vis);
        if item.fields.len() > self.largest.0 {
            self.largest = (item.fields.len(), item.ident.to_string());
        }
    }

    fn visit_item_enum(&mut self, item: &'ast syn::ItemEnum) {
        self.count_item(&item.vis);
    }

    fn visit_item_trait(&mut self, item: &'ast syn::ItemTrait) {
        self.count_item(&item.vis);
    }

    fn visit_item_const(&mut self, item: &'ast syn::ItemConst) {
        self.count_item(&item.vis);
    }

    fn visit_item_type(&mut self, item: &'ast syn::ItemType) {
        self.count_item(&item.vis);
    }
}

/// Returns true for `#[cfg(test)]`.
fn is_test(attribute: &syn::Attribute) -> bool {
    attribute.meta.require_list().is_ok_and(|list| list.tokens.to_string() == "test")
}

/// Returns the sizes of each crate at a revision.
fn at(revision: &str) -> Result<BTreeMap<String, Sizes>> {
    let root = run::workspace()?;
    let list =
        run::stdout_of(cmd!("git ls-tree -r --name-only {revision} crates").current_dir(&root))?;
    let mut crates: BTreeMap<String, Sizes> = BTreeMap::new();
    for path in list.lines() {
        let Some((name, _)) = path.split_once("/src/") else { continue };
        let is_rust = Path::new(path).extension().is_some_and(|extension| extension == "rs");
        if !is_rust || NO_PRODUCT.iter().any(|part| path.contains(part)) {
            continue;
        }
        let object = format!("{revision}:{path}");
        let text = run::stdout_of(cmd!("git show {object}").current_dir(&root))?;
        let sizes = crates.entry(name.replace("crates/", "")).or_default();
        sizes.add(&text).with_context(|| format!("parse {object}"))?;
    }
    Ok(crates)
}

pub(crate) fn command(revisions: &[String]) -> Result<()> {
    let head = ["HEAD".to_owned()];
    let revisions = if revisions.is_empty() { &head } else { revisions };
    for revision in revisions {
        println!("\n{revision}");
        println!(
            "{:<10} {:>7} {:>6} {:>7} {:>6} {:>10} {:>7}  largest structure",
            "crate", "lines", "files", "median", ">300", "functions>60", "public"
        );
        let crates = at(revision)?;
        let mut sum = [0; 5];
        for (name, sizes) in crates {
            let mut files = sizes.files;
            files.sort_unstable();
            let long_files = files.iter().filter(|lines| **lines > FILE_LINES).count();
            let lines: usize = files.iter().sum();
            let median = files.get(files.len() / 2).copied().unwrap_or_default();
            let counts = [lines, files.len(), long_files, sizes.long_functions, sizes.public_items];
            sum.iter_mut().zip(counts).for_each(|(sum, count)| *sum += count);
            let [lines, files, long_files, long_functions, public] = counts;
            let (fields, structure) = sizes.largest;
            println!(
                "{name:<10} {lines:>7} {files:>6} {median:>7} {long_files:>6} \
                 {long_functions:>12} {public:>7}  {structure} ({fields} fields)"
            );
        }
        let [lines, files, long_files, long_functions, public] = sum;
        println!(
            "{:<10} {lines:>7} {files:>6} {:>7} {long_files:>6} {long_functions:>12} {public:>7}",
            "all", ""
        );
    }
    Ok(())
}
