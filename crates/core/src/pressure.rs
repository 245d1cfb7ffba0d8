//! Memory size under system memory pressure.
//!
//! Under pressure the target falls in steps, never below the floor; after a period without pressure
//! it rises again slowly. If pressure returns before the target is back at its maximum, other
//! programs need the memory for longer, so the next period must be twice as long. The computation
//! is pure: its inputs are the time and the pressure, its output is a number of frames.

use crate::clock::{Nanos, SECOND};

/// Parameters of the reaction to memory pressure.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct GiveBack {
    /// Minimum number of frames.
    pub floor: u32,
    /// Number of frames without memory pressure.
    pub full: u32,
    /// Frames that one step releases, per mille of `full`: 1 to 1000.
    pub step: u32,
    /// Time without pressure before the target rises.
    pub calm: Nanos,
}

/// Divisor of the frames of one step that gives the frames regained per second without pressure.
const TAKEN_PER_STEP: u32 = 4;
/// Maximum of the factor by which the period without pressure grows.
const CALM_TIMES_MAX: u64 = 64;

/// State of the reaction to memory pressure.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PressureResponse {
    target: u32,
    /// Time of the last pressure, and time of the last rise of the target.
    pressed_at: Nanos,
    taken_at: Nanos,
    /// Factor of the next period without pressure, relative to `calm`.
    times: u64,
}

impl PressureResponse {
    /// Returns the initial state, in which the cache has all its frames.
    #[must_use]
    pub fn none_returned(settings: &GiveBack, now: Nanos) -> Self {
        PressureResponse { target: settings.full, pressed_at: now, taken_at: now, times: 1 }
    }

    /// Returns the number of frames that the cache should have.
    #[must_use]
    pub fn target(&self) -> u32 {
        self.target
    }

    /// Returns the next state. `pressed` is true if the system has been short of memory since the
    /// last call. The caller calls it about once a second; each call with pressure is one step.
    #[must_use]
    pub fn next(self, settings: &GiveBack, now: Nanos, pressed: bool) -> PressureResponse {
        let GiveBack { floor, full, step, calm } = *settings;
        let floor = floor.min(full);
        let share = u64::from(full) * u64::from(step) / 1000;
        let share = u32::try_from(share).expect("a share of a u32").max(1);
        if pressed {
            let was_taking = self.taken_at > self.pressed_at && self.target < full;
            let times = if was_taking { (self.times * 2).min(CALM_TIMES_MAX) } else { self.times };
            let target = self.target.saturating_sub(share).max(floor);
            return PressureResponse { target, pressed_at: now, times, ..self };
        }
        let calm_at = self.pressed_at + calm * self.times;
        let since = now.saturating_sub(self.taken_at.max(calm_at));
        if self.target >= full || now < calm_at || since < SECOND {
            return PressureResponse { target: self.target.clamp(floor, full), ..self };
        }
        let seconds = u32::try_from(since / SECOND).unwrap_or(u32::MAX);
        let taken = (share / TAKEN_PER_STEP).max(1).saturating_mul(seconds);
        let target = self.target.saturating_add(taken).min(full);
        let times = if target == full { 1 } else { self.times };
        PressureResponse { target, taken_at: now, times, ..self }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SETTINGS: GiveBack = GiveBack { floor: 200, full: 1000, step: 100, calm: 10 * SECOND };

    /// Returns the target after each second.
    fn run(given: &mut PressureResponse, now: &mut Nanos, pressed: &[bool]) -> Vec<u32> {
        let mut targets = Vec::new();
        for &pressed in pressed {
            *now += SECOND;
            *given = given.next(&SETTINGS, *now, pressed);
            targets.push(given.target());
        }
        targets
    }

    #[test]
    fn pressure_takes_step_by_step_down_to_the_floor() {
        let (mut now, mut given) = (0, PressureResponse::none_returned(&SETTINGS, 0));
        assert_eq!(run(&mut given, &mut now, &[false; 3]), [1000; 3], "no pressure");
        let targets = run(&mut given, &mut now, &[true; 10]);
        assert_eq!(targets, [900, 800, 700, 600, 500, 400, 300, 200, 200, 200]);
    }

    #[test]
    fn it_is_taken_again_slowly_after_a_calm() {
        let (mut now, mut given) = (0, PressureResponse::none_returned(&SETTINGS, 0));
        run(&mut given, &mut now, &[true; 2]);
        assert_eq!(run(&mut given, &mut now, &[false; 10]), [800; 10], "calm for ten seconds");
        let targets = run(&mut given, &mut now, &[false; 10]);
        assert_eq!(targets, [825, 850, 875, 900, 925, 950, 975, 1000, 1000, 1000]);
    }

    #[test]
    fn pressure_while_it_is_taken_again_doubles_the_calm() {
        let (mut now, mut given) = (0, PressureResponse::none_returned(&SETTINGS, 0));
        run(&mut given, &mut now, &[true; 4]);
        run(&mut given, &mut now, &[false; 12]);
        assert_eq!(given.target(), 650);
        run(&mut given, &mut now, &[true]);
        assert_eq!(run(&mut given, &mut now, &[false; 20]), [550; 20]);
        assert_eq!(run(&mut given, &mut now, &[false]), [575]);
        run(&mut given, &mut now, &[false; 20]);
        assert_eq!(
            given,
            PressureResponse { times: 1, ..given },
            "all is back: the next calm is a short one"
        );
    }

    #[test]
    fn whatever_happens_the_target_stays_between_floor_and_full() {
        let (mut state, mut now) = (3, 0);
        let mut given = PressureResponse::none_returned(&SETTINGS, 0);
        for _ in 0..100_000 {
            state = crate::page::mix(state + 1);
            now += state % (4 * SECOND);
            let before = given.target();
            given = given.next(&SETTINGS, now, state % 7 == 0);
            assert!((200..=1000).contains(&given.target()));
            assert!(state % 7 != 0 || given.target() <= before, "more under pressure");
        }
    }
}
