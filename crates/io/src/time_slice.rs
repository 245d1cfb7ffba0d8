//! Short time slices for threads that serve requests.
//!
//! The kernel's scheduler runs the thread with the earliest deadline, which is one time slice after
//! the thread's fair share. A thread that serves requests needs the processor for some tens of
//! microseconds. With a short slice, it gets the processor from threads that compute, also from
//! other clients' threads, as soon as a request arrives; its fair share is the same.
//!
//! Threads of mounts keep their slice: they take many requests at a time, and programs that use as
//! many processors as there are would be interrupted for each (reads by two jobs on two processors
//! were 13 % slower).
//!
//! Kernels before 6.12 ignore the length of the slice.

use std::mem::size_of;

/// Length of the time slice in nanoseconds: the minimum of the kernel (`__setparam_fair` in
/// kernel/sched/fair.c).
const SLICE_NS: u64 = 100_000;

/// `struct sched_attr` of include/uapi/linux/sched/types.h, first version.
#[derive(Clone, Copy, Debug, Default)]
#[repr(C)]
struct SchedAttr {
    size: u32,
    policy: u32,
    flags: u64,
    nice: i32,
    priority: u32,
    runtime: u64,
    deadline: u64,
    period: u64,
}

/// Shortens the time slice of this thread, if it has the default scheduling policy. An error is
/// ignored: the thread then serves with the slice that it has.
pub(crate) fn shorten() {
    let Some(mut attributes) = of_this_thread() else { return };
    let is_fair = attributes.policy == libc::SCHED_OTHER.cast_unsigned();
    if !is_fair || attributes.runtime == SLICE_NS {
        return;
    }
    attributes.runtime = SLICE_NS;
    let attributes = &raw const attributes;
    // SAFETY: the kernel reads `size` bytes at the pointer, all of which are initialized.
    unsafe { libc::syscall(libc::SYS_sched_setattr, 0, attributes, 0) };
}

/// Returns the scheduling attributes of this thread; none if the kernel refuses.
fn of_this_thread() -> Option<SchedAttr> {
    let mut attributes = SchedAttr::default();
    let (pointer, size) = (&raw mut attributes, size_of::<SchedAttr>());
    // SAFETY: the kernel writes at most `size` bytes at the pointer; any bytes are valid.
    let result = unsafe { libc::syscall(libc::SYS_sched_getattr, 0, pointer, size, 0) };
    (result == 0).then_some(attributes)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_slice_of_this_thread_alone_gets_short_and_its_nice_value_stays() {
        let before = of_this_thread().expect("the attributes of a thread");
        let inside = std::thread::spawn(|| {
            // SAFETY: the call takes integers.
            unsafe { libc::setpriority(libc::PRIO_PROCESS, 0, 5) };
            shorten();
            of_this_thread().expect("the attributes of a thread")
        });
        let inside = inside.join().expect("no panic");
        assert_eq!((inside.policy, inside.nice), (before.policy, 5));
        // The kernel does not report slices before 6.12.
        assert!([0, SLICE_NS].contains(&inside.runtime), "{inside:?}");
        let after = of_this_thread().expect("the attributes of a thread");
        assert_eq!(after.runtime, before.runtime, "the slice of another thread");
    }

    #[test]
    fn a_thread_with_another_policy_keeps_it() {
        let inside = std::thread::spawn(|| {
            let parameters = libc::sched_param { sched_priority: 0 };
            // SAFETY: the kernel reads the parameters at the pointer.
            unsafe { libc::sched_setscheduler(0, libc::SCHED_BATCH, &raw const parameters) };
            let before = of_this_thread().expect("the attributes of a thread");
            shorten();
            (before, of_this_thread().expect("the attributes of a thread"))
        });
        let (before, after) = inside.join().expect("no panic");
        assert_eq!(after.policy, libc::SCHED_BATCH.cast_unsigned());
        assert_eq!(after.runtime, before.runtime);
    }
}
