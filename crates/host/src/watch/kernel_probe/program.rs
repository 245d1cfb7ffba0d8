//! The two BPF programs: one runs at a lookup, the other when the kernel adds a folio to the page
//! cache.
//!
//! If none of the pages of a lookup can be fresh, the program counts it by thread and file;
//! otherwise it reports it, together with the thread's lookups since its previous record. So the
//! rule of [`super::super::lookup`] sees the same as if each lookup had been reported. Two numbers
//! per file decide if it may have fresh pages: the time of the last page addition, which the second
//! program writes, and the time up to which all added pages have been looked up, written or
//! dropped, which [`super::KernelProbe`] writes. They are equal if no page is fresh.
//!
//! Invariants: only a thread itself writes its values, so no program waits for another; events that
//! cannot be reported are counted as lost.

use crate::bpf::{Access, Alu, Code, JumpCondition, Label, Reg, Ring, Types, TypesError, helper};
use crate::syscall::bpf::Map;
use Reg::{R0, R1, R2, R3, R4, R5, R6, R7, R8, R9, R10};

/// Maximum number of pairs of thread and file with a counter.
pub(super) const PAIRS_MAX: u32 = 1 << 14;
/// Maximum number of files with a counter.
pub(super) const FILES_MAX: u32 = 1 << 14;
/// Bytes of a pair's counts: requests, pages and pages in order, padded so that two processors do
/// not write to the same cache line. Slot 0 counts lost records.
pub(super) const COUNTS_BYTES: u32 = 1 << COUNTS_SHIFT;
const COUNTS_SHIFT: i32 = 6;
/// Bytes of a file's state: time of the last page addition, and time up to which no page is fresh.
pub(super) const STATE_BYTES: u32 = 1 << STATE_SHIFT;
const STATE_SHIFT: i32 = 4;

/// Value at the start of a record, in place of the event number; real event numbers are far
/// smaller.
pub(super) const RECORD_ID: u16 = 0xfffe;
/// Record kinds: a lookup, and a page addition.
pub(super) const LOOKUP: u16 = 0;
pub(super) const PAGE_ADDED: u16 = 1;
/// Size of a record. The constants that follow are field offsets.
pub(super) const RECORD_BYTES: i32 = 96;
pub(super) const KIND: i16 = 2;
pub(super) const THREAD: i16 = 4;
pub(super) const TIME: i16 = 8;
pub(super) const INO: i16 = 16;
pub(super) const DEV: i16 = 24;
pub(super) const SKIPPED: i16 = 28;
pub(super) const FIRST: i16 = 32;
pub(super) const LAST: i16 = 40;
pub(super) const PREVIOUS_INO: i16 = 48;
pub(super) const PREVIOUS_DEV: i16 = 56;
pub(super) const PREVIOUS_IN_ORDER: i16 = 60;
pub(super) const PREVIOUS_FIRST: i16 = 64;
pub(super) const PREVIOUS_LAST: i16 = 72;
pub(super) const PREVIOUS_PAGES: i16 = 80;
pub(super) const LAST_IN_FILE: i16 = 88;

/// Words of a thread's state: its last lookup, and the slots of its counters.
pub(super) const THREAD_WORDS: u32 = 7;
const STATE_INO: i16 = 0;
const STATE_DEV: i16 = 8;
const STATE_SKIPPED: i16 = 12;
const STATE_FIRST: i16 = 16;
const STATE_LAST: i16 = 24;
const STATE_IN_ORDER: i16 = 32;
const STATE_PAIR: i16 = 36;
const STATE_PAGES: i16 = 40;
const STATE_FILE: i16 = 48;

/// Stack offsets.
const TID: i16 = -4;
const SAME_FILE: i16 = -8;
const COUNTED_HERE: i16 = -16;
const KEY: i16 = -32;
const NOW: i16 = -40;
const STACK_LAST_IN_FILE: i16 = -48;

/// `BPF_RB_NO_WAKEUP`: the reader polls the ring every few milliseconds.
const NO_WAKEUP: i32 = 1;
/// `BPF_LOCAL_STORAGE_GET_F_CREATE`: creates the value of a new thread.
const CREATE: i32 = 1;

