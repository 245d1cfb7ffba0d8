//! The recipes of docs/ARCHITECTURE.md, followed: each patch of `xtask/recipes` touches only the
//! files that its recipe names, and adds a test, which passes in a copy of the tree.

use super::prelude::*;

/// A patch, with the test that it adds.
struct Recipe {
    statement: &'static str,
    patch: &'static str,
    /// The maximum number of files that the patch touches.
    files_max: usize,
    /// The arguments of `cargo test` that select the test, and those that cover all things of this
    /// kind.
    test: &'static str,
}

const RECIPES: &[Recipe] = &[
    Recipe {
        statement: "a policy is two files",
        patch: "policy",
        files_max: 2,
        test: "-p larder-core --lib -- policy::lifo:: every_policy pages_that_are_handed_over",
    },
    Recipe {
        statement: "a trace format is four files and a sample",
        patch: "trace-format",
        files_max: 5,
        test: "-p larder-lab --lib --test it -- three_columns every_format one_format_under",
    },
    Recipe {
        statement: "a setting is a row, a field and its effect, with a test",
        patch: "setting",
        files_max: 4,
        test: "-p larder -p larder-server --test it -- a_label each_live_setting",
    },
];

/// The timeout of a build and its test in seconds.
const TEST_S_MAX: u64 = 40 * 60;

pub(super) fn run(env: &Env, claims: &mut Claims) -> Result<()> {
    require(missing_program(&["git", "tar"]))?;
    let tree = env.file("tree");
    copy_tree(&env.root, &tree, &env.file("tree.tar"))?;
    // Apart from other builds, which must not find a patched program.
    let target = run::target_dir()?.join("recipes");
    for recipe in RECIPES {
        claims.check(recipe.statement, || try_recipe(&env.root, &tree, &target, recipe));
    }
    Ok(())
}

/// Copies the tracked files of the working tree, with their changes.
fn copy_tree(root: &Path, tree: &Path, archive: &Path) -> Result<()> {
    let stash = stdout_of(cmd!("git stash create").current_dir(root))?;
    let commit = Some(stash.trim()).filter(|commit| !commit.is_empty()).unwrap_or("HEAD");
    stdout_of(cmd!("git archive --output {archive} {commit}").current_dir(root))?;
    std::fs::create_dir(tree).with_context(|| format!("make {}", tree.display()))?;
    stdout_of(cmd!("tar -xf {archive} -C {tree}"))?;
    Ok(())
}

/// Applies a patch, runs its test, and takes the patch back; returns the figure.
fn try_recipe(root: &Path, tree: &Path, target: &Path, recipe: &Recipe) -> Result<String> {
    let patch = root.join("xtask/recipes").join(format!("{}.patch", recipe.patch));
    let text =
        std::fs::read_to_string(&patch).with_context(|| format!("read {}", patch.display()))?;
    let files = text.lines().filter(|line| line.starts_with("diff --git ")).count();
    let files_max = recipe.files_max;
    ensure!(files <= files_max, "{files} files, of at most {files_max}");
    // Without the variable, git would ignore files below the root of a surrounding repository.
    let apply = |options: &[&str]| {
        let mut git = cmd!("git apply {options...} {patch}");
        stdout_of(
            git.current_dir(tree).env("GIT_CEILING_DIRECTORIES", tree.parent().unwrap_or(tree)),
        )
    };
    apply(&[])?;
    let mut cargo = run::cargo_with_timeout(TEST_S_MAX, tree);
    cargo.arg("test").args(recipe.test.split(' ')).env("CARGO_TARGET_DIR", target);
    cargo.env_remove("LARDER_BINARY");
    let output = stdout_of(cargo);
    apply(&["--reverse"])?;
    let output = output?;
    let counts = output.lines().filter_map(|line| line.strip_prefix("test result: ok. "));
    let counts: Vec<u32> = counts.filter_map(|line| line.split(' ').next()?.parse().ok()).collect();
    let is_run = !counts.is_empty() && counts.iter().all(|&count| count > 0);
    ensure!(is_run, "a test did not run:\n{}", run::tail(&output));
    Ok(format!("{files} files, {} tests pass", counts.iter().sum::<u32>()))
}
