//! Scripts that run in the guest and print their claims.

use std::ffi::OsString;

use super::prelude::*;
use crate::guest::{CANNOT_START, script};

/// A script in the directory `out`, which the guest sees as /out.
#[derive(Debug)]
pub(super) struct GuestScript<'a> {
    /// Its name, in xtask/guest.
    pub(super) name: &'static str,
    /// The claim that is skipped if the guest cannot be started.
    pub(super) subject: &'static str,
    /// The claim that it runs to its end.
    pub(super) ends: &'static str,
    /// Options of xtask/guest/run.
    pub(super) options: Vec<OsString>,
    pub(super) out: &'a Path,
    /// Seconds after which the guest is ended, times the factor of limits.
    pub(super) limit_s: u64,
}

impl GuestScript<'_> {
    /// Runs the script and adds its claims; returns false if the guest cannot be started.
    pub(super) fn run(self, env: &Env, claims: &mut Claims) -> Result<bool> {
        let GuestScript { name, subject, ends, options, out, limit_s } = self;
        let source = env.root.join("xtask/guest").join(name);
        std::fs::copy(source, out.join(name)).with_context(|| format!("copy {name}"))?;
        let factor = run::time_factor()?;
        let limit_s = (limit_s * factor).to_string();
        // Copies the files to a directory from which programs can run.
        let command = format!("cp /out/* /tmp && FACTOR={factor} /tmp/{name}");
        let script = script()?;
        let begun = Instant::now();
        // The guest ends with this process, even after kill -9.
        let ended = capture(cmd!(
            "setpriv --pdeathsig TERM {script} --timeout {limit_s} {options...} --out {out}
             {command}"
        ))?;
        outln!("{}", ended.stderr);
        if ended.code == Some(CANNOT_START) {
            claims.skip(subject, run::tail(&ended.stderr).lines().last().unwrap_or_default());
            return Ok(false);
        }
        let (code, seconds) = (ended.code.unwrap_or(-1), begun.elapsed().as_secs());
        let figure = format!("exit code {code}, {seconds} s with an emulated processor");
        claims.add(ends, figure, ended.ok());
        claims.collect(&ended.stdout)?;
        Ok(true)
    }
}