#[derive(Debug)]
pub(super) struct Maps {
    pub(super) threads: Map,
    /// Slots of pair and file, by thread and file.
    pub(super) pairs: Map,
    pub(super) files: Map,
    pub(super) states: Map,
    pub(super) counts: Map,
    pub(super) ring: Ring,
}

/// Returns the flag of a folio with more than one page.
fn large_flag(types: &Types) -> Result<i32, TypesError> {
    let large = 1_i32.checked_shl(types.enumerator("pageflags", "PG_head")?);
    let large = large.filter(|flag| *flag > 0);
    large.ok_or_else(|| TypesError::NotFound("a low PG_head".to_owned()))
}

/// Restriction of the programs to certain files.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct FileFilter {
    /// Only files on this device.
    pub(super) dev: Option<u32>,
    /// For lookups, only the file with this inode number.
    pub(super) ino: Option<u64>,
}

/// Loads inode and device number into `R8` and `R9`, from the mapping in `R7`; jumps to `out` for
/// files outside the filter.
fn load_file(
    code: &mut Code,
    types: &Types,
    filter: FileFilter,
    out: Label,
) -> Result<(), TypesError> {
    code.load(Access::U64, R7, R7, types.offset("address_space", "host")?);
    code.load(Access::U64, R8, R7, types.offset("inode", "i_ino")?);
    code.load(Access::U64, R1, R7, types.offset("inode", "i_sb")?);
    code.load(Access::U32, R9, R1, types.offset("super_block", "s_dev")?);
    if let Some(dev) = filter.dev {
        code.set_wide(R1, u64::from(dev));
        code.jump_if(R9, JumpCondition::NotEqual, R1, out);
    }
    if let Some(ino) = filter.ino {
        code.set_wide(R1, ino);
        code.jump_if(R8, JumpCondition::NotEqual, R1, out);
    }
    Ok(())
}

/// Loads the value of the running thread, or 0, into `R7`, and stores its ID on the stack.
fn load_thread(code: &mut Code, types: &Types, maps: &Maps, flags: i32) -> Result<(), TypesError> {
    code.call(helper::GET_CURRENT_TASK_BTF);
    code.load(Access::U32, R1, R0, types.offset("task_struct", "pid")?);
    code.store(Access::U32, R10, TID, R1);
    code.alu(Alu::Mov, R2, R0);
    code.set_map(R1, maps.threads.fd());
    code.alu_value(Alu::Mov, R3, 0);
    code.alu_value(Alu::Mov, R4, flags);
    code.call(helper::TASK_STORAGE_GET);
    code.alu(Alu::Mov, R7, R0);
    Ok(())
}

/// `R0 =` the value in a map for the file in `R8` and `R9` and the thread ID on the stack.
fn search_map(code: &mut Code, map: &Map) {
    code.store(Access::U64, R10, KEY, R8);
    code.store(Access::U32, R10, KEY + 8, R9);
    code.set_map(R1, map.fd());
    code.alu(Alu::Mov, R2, R10);
    code.alu_value(Alu::Add, R2, KEY.into());
    code.call(helper::MAP_LOOKUP_ELEM);
}

/// `to =` the address of the array element with the index in `number`.
fn element(code: &mut Code, to: Reg, array: &Map, number: Reg, max: u32, shift: i32) {
    let mask = i32::try_from(max - 1).expect("small");
    code.alu_value(Alu::And, number, mask);
    code.alu_value(Alu::ShiftLeft, number, shift);
    code.set_array(to, array.fd());
    code.alu(Alu::Add, to, number);
}

fn store_time(code: &mut Code) {
    code.call(helper::KTIME_GET_NS);
    code.store(Access::U64, R10, NOW, R0);
}

