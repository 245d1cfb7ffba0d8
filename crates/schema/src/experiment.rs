//! Published experiments, repeated in virtual time: `larder-experiment`, version 1, the result of
//! `larder lab`.

use serde::Serialize;

/// Schema name of the JSON form.
pub const SCHEMA: &str = "larder-experiment";
/// Schema version of the JSON form.
pub const VERSION: u32 = 1;

/// The result of an experiment.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct Experiment {
    /// The name of the experiment, as in `larder lab`.
    pub name: &'static str,
    /// Its subject and its date.
    pub title: &'static str,
    /// The modeled machine and the assumptions about it, one sentence each.
    pub machine: Vec<String>,
    /// Number of seeds.
    pub seeds: u64,
    /// The published figures.
    pub figures: Vec<Figure>,
    /// Other results of the model, over a variable.
    pub curves: Vec<Curve>,
    /// The same figures with other assumptions.
    pub variations: Vec<Variation>,
    /// Number of seeds of the variations: the first ones.
    pub variation_seeds: u64,
}

/// A published figure, and the same figure of the model.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Figure {
    /// The measured quantity.
    pub name: &'static str,
    /// The published figure.
    pub published: &'static str,
    /// The lowest and the highest value that agree with it.
    pub agrees_from_to: [f64; 2],
    /// The unit of the values: `%`, `x`, or another.
    pub unit: &'static str,
    /// The values of the model, one for each seed.
    pub values: Vec<f64>,
    /// The known reason for a difference, a sentence; empty if there is none.
    pub reason: &'static str,
}

/// Values over a variable.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Curve {
    /// The measured quantity.
    pub name: &'static str,
    /// The variable, with its unit.
    pub over: &'static str,
    /// The unit of the values.
    pub unit: &'static str,
    /// The lines.
    pub lines: Vec<Line>,
}

/// A line of a chart.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Line {
    /// Its name.
    pub name: String,
    /// Its points: variable and value.
    pub points: Vec<(f64, f64)>,
}

/// The figures with one other assumption.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Variation {
    /// The assumption.
    pub name: &'static str,
    /// The mean of each of [`Experiment::figures`].
    pub means: Vec<f64>,
}

impl Figure {
    /// Returns the mean of the values; `None` without values.
    #[must_use]
    pub fn mean(&self) -> Option<f64> {
        crate::mean(&self.values)
    }

    /// Returns the lowest and the highest value; `None` without values.
    #[must_use]
    pub fn range(&self) -> Option<[f64; 2]> {
        let low = self.values.iter().copied().reduce(f64::min)?;
        Some([low, self.values.iter().copied().reduce(f64::max)?])
    }

    /// Returns true if a value agrees with the published figure.
    #[must_use]
    pub fn agrees_with(&self, value: f64) -> bool {
        (self.agrees_from_to[0]..=self.agrees_from_to[1]).contains(&value)
    }

    /// Returns true if the mean agrees with the published figure.
    #[must_use]
    pub fn agrees(&self) -> bool {
        self.mean().is_some_and(|mean| self.agrees_with(mean))
    }
}

impl Experiment {
    /// Returns the JSON form.
    #[must_use]
    pub fn to_json(&self) -> serde_json::Value {
        crate::with_head(SCHEMA, VERSION, self)
    }
}
