//! The pages of all commands, in Chromium: no error, no content wider than the screen, no serious
//! finding of axe-core, and a size below 300 KB. The long form also makes screenshots.
//!
//! A page under test is shown in a frame of each width, with axe-core, whose results the
//! surrounding page receives as messages.

use super::prelude::*;
use crate::daemon::Daemon;
use crate::{packages, wheel};
use rustix::process::Signal;

/// Widths of the screens, in pixels.
const WIDTHS: [u32; 3] = [400, 800, 1600];
/// Maximum size of a page.
const BYTES_MAX: u64 = 300_000;
/// The package with axe-core, its version, and its script.
const AXE: [&str; 3] = ["axe-playwright-python", "0.1.8", "axe_playwright_python/axe.min.js"];
/// Time in seconds after which Chromium is ended.
const CHROMIUM_S_MAX: u64 = 60;
/// Directory of the screenshots below the target directory.
const SCREENSHOTS: &str = "pages";

/// A page, and the arguments of the commands that make it in an empty directory; a command with
/// `&` at its end runs until the page is made.
struct Page {
    name: &'static str,
    commands: &'static [&'static str],
    needs_root: bool,
}

const fn page(name: &'static str, commands: &'static [&'static str]) -> Page {
    Page { name, commands, needs_root: false }
}

const PAGES: &[Page] = &[
    page(
        "size",
        &[
            "trace synth zipf a.ltr --requests 200000 --pages 20000 --exponent 0.8",
            "size a.ltr -o size.html",
        ],
    ),
    page("fileload", &["bench fileload . --size 4MiB --read 4KiB,64KiB -o fileload.html"]),
    page(
        "iozone",
        &["bench iozone . -n 64KiB -g 1MiB -y 4KiB -q 256KiB -i 0 -i 1 --page iozone.html"],
    ),
    page("postmark", &["bench postmark --number 100 --transactions 200 -o postmark.html"]),
    page("probe", &["bench probe . --size 1MiB --length 100ms -o probe.html"]),
    page(
        "server",
        &["bench server . --clients 1,2,4 --think 1 --warm-up 100ms --measure 200ms --trials 2 \
           -o server.html"],
    ),
    page(
        "compare",
        &["compare BENCH-RUNS/probe-before.json BENCH-RUNS/probe-after.json \
                       -o compare.html"],
    ),
    page("advise", &["advise --sample --requests 1000 -o advise.html"]),
    page("frag", &["bench fragments . --size 4MiB --extents 4", "frag . -o frag.html"]),
    page("bottleneck", &["advise --live --for 1s -o bottleneck.html"]),
    page("perfmon", &["report DOCS/perfmon/published.csv -o perfmon.html"]),
    Page {
        name: "matrix",
        commands: &["bench matrix --workload postmark --fs ext4 --scheduler none,mq-deadline \
                     --size 256MiB --scratch . --trials 2 -o matrix.html -- --number 100 \
                     --transactions 100"],
        needs_root: true,
    },
    Page {
        name: "try",
        commands: &["try . --workload probe --trials 4 --output try.html -- --size 1MiB \
                     --length 100ms"],
        needs_root: true,
    },
    Page {
        name: "watch",
        commands: &[
            "bench fileload . --size 16MiB --read 4KiB,64KiB,1MiB --trials 20 &",
            "watch . --for 4s --interval 500ms -o watch.html",
        ],
        needs_root: true,
    },
];

pub(super) fn run(env: &Env, claims: &mut Claims) -> Result<()> {
    packages::install_these(&[("chromium", "chromium")])?;
    let script = wheel::file(AXE[0], AXE[1], AXE[2])?;
    let axe =
        std::fs::read_to_string(&script).with_context(|| format!("read {}", script.display()))?;
    claims.check("a page with faults: each is found", || check_faults(env, &axe));
    for page in PAGES {
        let statement = format!("{}.html: no error, overflow or serious finding", page.name);
        if page.needs_root && !run::is_root() {
            claims.skip(&statement, "only root can make it");
            continue;
        }
        claims.check(&statement, || check_page(env, page, &axe));
    }
    Ok(())
}

/// A page that is too wide, has an image without a description, and a script that fails.
const FAULTS: &str = "<!DOCTYPE html><html lang=\"en\"><head><title>faults</title></head><body>\
                      <main><h1>Faults</h1><p style=\"width:3000px\">wide</p><img \
                      src=\"data:,\"></main><script>missing()</script></body></html>";

/// Checks that all faults of a page are found; returns their number.
fn check_faults(env: &Env, axe: &str) -> Result<String> {
    let directory = env.file("faults");
    std::fs::create_dir(&directory).context("make a directory for a page")?;
    let problems = problems(&directory, FAULTS, axe)?;
    for part in ["pixels too wide", "image-alt", "missing"] {
        let is_found = problems.iter().any(|problem| problem.contains(part));
        ensure!(is_found, "no problem with {part}: {problems:?}");
    }
    Ok(problems.len().to_string())
}

/// Makes a page and checks it; returns its size.
fn check_page(env: &Env, page: &Page, axe: &str) -> Result<String> {
    let directory = env.file(page.name);
    std::fs::create_dir(&directory).context("make a directory for a page")?;
    let mut loads = Vec::new();
    for line in page.commands {
        let path = |name: &str| env.root.join(name).to_string_lossy().into_owned();
        let line = line.replace("BENCH-RUNS", &path("bench-runs")).replace("DOCS", &path("docs"));
        let mut larder = Command::new(&env.larder);
        larder.args(line.trim_end_matches('&').split_whitespace()).current_dir(&directory);
        if line.ends_with('&') {
            loads.push(Daemon::start("load", env.dir(), |_| larder)?);
            continue;
        }
        let out = capture(&mut larder)?;
        // `compare` ends with 1 if the second run is worse.
        let is_done = out.ok() || (page.name == "compare" && out.code == Some(1));
        ensure!(is_done, "larder {line}: {}", out.stderr);
    }
    for load in loads {
        load.end(Signal::INT)?;
    }
    let file = directory.join(format!("{}.html", page.name));
    let html =
        std::fs::read_to_string(&file).with_context(|| format!("read {}", file.display()))?;
    let bytes = html.len() as u64;
    ensure!(bytes < BYTES_MAX, "{bytes} bytes, of fewer than {BYTES_MAX}");
    let problems = problems(&directory, &html, axe)?;
    ensure!(problems.is_empty(), "{}", problems.join("; "));
    if !env.options.quick {
        screenshots(&file, page.name)?;
    }
    Ok(format!("{} KB", bytes.div_ceil(1000)))
}

/// Shows a page at each width, and returns the problems found.
fn problems(directory: &Path, html: &str, axe: &str) -> Result<Vec<String>> {
    let write = |name: &str, text: &str| {
        std::fs::write(directory.join(name), text).with_context(|| format!("write {name}"))
    };
    // Folded details are part of the page.
    let opened = html.replace("<details>", "<details open=\"\">");
    let probe = "addEventListener('load', () => axe.run({resultTypes: ['violations']}).then(found \
                 => parent.postMessage({width: innerWidth, overflow: \
                 document.documentElement.scrollWidth - innerWidth, serious: \
                 found.violations.filter(it => ['serious', 'critical'].includes(it.impact))\
                 .map(it => it.id + ' ' + it.nodes[0].html)}, '*')))";
    let errors = "addEventListener('error', event => parent.postMessage({width: innerWidth, \
                  error: event.message}, '*'))";
    let scripts =
        format!("<script>{errors}</script><script>{axe}</script><script>{probe}</script>");
    let tested = opened.replacen("<head>", &format!("<head>{scripts}"), 1);
    write("tested.html", &tested)?;
    let frame = |width| {
        format!(
            "<iframe src=\"tested.html\" width=\"{width}\" height=\"900\" \
             style=\"border:0\"></iframe>"
        )
    };
    let frames = WIDTHS.map(frame).concat();
    let surrounding = format!(
        "<!DOCTYPE html><pre id=\"found\"></pre><script>addEventListener('message', event => \
         found.textContent += JSON.stringify(event.data) + '\\n')</script>{frames}"
    );
    write("frames.html", &surrounding)?;
    let dom = chromium(directory, &["--virtual-time-budget=20000", "--dump-dom"], "frames.html")?;
    let begin = dom.find("<pre id=\"found\">").context("Chromium shows no page")? + 16;
    let end = dom[begin..].find("</pre>").context("Chromium shows no result")? + begin;
    let found = dom[begin..end].replace("&lt;", "<").replace("&gt;", ">").replace("&amp;", "&");
    let mut problems = Vec::new();
    let mut measured = Vec::new();
    for line in found.lines() {
        let result: Value = serde_json::from_str(line).context("parse a result of Chromium")?;
        let width = result["width"].as_u64().context("a result without a width")?;
        if let Some(overflow) = result["overflow"].as_i64() {
            measured.push(width);
            if overflow > 0 {
                problems.push(format!("{overflow} pixels too wide at {width}"));
            }
        }
        let serious = result["serious"].as_array().into_iter().flatten();
        let serious = serious.filter_map(Value::as_str);
        problems.extend(serious.map(|it| format!("axe at {width}: {it}")));
        problems.extend(result["error"].as_str().map(|error| format!("error: {error}")));
    }
    measured.sort_unstable();
    ensure!(measured == WIDTHS.map(u64::from), "axe-core gave results at {measured:?}: {found}");
    Ok(problems)
}

/// Writes pictures of a page at each width, light and dark, below the target directory.
fn screenshots(page: &Path, name: &str) -> Result<()> {
    let directory = run::target_dir()?.join(SCREENSHOTS);
    std::fs::create_dir_all(&directory).context("make the directory of the screenshots")?;
    let folder = page.parent().context("the page is in a directory")?;
    for width in WIDTHS {
        for scheme in ["light", "dark"] {
            let picture = directory.join(format!("{name}-{width}-{scheme}.png"));
            // Chromium's headless windows have a minimum width, but frames have none.
            let frame = format!(
                "<!DOCTYPE html><meta name=\"color-scheme\" content=\"{scheme}\"><style>body{{\
                 margin:0;color-scheme:{scheme}}}</style><iframe src=\"{name}.html\" \
                 width=\"{width}\" height=\"2400\" style=\"border:0;color-scheme:{scheme}\">\
                 </iframe>"
            );
            std::fs::write(folder.join("shot.html"), frame).context("write shot.html")?;
            let size = format!("--window-size={},2400", width.max(500));
            let picture = format!("--screenshot={}", picture.display());
            chromium(folder, &[&size, &picture, "--hide-scrollbars"], "shot.html")?;
        }
    }
    Ok(())
}

/// Opens a file of a directory in Chromium, and returns its standard output.
fn chromium(directory: &Path, options: &[&str], file: &str) -> Result<String> {
    let profile = format!("--user-data-dir={}", directory.join("profile").display());
    let mut chromium = cmd!(
        CHROMIUM_S_MAX,
        "chromium --headless=new --no-sandbox --disable-gpu --no-first-run
         --disable-background-networking --allow-file-access-from-files {profile} {options...}"
    );
    chromium.arg(format!("file://{}", directory.join(file).display()));
    stdout_of(chromium)
}
