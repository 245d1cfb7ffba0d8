//! What the kernel and its servers agree on: `include/uapi/linux/ublk_cmd.h`, as of Linux 6.5 and
//! later. Fields are in the byte order of the machine; sectors are 512 bytes.

use rustix::ioctl::opcode;
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout};

/// Bytes of a sector of the block layer.
pub(super) const SECTOR_BYTES: u64 = 512;

/// Commands to /dev/ublk-control (`UBLK_U_CMD_*`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Control {
    /// What is known of a device.
    GetDevInfo,
    /// Makes a device.
    AddDev,
    /// Removes it.
    DelDev,
    /// Shows it; waits until all its queues have asked for requests.
    StartDev,
    /// Hides it; what is under way is waited for.
    StopDev,
    /// Says what it is like.
    SetParams,
    /// Begins to take over a device whose server is gone.
    StartUserRecovery,
    /// Serves it again.
    EndUserRecovery,
    /// What this kernel can do.
    GetFeatures,
}

impl Control {
    /// The number of the command, encoded as those of ioctl(2) are.
    pub(super) fn code(self) -> u32 {
        let number = match self {
            Control::GetDevInfo => 0x02,
            Control::AddDev => 0x04,
            Control::DelDev => 0x05,
            Control::StartDev => 0x06,
            Control::StopDev => 0x07,
            Control::SetParams => 0x08,
            Control::StartUserRecovery => 0x10,
            Control::EndUserRecovery => 0x11,
            Control::GetFeatures => 0x13,
        };
        match self {
            Control::GetDevInfo | Control::GetFeatures => {
                opcode::read::<ControlCommand>(TYPE, number)
            }
            _ => opcode::read_write::<ControlCommand>(TYPE, number),
        }
    }

    /// What it does, as part of a sentence.
    pub(super) fn in_words(self) -> &'static str {
        match self {
            Control::GetDevInfo => "ask the kernel about a block device",
            Control::AddDev => "make a block device",
            Control::DelDev => "remove a block device",
            Control::StartDev => "show a block device",
            Control::StopDev => "hide a block device",
            Control::SetParams => "say what a block device is like",
            Control::StartUserRecovery | Control::EndUserRecovery => "take over a block device",
            Control::GetFeatures => "ask the kernel what its ublk can do",
        }
    }
}

/// The letter of all commands.
const TYPE: u8 = b'u';

/// Asks for a request (`UBLK_U_IO_FETCH_REQ`).
pub(super) const FETCH: u32 = opcode::read_write::<IoCommand>(TYPE, 0x20);
/// Answers one and asks for the next (`UBLK_U_IO_COMMIT_AND_FETCH_REQ`).
pub(super) const COMMIT_AND_FETCH: u32 = opcode::read_write::<IoCommand>(TYPE, 0x21);

/// A request is there (`UBLK_IO_RES_OK`). Anything else ends its tag.
pub(super) const RES_OK: i32 = 0;

/// Any number that is free, where a device is made.
pub(super) const ANY_DEVICE: u32 = u32::MAX;
/// A command that is about no queue.
pub(super) const NO_QUEUE: u16 = u16::MAX;

/// What a device or a kernel can do (`UBLK_F_*`).
pub(super) mod feature {
    /// A device outlives its server.
    pub(crate) const USER_RECOVERY: u64 = 1 << 3;
    /// What was under way then is asked again.
    pub(crate) const USER_RECOVERY_REISSUE: u64 = 1 << 4;
    /// Commands are encoded as those of ioctl(2).
    pub(crate) const CMD_IOCTL_ENCODE: u64 = 1 << 6;
    /// Data is copied by pread(2) and pwrite(2).
    pub(crate) const USER_COPY: u64 = 1 << 7;
}

/// States of a device (`UBLK_S_DEV_*`).
pub(super) mod state {
    /// Nobody serves it, and it waits for somebody who does.
    pub(crate) const QUIESCED: u16 = 2;
}

/// What is asked for (`UBLK_IO_OP_*`).
pub(super) mod op {
    pub(crate) const READ: u8 = 0;
    pub(crate) const WRITE: u8 = 1;
    pub(crate) const FLUSH: u8 = 2;
    pub(crate) const DISCARD: u8 = 3;
    pub(crate) const WRITE_ZEROES: u8 = 5;
}

/// How (`UBLK_IO_F_*`).
pub(super) mod flag {
    /// On stable storage before it is answered.
    pub(crate) const FUA: u32 = 1 << 13;
    /// Zeros that stay allocated.
    pub(crate) const NOUNMAP: u32 = 1 << 15;
}

