//! Assembler for BPF programs.
//!
//! The module has one method for each instruction that Larder uses, named after
//! Documentation/bpf/standardization/instruction-set.rst. Invariant: every jump goes to a label
//! that was set, or [`Code::finish`] panics.

/// A register. `R0` holds results; `R1` to `R5` hold arguments, which a call clobbers; calls
/// preserve `R6` to `R9`; `R10` is the frame pointer at the end of the 512-byte stack.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Reg {
    R0,
    R1,
    R2,
    R3,
    R4,
    R5,
    R6,
    R7,
    R8,
    R9,
    R10,
}

/// Width of a load or store.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Access {
    U8 = 0x10,
    U16 = 0x08,
    U32 = 0x00,
    U64 = 0x18,
}

/// A 64-bit arithmetic operation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Alu {
    Add = 0x00,
    Sub = 0x10,
    And = 0x50,
    ShiftLeft = 0x60,
    /// Logical shift: shifts in zeros.
    ShiftRight = 0x70,
    Mov = 0xb0,
}

/// Condition of a jump; comparisons are unsigned.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum JumpCondition {
    Equal = 0x10,
    Above = 0x20,
    NotEqual = 0x50,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Label(usize);

#[derive(Debug, Default)]
pub(crate) struct Code {
    words: Vec<u64>,
    labels: Vec<Option<usize>>,
    jumps: Vec<(usize, Label)>,
}

fn word(operation: u8, to: Reg, from: u8, offset: i16, value: i32) -> u64 {
    let offset = u64::from(offset.cast_unsigned());
    u64::from(operation)
        | (to as u64) << 8
        | u64::from(from) << 12
        | offset << 16
        | u64::from(value.cast_unsigned()) << 32
}

fn register_number(reg: Reg) -> u8 {
    reg as u8
}

impl Code {
    fn emit(&mut self, operation: u8, to: Reg, from: u8, offset: i16, value: i32) {
        self.words.push(word(operation, to, from, offset, value));
    }

    /// `to = *(from + offset)`
    pub(crate) fn load(&mut self, access: Access, to: Reg, from: Reg, offset: i16) {
        self.emit(0x61 | access as u8, to, register_number(from), offset, 0);
    }

    /// `*(to + offset) = from`
    pub(crate) fn store(&mut self, access: Access, to: Reg, offset: i16, from: Reg) {
        self.emit(0x63 | access as u8, to, register_number(from), offset, 0);
    }

    /// `*(to + offset) = value`
    pub(crate) fn store_value(&mut self, access: Access, to: Reg, offset: i16, value: i32) {
        self.emit(0x62 | access as u8, to, 0, offset, value);
    }

    /// `*(to + offset) += from`, 64 bits, atomic.
    pub(crate) fn add_atomically(&mut self, to: Reg, offset: i16, from: Reg) {
        self.emit(0xdb, to, register_number(from), offset, 0);
    }

    /// `to = to alu from`
    pub(crate) fn alu(&mut self, alu: Alu, to: Reg, from: Reg) {
        self.emit(0x0f | alu as u8, to, register_number(from), 0, 0);
    }

    /// `to = to alu value`
    pub(crate) fn alu_value(&mut self, alu: Alu, to: Reg, value: i32) {
        self.emit(0x07 | alu as u8, to, 0, 0, value);
    }

    /// `to = value`, of 64 bits.
    pub(crate) fn set_wide(&mut self, to: Reg, value: u64) {
        self.wide(to, 0, value);
    }

    /// `to =` the map with that file descriptor.
    pub(crate) fn set_map(&mut self, to: Reg, map: i32) {
        self.wide(to, 1, u64::from(map.cast_unsigned()));
    }

    /// `to =` the address of the only value of the array map with that file descriptor.
    pub(crate) fn set_array(&mut self, to: Reg, map: i32) {
        self.wide(to, 2, u64::from(map.cast_unsigned()));
    }

    /// Emits a two-word instruction: the first word holds the lower half of the value, the second
    /// the upper half.
    fn wide(&mut self, to: Reg, kind: u8, value: u64) {
        let low = value & u64::from(u32::MAX);
        self.words.push(word(0x18, to, kind, 0, 0) | low << 32);
        self.words.push(value >> 32 << 32);
    }

    /// `R0 = helper(R1, ...)`
    pub(crate) fn call(&mut self, helper: i32) {
        self.emit(0x85, Reg::R0, 0, 0, helper);
    }

    /// Ends the program; `R0` must be set.
    pub(crate) fn exit(&mut self) {
        self.emit(0x95, Reg::R0, 0, 0, 0);
    }