/// `R0 =` space for a record with its header filled in; jumps to `lost` if the ring is full.
fn reserve(code: &mut Code, maps: &Maps, kind: u16, lost: Label) {
    code.set_map(R1, maps.ring.fd());
    code.alu_value(Alu::Mov, R2, RECORD_BYTES);
    code.alu_value(Alu::Mov, R3, 0);
    code.call(helper::RINGBUF_RESERVE);
    code.jump_if_value(R0, JumpCondition::Equal, 0, lost);
    code.store_value(Access::U16, R0, 0, i32::from(RECORD_ID.cast_signed()));
    code.store_value(Access::U16, R0, KIND, kind.into());
    code.load(Access::U32, R1, R10, TID);
    code.store(Access::U32, R0, THREAD, R1);
    code.load(Access::U64, R1, R10, NOW);
    code.store(Access::U64, R0, TIME, R1);
    code.store(Access::U64, R0, INO, R8);
    code.store(Access::U32, R0, DEV, R9);
}

/// Copies the lookups of the thread in `R7` since its previous record into the record.
fn copy_unreported(code: &mut Code) {
    for (access, from, to) in [
        (Access::U32, STATE_SKIPPED, SKIPPED),
        (Access::U64, STATE_INO, PREVIOUS_INO),
        (Access::U32, STATE_DEV, PREVIOUS_DEV),
        (Access::U32, STATE_IN_ORDER, PREVIOUS_IN_ORDER),
        (Access::U64, STATE_FIRST, PREVIOUS_FIRST),
        (Access::U64, STATE_LAST, PREVIOUS_LAST),
        (Access::U64, STATE_PAGES, PREVIOUS_PAGES),
    ] {
        code.load(access, R1, R7, from);
        code.store(access, R0, to, R1);
    }
    code.store_value(Access::U32, R7, STATE_SKIPPED, 0);
}

fn submit(code: &mut Code) {
    code.alu(Alu::Mov, R1, R0);
    code.alu_value(Alu::Mov, R2, NO_WAKEUP);
    code.call(helper::RINGBUF_SUBMIT);
}

/// Ends both programs.
fn emit_end(code: &mut Code, maps: &Maps, lost: Label, out: Label) {
    code.alu_value(Alu::Mov, R0, 0);
    code.exit();
    code.set(lost);
    code.set_array(R1, maps.counts.fd());
    code.alu_value(Alu::Mov, R2, 1);
    code.add_atomically(R1, 0, R2);
    code.set(out);
    code.alu_value(Alu::Mov, R0, 0);
    code.exit();
}

/// Stores the last page of the request that the file contains on the stack; `R7` holds the inode.
/// Readers request as much as their buffers hold.
fn last_page(code: &mut Code, types: &Types) -> Result<(), TypesError> {
    let inside = code.label();
    let shift = i32::try_from(crate::residency::page_bytes().trailing_zeros()).expect("small");
    code.load(Access::U64, R1, R6, 16);
    code.load(Access::U64, R2, R7, types.offset("inode", "i_size")?);
    // A size of 0 yields a number above any page.
    code.alu_value(Alu::Add, R2, -1);
    code.alu_value(Alu::ShiftRight, R2, shift);
    code.jump_if(R2, JumpCondition::Above, R1, inside);
    code.alu(Alu::Mov, R1, R2);
    code.set(inside);
    code.store(Access::U64, R10, STACK_LAST_IN_FILE, R1);
    Ok(())
}