/// What a device is like (`UBLK_ATTR_*`).
pub(super) mod attribute {
    pub(crate) const READ_ONLY: u32 = 1 << 0;
    pub(crate) const VOLATILE_CACHE: u32 = 1 << 2;
    pub(crate) const FUA: u32 = 1 << 3;
}

/// Which parameters are given (`UBLK_PARAM_TYPE_*`).
pub(super) mod parameter {
    pub(crate) const BASIC: u32 = 1 << 0;
    pub(crate) const DISCARD: u32 = 1 << 1;
}

/// A command to the control device (`struct ublksrv_ctrl_cmd`).
#[derive(Clone, Copy, Debug, Default, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
pub(super) struct ControlCommand {
    pub(super) dev_id: u32,
    pub(super) queue_id: u16,
    /// Bytes at `addr`.
    pub(super) len: u16,
    pub(super) addr: u64,
    pub(super) data: u64,
    pub(super) dev_path_len: u16,
    pub(super) pad: u16,
    pub(super) reserved: u32,
}

/// What a device is made of (`struct ublksrv_ctrl_dev_info`).
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout,
)]
#[repr(C)]
pub struct DeviceInfo {
    /// How many queues it has.
    pub queues: u16,
    /// Requests that each has under way at the most.
    pub depth: u16,
    /// One of `UBLK_S_DEV_*`.
    pub state: u16,
    pub(super) pad0: u16,
    /// Bytes of a request at the most.
    pub max_io_bytes: u32,
    /// Its number.
    pub id: u32,
    /// Who serves it.
    pub server_pid: i32,
    pub(super) pad1: u32,
    /// Features.
    pub flags: u64,
    /// For the server's own use.
    pub mark: u64,
    pub(super) owner_uid: u32,
    pub(super) owner_gid: u32,
    pub(super) reserved1: u64,
    pub(super) reserved2: u64,
}

/// The parameters of a device (`struct ublk_params`), up to those that are not given here.
#[derive(Clone, Copy, Debug, Default, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
pub(super) struct Parameters {
    /// Bytes that are given.
    pub(super) len: u32,
    pub(super) types: u32,
    pub(super) basic: Basic,
    pub(super) discard: Discard,
    /// The first of what follows in the kernel, which is not given.
    pub(super) not_given: u32,
}

impl Parameters {
    /// What of the structure is given.
    pub(super) const GIVEN_BYTES: usize = 60;
}

/// What every device is like (`struct ublk_param_basic`).
#[derive(Clone, Copy, Debug, Default, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
pub(super) struct Basic {
    pub(super) attributes: u32,
    pub(super) logical_shift: u8,
    pub(super) physical_shift: u8,
    pub(super) optimal_shift: u8,
    pub(super) least_shift: u8,
    pub(super) max_sectors: u32,
    pub(super) chunk_sectors: u32,
    pub(super) sectors: u64,
    pub(super) virtual_boundary: u64,
}

/// How it discards (`struct ublk_param_discard`).
#[derive(Clone, Copy, Debug, Default, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
pub(super) struct Discard {
    pub(super) alignment: u32,
    pub(super) granularity: u32,
    pub(super) max_sectors: u32,
    pub(super) max_zero_sectors: u32,
    pub(super) max_segments: u16,
    pub(super) reserved: u16,
}

/// A request (`struct ublksrv_io_desc`).
#[derive(Clone, Copy, Debug, Default, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
pub struct IoDescriptor {
    pub(super) op_flags: u32,
    pub(super) sectors: u32,
    pub(super) start_sector: u64,
    pub(super) addr: u64,
}

impl IoDescriptor {
    /// What is asked for.
    pub(super) fn op(self) -> u8 {
        self.op_flags.to_le_bytes()[0]
    }

    pub(super) fn has(self, flag: u32) -> bool {
        self.op_flags & flag != 0
    }

    /// Its first byte and how many there are; nothing if there are no such bytes in this world.
    pub(super) fn bytes(self) -> Option<(u64, u64)> {
        let offset = self.start_sector.checked_mul(SECTOR_BYTES)?;
        Some((offset, u64::from(self.sectors) * SECTOR_BYTES))
    }
}

/// A command to the device of the server (`struct ublksrv_io_cmd`).
#[derive(Clone, Copy, Debug, Default, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
pub(super) struct IoCommand {
    pub(super) queue: u16,
    pub(super) tag: u16,
    /// Bytes that were moved, or an errno below 0.
    pub(super) result: i32,
    pub(super) addr: u64,
}

