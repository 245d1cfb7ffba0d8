//! The modules of each crate form layers: sibling modules do not import each other in a circle.
//!
//! An import from module `a::b` to module `a::c::d` is an edge from `b` to `c` in the graph of the
//! children of `a`. A module and its own children may use each other. Code for tests alone, the
//! arguments of macros, and items that a parent re-exports are not followed.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

use anyhow::{Context as _, Result};
use petgraph::algo::tarjan_scc;
use petgraph::graphmap::DiGraphMap;
use syn::visit::{self, Visit};

/// Path of a module in its crate; empty for the root.
type Module = Vec<String>;

/// Returns one violation for each circle of modules in the crates of a tree.
pub(super) fn circles(root: &Path, files: &[&str]) -> Result<Vec<String>> {
    let mut crates: BTreeMap<&str, Vec<&str>> = BTreeMap::new();
    for file in files {
        if let Some((name, path)) = file.split_once("/src/")
            && Path::new(path).extension().is_some_and(|extension| extension == "rs")
        {
            crates.entry(name).or_default().push(path);
        }
    }
    let mut found = Vec::new();
    for (name, paths) in crates {
        let mut sources = BTreeMap::new();
        for path in paths {
            let file = format!("{name}/src/{path}");
            let text = std::fs::read_to_string(root.join(&file))?;
            let parsed = syn::parse_file(&text).with_context(|| format!("parse {file}"))?;
            sources.insert(module(path), parsed);
        }
        found.extend(circles_of(name, &sources));
    }
    Ok(found)
}

/// Returns the module of a file, whose path is relative to `src`.
fn module(path: &str) -> Module {
    let path = path.strip_suffix(".rs").unwrap_or(path);
    let mut module: Module = path.split('/').map(str::to_owned).collect();
    module.pop_if(|last| matches!(last.as_str(), "lib" | "main" | "mod"));
    module
}

fn circles_of(name: &str, sources: &BTreeMap<Module, syn::File>) -> Vec<String> {
    // The edges between the children of each module, with an example.
    let mut graphs: BTreeMap<Module, BTreeMap<[&str; 2], String>> = BTreeMap::new();
    let for_tests: Vec<Module> =
        sources.iter().flat_map(|(at, file)| test_modules(at, file)).collect();
    let is_for_tests = |module: &Module| for_tests.iter().any(|it| module.starts_with(it));
    let modules: BTreeSet<&Module> = sources.keys().collect();
    let mut imports = BTreeSet::new();
    for (module, source) in sources.iter().filter(|(module, _)| !is_for_tests(module)) {
        let mut visitor = Imports { modules: &modules, at: module.clone(), found: &mut imports };
        visitor.visit_file(source);
    }
    for (from, to) in &imports {
        let common = from.iter().zip(to).take_while(|(a, b)| a == b).count();
        let (Some(a), Some(b)) = (from.get(common), to.get(common)) else { continue };
        let edges = graphs.entry(from[..common].to_vec()).or_default();
        edges
            .entry([a, b])
            .or_insert_with(|| format!("{} uses {}", from.join("::"), to.join("::")));
    }
    let mut found = Vec::new();
    for (parent, edges) in &graphs {
        let graph: DiGraphMap<&str, ()> = edges.keys().map(|&[a, b]| (a, b)).collect();
        for circle in tarjan_scc(&graph).into_iter().filter(|circle| circle.len() > 1) {
            let is_inside = |edge: &&[&str; 2]| edge.iter().all(|module| circle.contains(module));
            let examples = edges.keys().filter(is_inside).map(|edge| edges[edge].clone());
            let examples: Vec<String> = examples.collect();
            let at = [&[name.to_owned(), "src".to_owned()], &parent[..]].concat().join("/");
            found.push(format!("{at}:1: modules import each other: {}", examples.join(", ")));
        }
    }
    found
}

/// Returns the modules in files of their own that a module declares for tests alone.
fn test_modules(at: &Module, file: &syn::File) -> Vec<Module> {
    let declared = file.items.iter().filter_map(|item| match item {
        syn::Item::Mod(item) if is_for_tests(&item.attrs) => Some(item.ident.to_string()),
        _ => None,
    });
    declared.map(|name| [&at[..], &[name]].concat()).collect()
}

/// Collects the modules that a file uses.
struct Imports<'a> {
    modules: &'a BTreeSet<&'a Module>,
    /// The module whose items are visited.
    at: Module,
    found: &'a mut BTreeSet<(Module, Module)>,
}

impl Imports<'_> {
    /// Adds the module that a path leads to.
    fn add(&mut self, path: &[String]) {
        let mut module = self.at.clone();
        let mut rest = path;
        while let Some((first, others)) = rest.split_first() {
            match first.as_str() {
                "crate" => module.clear(),
                "super" => drop(module.pop()),
                "self" => {}
                _ => break,
            }
            rest = others;
        }
        for name in rest {
            module.push(name.clone());
            if !self.modules.contains(&module) {
                module.pop();
                break;
            }
        }
        // Inline modules have no file of their own.
        let mut from = self.at.clone();
        while !self.modules.contains(&from) {
            from.pop();
        }
        if module != from {
            self.found.insert((from, module));
        }
    }

    fn add_tree(&mut self, before: &[String], tree: &syn::UseTree) {
        let with = |name: &syn::Ident| [before, &[name.to_string()]].concat();
        match tree {
            syn::UseTree::Path(path) => self.add_tree(&with(&path.ident), &path.tree),
            syn::UseTree::Name(name) => self.add(&with(&name.ident)),
            syn::UseTree::Rename(name) => self.add(&with(&name.ident)),
            syn::UseTree::Glob(_) => self.add(before),
            syn::UseTree::Group(group) => {
                group.items.iter().for_each(|tree| self.add_tree(before, tree));
            }
        }
    }
}

/// Returns true if an item is compiled for tests alone.
fn is_for_tests(attributes: &[syn::Attribute]) -> bool {
    attributes.iter().any(|attribute| {
        let words = attribute.meta.require_list().map(|list| list.tokens.to_string());
        attribute.path().is_ident("cfg")
            && words.is_ok_and(|words| words == "test" || words.starts_with("any (test"))
    })
}

impl<'ast> Visit<'ast> for Imports<'_> {
    fn visit_item_use(&mut self, item: &'ast syn::ItemUse) {
        if !is_for_tests(&item.attrs) {
            self.add_tree(&[], &item.tree);
        }
    }

    fn visit_item_mod(&mut self, item: &'ast syn::ItemMod) {
        if item.content.is_some() && !is_for_tests(&item.attrs) {
            self.at.push(item.ident.to_string());
            visit::visit_item_mod(self, item);
            self.at.pop();
        }
    }

    fn visit_item_impl(&mut self, item: &'ast syn::ItemImpl) {
        if !is_for_tests(&item.attrs) {
            visit::visit_item_impl(self, item);
        }
    }

    fn visit_item_fn(&mut self, item: &'ast syn::ItemFn) {
        if !is_for_tests(&item.attrs) {
            visit::visit_item_fn(self, item);
        }
    }

    fn visit_path(&mut self, path: &'ast syn::Path) {
        let names: Vec<String> = path.segments.iter().map(|it| it.ident.to_string()).collect();
        if names.len() > 1 {
            self.add(&names);
        }
        visit::visit_path(self, path);
    }
}