/// Returns the program for lookups: `(struct address_space *mapping, pgoff_t first, pgoff_t
/// last)`.
pub(super) fn looked_up(
    types: &Types,
    maps: &Maps,
    filter: FileFilter,
) -> Result<Vec<u64>, TypesError> {
    let mut code = Code::default();
    let [lost, out, other, searched, found, counted, report, update] =
        std::array::from_fn(|_| code.label());
    code.alu(Alu::Mov, R6, R1);
    code.load(Access::U64, R7, R6, 0);
    load_file(&mut code, types, filter, out)?;
    last_page(&mut code, types)?;
    code.load(Access::U64, R1, R6, 8);
    code.load(Access::U64, R2, R10, STACK_LAST_IN_FILE);
    code.jump_if(R1, JumpCondition::Above, R2, out);
    load_thread(&mut code, types, maps, CREATE)?;
    code.jump_if_value(R7, JumpCondition::Equal, 0, lost);
    // Most threads repeat lookups in the same file.
    code.load(Access::U64, R1, R7, STATE_INO);
    code.jump_if(R1, JumpCondition::NotEqual, R8, other);
    code.load(Access::U32, R1, R7, STATE_DEV);
    code.jump_if(R1, JumpCondition::NotEqual, R9, other);
    code.store_value(Access::U32, R10, SAME_FILE, 1);
    code.load(Access::U32, R1, R7, STATE_PAIR);
    code.jump_if_value(R1, JumpCondition::NotEqual, 0, counted);
    code.jump(searched);
    code.set(other);
    code.store_value(Access::U32, R10, SAME_FILE, 0);
    code.set(searched);
    code.load(Access::U32, R1, R10, TID);
    code.store(Access::U32, R10, KEY + 12, R1);
    search_map(&mut code, &maps.pairs);
    code.jump_if_value(R0, JumpCondition::NotEqual, 0, found);
    code.store_value(Access::U32, R7, STATE_PAIR, 0);
    code.jump(report);
    code.set(found);
    code.load(Access::U32, R1, R0, 0);
    code.store(Access::U32, R7, STATE_PAIR, R1);
    code.load(Access::U32, R1, R0, 4);
    code.store(Access::U32, R7, STATE_FILE, R1);
    code.set(counted);
    code.load(Access::U32, R2, R7, STATE_FILE);
    element(&mut code, R1, &maps.states, R2, FILES_MAX, STATE_SHIFT);
    code.load(Access::U64, R2, R1, 0);
    code.load(Access::U64, R3, R1, 8);
    code.jump_if(R2, JumpCondition::NotEqual, R3, report);
    code.store_value(Access::U32, R10, COUNTED_HERE, 1);
    code.jump(update);
    code.set(report);
    code.store_value(Access::U32, R10, COUNTED_HERE, 0);
    store_time(&mut code);
    reserve(&mut code, maps, LOOKUP, lost);
    code.load(Access::U64, R1, R6, 8);
    code.store(Access::U64, R0, FIRST, R1);
    code.load(Access::U64, R1, R6, 16);
    code.store(Access::U64, R0, LAST, R1);
    code.load(Access::U64, R1, R10, STACK_LAST_IN_FILE);
    code.store(Access::U64, R0, LAST_IN_FILE, R1);
    copy_unreported(&mut code);
    submit(&mut code);
    code.set(update);
    update_thread(&mut code, maps, out);
    emit_end(&mut code, maps, lost, out);
    Ok(code.finish())
}