    /// Creates a label, to be set later.
    pub(crate) fn label(&mut self) -> Label {
        self.labels.push(None);
        Label(self.labels.len() - 1)
    }

    /// Sets the label to the current position.
    pub(crate) fn set(&mut self, label: Label) {
        self.labels[label.0] = Some(self.words.len());
    }

    /// Jumps if `left condition right`.
    pub(crate) fn jump_if(&mut self, left: Reg, condition: JumpCondition, right: Reg, to: Label) {
        self.jumps.push((self.words.len(), to));
        self.emit(0x0d | condition as u8, left, register_number(right), 0, 0);
    }

    /// Jumps if `left condition value`.
    pub(crate) fn jump_if_value(
        &mut self,
        left: Reg,
        condition: JumpCondition,
        value: i32,
        to: Label,
    ) {
        self.jumps.push((self.words.len(), to));
        self.emit(0x05 | condition as u8, left, 0, 0, value);
    }

    pub(crate) fn jump(&mut self, to: Label) {
        self.jumps.push((self.words.len(), to));
        self.emit(0x05, Reg::R0, 0, 0, 0);
    }

    /// Returns the program with all jump offsets resolved.
    pub(crate) fn finish(mut self) -> Vec<u64> {
        for (index, label) in self.jumps {
            let target = self.labels[label.0].expect("a label is set where it is used");
            // A jump offset counts from the instruction after the jump.
            let from = i64::try_from(index + 1).expect("programs are short");
            let distance = i64::try_from(target).expect("programs are short") - from;
            let distance = i16::try_from(distance).expect("programs are short");
            self.words[index] |= u64::from(distance.cast_unsigned()) << 16;
        }
        self.words
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The expected bytes are the output of `llvm-mc -triple bpfel -show-encoding` for the same
    /// lines.
    #[test]
    fn instructions_are_those_of_the_standard() {
        let mut code = Code::default();
        let (back, out) = (code.label(), code.label());
        code.set(back);
        code.load(Access::U64, Reg::R1, Reg::R6, 8);
        code.load(Access::U32, Reg::R2, Reg::R10, -4);
        code.load(Access::U8, Reg::R2, Reg::R7, 3);
        code.store(Access::U16, Reg::R10, -8, Reg::R1);
        code.store_value(Access::U32, Reg::R10, -16, -2);
        code.add_atomically(Reg::R1, 16, Reg::R2);
        code.alu(Alu::Add, Reg::R1, Reg::R2);
        code.alu_value(Alu::ShiftLeft, Reg::R3, 6);
        code.alu_value(Alu::Mov, Reg::R0, 0);
        code.set_wide(Reg::R4, 0x1122_3344_5566_7788);
        code.set_map(Reg::R1, 5);
        code.call(131);
        code.jump_if(Reg::R1, JumpCondition::Above, Reg::R2, out);
        code.jump_if_value(Reg::R0, JumpCondition::Equal, 0, back);
        code.set(out);
        code.exit();
        let bytes: Vec<[u8; 8]> = code.finish().into_iter().map(u64::to_le_bytes).collect();
        let expected: &[[u8; 8]] = &[
            [0x79, 0x61, 0x08, 0x00, 0, 0, 0, 0],
            [0x61, 0xa2, 0xfc, 0xff, 0, 0, 0, 0],
            [0x71, 0x72, 0x03, 0x00, 0, 0, 0, 0],
            [0x6b, 0x1a, 0xf8, 0xff, 0, 0, 0, 0],
            [0x62, 0x0a, 0xf0, 0xff, 0xfe, 0xff, 0xff, 0xff],
            [0xdb, 0x21, 0x10, 0x00, 0, 0, 0, 0],
            [0x0f, 0x21, 0, 0, 0, 0, 0, 0],
            [0x67, 0x03, 0, 0, 6, 0, 0, 0],
            [0xb7, 0x00, 0, 0, 0, 0, 0, 0],
            [0x18, 0x04, 0, 0, 0x88, 0x77, 0x66, 0x55],
            [0x00, 0x00, 0, 0, 0x44, 0x33, 0x22, 0x11],
            [0x18, 0x11, 0, 0, 5, 0, 0, 0],
            [0; 8],
            [0x85, 0x00, 0, 0, 131, 0, 0, 0],
            [0x2d, 0x21, 1, 0, 0, 0, 0, 0],
            [0x15, 0x00, 0xf0, 0xff, 0, 0, 0, 0],
            [0x95, 0x00, 0, 0, 0, 0, 0, 0],
        ];
        assert_eq!(bytes, expected);
    }
}