/// Requests that the map of descriptors has room for, whatever the depth
/// (`UBLK_MAX_QUEUE_DEPTH`).
const DESCRIPTORS: u64 = 4096;
/// Where data begins in the device of the server (`UBLKSRV_IO_BUF_OFFSET`).
const DATA_OFFSET: u64 = 0x8000_0000;
/// Bits of the place in a request, and of the tag (`UBLK_IO_BUF_BITS`, `UBLK_TAG_BITS`).
const PLACE_BITS: u32 = 25;
const TAG_BITS: u32 = 16;

/// Where the descriptors of a queue are in the device of the server.
pub(super) fn descriptors_at(queue: u16) -> u64 {
    u64::from(queue) * DESCRIPTORS * size_of::<IoDescriptor>() as u64
}

/// Where the data of a request is in the device of the server.
pub(super) fn data_at(queue: u16, tag: u16) -> u64 {
    DATA_OFFSET + (u64::from(queue) << (PLACE_BITS + TAG_BITS)) + (u64::from(tag) << PLACE_BITS)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::mem::offset_of;

    // Sizes and places are those that the header of the kernel gives its structures on every
    // machine: all fields are of fixed width and lie where their alignment puts them.

    #[test]
    fn structures_have_the_layout_of_the_kernel() {
        assert_eq!(size_of::<ControlCommand>(), 32);
        assert_eq!(offset_of!(ControlCommand, addr), 8);
        assert_eq!(offset_of!(ControlCommand, dev_path_len), 24);
        assert_eq!(size_of::<DeviceInfo>(), 64);
        let of_info = [
            (offset_of!(DeviceInfo, state), 4),
            (offset_of!(DeviceInfo, max_io_bytes), 8),
            (offset_of!(DeviceInfo, id), 12),
            (offset_of!(DeviceInfo, server_pid), 16),
            (offset_of!(DeviceInfo, flags), 24),
            (offset_of!(DeviceInfo, mark), 32),
            (offset_of!(DeviceInfo, owner_uid), 40),
        ];
        assert!(of_info.iter().all(|(ours, theirs)| ours == theirs), "{of_info:?}");
        assert_eq!((size_of::<Basic>(), offset_of!(Basic, sectors)), (32, 16));
        assert_eq!((size_of::<Discard>(), offset_of!(Discard, max_segments)), (20, 16));
        assert_eq!((offset_of!(Parameters, basic), offset_of!(Parameters, discard)), (8, 40));
        assert_eq!(offset_of!(Parameters, not_given), Parameters::GIVEN_BYTES);
        assert_eq!((size_of::<IoDescriptor>(), offset_of!(IoDescriptor, start_sector)), (24, 8));
        assert_eq!((size_of::<IoCommand>(), offset_of!(IoCommand, result)), (16, 4));
    }

    #[cfg(target_arch = "x86_64")]
    #[test]
    fn commands_are_encoded_as_those_of_ioctl() {
        // _IOWR('u', 0x04, 32 bytes) and so on: direction, size, letter, number.
        assert_eq!(Control::AddDev.code(), 0xc020_7504);
        assert_eq!(Control::DelDev.code(), 0xc020_7505);
        assert_eq!(Control::StartDev.code(), 0xc020_7506);
        assert_eq!(Control::StopDev.code(), 0xc020_7507);
        assert_eq!(Control::SetParams.code(), 0xc020_7508);
        assert_eq!(Control::StartUserRecovery.code(), 0xc020_7510);
        assert_eq!(Control::EndUserRecovery.code(), 0xc020_7511);
        assert_eq!(Control::GetDevInfo.code(), 0x8020_7502);
        assert_eq!(Control::GetFeatures.code(), 0x8020_7513);
        assert_eq!((FETCH, COMMIT_AND_FETCH), (0xc010_7520, 0xc010_7521));
    }

    #[test]
    fn descriptors_are_taken_apart() {
        let op_flags = u32::from(op::WRITE) | flag::FUA;
        let one = IoDescriptor { op_flags, sectors: 8, start_sector: 3, addr: 0 };
        assert_eq!(
            (one.op(), one.has(flag::FUA), one.has(flag::NOUNMAP)),
            (op::WRITE, true, false)
        );
        assert_eq!(one.bytes(), Some((1536, 4096)));
        let nowhere = IoDescriptor { start_sector: u64::MAX / 2, ..one };
        assert_eq!(nowhere.bytes(), None);
    }

    #[test]
    fn every_request_has_bytes_of_its_own_in_the_device() {
        assert_eq!(data_at(0, 0), 0x8000_0000);
        // 32 MiB for a tag, 65,536 tags for a queue.
        assert_eq!(data_at(0, 1) - data_at(0, 0), 32 << 20);
        assert_eq!(data_at(1, 0) - data_at(0, 0), (32 << 20) * 65_536);
        assert_eq!((descriptors_at(0), descriptors_at(2)), (0, 2 * 4096 * 24));
    }
}