/// Stores the lookup as the thread's last one, and counts it unless it was reported. The rule is
/// that of [`super::super::lookup::Lookups::looked_up`] for files without fresh pages.
fn update_thread(code: &mut Code, maps: &Maps, out: Label) {
    let [another, new, on, set, rest, skipped] = std::array::from_fn(|_| code.label());
    code.load(Access::U64, R1, R6, 8);
    code.load(Access::U64, R2, R6, 16);
    code.load(Access::U32, R3, R10, SAME_FILE);
    code.jump_if_value(R3, JumpCondition::Equal, 0, new);
    code.load(Access::U64, R4, R7, STATE_LAST);
    code.load(Access::U64, R5, R7, STATE_FIRST);
    code.jump_if(R4, JumpCondition::NotEqual, R2, another);
    code.jump_if(R1, JumpCondition::Above, R5, rest);
    code.set(another);
    code.jump_if(R1, JumpCondition::Equal, R4, on);
    code.alu_value(Alu::Add, R4, 1);
    code.jump_if(R1, JumpCondition::Equal, R4, on);
    code.set(new);
    code.alu_value(Alu::Mov, R3, 0);
    code.jump(set);
    code.set(on);
    code.load(Access::U32, R3, R7, STATE_IN_ORDER);
    code.alu_value(Alu::Add, R3, 1);
    code.set(set);
    code.store(Access::U32, R7, STATE_IN_ORDER, R3);
    code.store(Access::U64, R7, STATE_INO, R8);
    code.store(Access::U32, R7, STATE_DEV, R9);
    code.store(Access::U64, R7, STATE_FIRST, R1);
    code.store(Access::U64, R7, STATE_LAST, R2);
    code.alu(Alu::Sub, R2, R1);
    code.alu_value(Alu::Add, R2, 1);
    code.store(Access::U64, R7, STATE_PAGES, R2);
    code.load(Access::U32, R3, R10, COUNTED_HERE);
    code.jump_if_value(R3, JumpCondition::Equal, 0, out);
    // Counts only the requested pages that the file contains.
    code.load(Access::U64, R2, R10, STACK_LAST_IN_FILE);
    code.alu(Alu::Sub, R2, R1);
    code.alu_value(Alu::Add, R2, 1);
    code.load(Access::U32, R1, R7, STATE_PAIR);
    element(code, R3, &maps.counts, R1, PAIRS_MAX, COUNTS_SHIFT);
    code.load(Access::U64, R1, R3, 0);
    code.alu_value(Alu::Add, R1, 1);
    code.store(Access::U64, R3, 0, R1);
    code.load(Access::U64, R1, R3, 8);
    code.alu(Alu::Add, R1, R2);
    code.store(Access::U64, R3, 8, R1);
    code.load(Access::U32, R1, R7, STATE_IN_ORDER);
    code.jump_if_value(R1, JumpCondition::Equal, 0, skipped);
    code.load(Access::U64, R1, R3, 16);
    code.alu(Alu::Add, R1, R2);
    code.store(Access::U64, R3, 16, R1);
    code.jump(skipped);
    code.set(rest);
    code.store(Access::U64, R7, STATE_FIRST, R1);
    code.load(Access::U32, R3, R10, COUNTED_HERE);
    code.jump_if_value(R3, JumpCondition::Equal, 0, out);
    code.set(skipped);
    code.load(Access::U32, R1, R7, STATE_SKIPPED);
    code.alu_value(Alu::Add, R1, 1);
    code.store(Access::U32, R7, STATE_SKIPPED, R1);
}

/// Returns the program for page additions: `(struct folio *folio)`.
pub(super) fn page_added(
    types: &Types,
    maps: &Maps,
    filter: FileFilter,
) -> Result<Vec<u64>, TypesError> {
    let mut code = Code::default();
    let [lost, out, unknown, single, nothing, done] = std::array::from_fn(|_| code.label());
    code.load(Access::U64, R6, R1, 0);
    code.load(Access::U64, R7, R6, types.offset("folio", "mapping")?);
    load_file(&mut code, types, FileFilter { ino: None, ..filter }, out)?;
    store_time(&mut code);
    code.store_value(Access::U32, R10, KEY + 12, 0);
    search_map(&mut code, &maps.files);
    code.jump_if_value(R0, JumpCondition::Equal, 0, unknown);
    code.load(Access::U32, R2, R0, 0);
    element(&mut code, R1, &maps.states, R2, FILES_MAX, STATE_SHIFT);
    code.load(Access::U64, R2, R10, NOW);
    code.store(Access::U64, R1, 0, R2);
    code.set(unknown);
    load_thread(&mut code, types, maps, 0)?;
    reserve(&mut code, maps, PAGE_ADDED, lost);
    code.load(Access::U64, R1, R6, types.offset("folio", "index")?);
    code.store(Access::U64, R0, FIRST, R1);
    code.alu_value(Alu::Mov, R2, 0);
    code.load(Access::U64, R1, R6, types.offset("folio", "flags")?);
    code.alu_value(Alu::And, R1, large_flag(types)?);
    code.jump_if_value(R1, JumpCondition::Equal, 0, single);
    code.load(Access::U8, R2, R6, types.offset("folio", "_flags_1")?);
    code.set(single);
    code.store(Access::U64, R0, LAST, R2);
    code.jump_if_value(R7, JumpCondition::Equal, 0, nothing);
    copy_unreported(&mut code);
    code.jump(done);
    code.set(nothing);
    code.store_value(Access::U32, R0, SKIPPED, 0);
    code.set(done);
    submit(&mut code);
    emit_end(&mut code, maps, lost, out);
    Ok(code.finish())
}
