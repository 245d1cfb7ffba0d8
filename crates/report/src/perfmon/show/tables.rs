//! Tables of a summary.

use crate::table::{Cell, Column, Field, Table};
use larder_schema::perfmon::{Bursts, Disk, Interface, PagingFile, Process, Processor, Summary};

pub(super) fn tables(summary: &Summary) -> Vec<Table> {
    let all = [
        interface_table(summary),
        burst_table(summary),
        disk_table(summary),
        disk_use_table(summary),
        memory_table(summary),
        paging_table(summary),
        processor_table(summary),
        process_table(summary),
        operation_table(summary),
    ];
    all.into_iter().filter(|table| !table.is_empty()).collect()
}

fn interface_table(summary: &Summary) -> Table {
    let other = |interface, calls_per_s: Option<f64>| {
        calls_per_s.map(|_| Interface {
            interface,
            calls_per_s,
            hit_ratio: None,
            averaged_hit_ratio: None,
            misses_per_s: None,
        })
    };
    let others = [
        other("of copy: fast", summary.fast_reads_per_s),
        other("of data map: pinned", summary.data_map_pins_per_s),
        other("read-ahead", summary.read_aheads_per_s),
    ];
    let rows: Vec<Interface> =
        summary.interfaces.iter().cloned().chain(others.into_iter().flatten()).collect();
    let fields = [
        Field::word("interface", "interface", |it: &Interface| it.interface),
        Field::number("calls_per_s", "calls/s", |it| it.calls_per_s),
        Field::percent("hit_ratio", "hits", |it| it.hit_ratio),
        Field::percent("averaged_hit_ratio", "as averaged", |it| it.averaged_hit_ratio),
        Field::number("misses_per_s", "misses/s", |it| it.misses_per_s),
    ];
    Table::of("Reads of the cache", &rows, fields)
}

fn burst_table(summary: &Summary) -> Table {
    let fields = [
        Field::word("what", "what", |it: &Bursts| it.what),
        Field::number("bursts_per_s", "bursts/s", |it| it.bursts_per_s),
        Field::number("pages_per_s", "pages/s", |it| it.pages_per_s),
        Field::number("pages_per_burst", "pages/burst", |it| it.pages_per_burst),
        Field::number("pages_per_s_max", "most pages/s", |it| it.pages_per_s_max),
    ];
    Table::of("Writes of the cache", &summary.bursts, fields)
}

fn disk_table(summary: &Summary) -> Table {
    let fields = [
        Field::text("disk", "disk", |it: &Disk| format!("{} {}", it.object, it.disk)),
        Field::number("reads_per_s", "reads/s", |it| it.reads_per_s),
        Field::seconds("seconds_per_read", "a read", |it| it.seconds_per_read),
        Field::mean_bytes("bytes_per_read", "bytes", |it| it.bytes_per_read),
        Field::percent("read_time", "% time", |it| it.read_time),
        Field::number("writes_per_s", "writes/s", |it| it.writes_per_s),
        Field::seconds("seconds_per_write", "a write", |it| it.seconds_per_write),
        Field::mean_bytes("bytes_per_write", "bytes", |it| it.bytes_per_write),
        Field::percent("write_time", "% time", |it| it.write_time),
        Field::number("queue", "queue", |it| it.queue),
        Field::number("splits_per_s", "splits/s", |it| it.splits_per_s),
    ];
    Table::of("Disks", &summary.disks, fields)
}

/// Returns reads and writes together, for disks with such counters.
fn disk_use_table(summary: &Summary) -> Table {
    let has_use = |it: &&Disk| {
        let of_both = [it.transfers_per_s, it.seconds_per_transfer, it.disk_time, it.busy];
        let queues = [it.read_queue, it.write_queue, it.queue_max];
        of_both.into_iter().chain(queues).any(|value| value.is_some())
    };
    let fields = [
        Field::text("disk", "disk", |it: &Disk| format!("{} {}", it.object, it.disk)),
        Field::number("transfers_per_s", "transfers/s", |it| it.transfers_per_s),
        Field::seconds("seconds_per_transfer", "a transfer", |it| it.seconds_per_transfer),
        Field::percent("disk_time", "% disk time", |it| it.disk_time),
        Field::percent("disk_time_max", "most", |it| it.disk_time_max),
        Field::percent("busy", "busy", |it| it.busy),
        Field::percent("busy_max", "most", |it| it.busy_max),
        Field::number("read_queue", "read queue", |it| it.read_queue),
        Field::number("write_queue", "write queue", |it| it.write_queue),
        Field::number("queue_max", "longest queue", |it| it.queue_max),
    ];
    Table::of("Use of disks", summary.disks.iter().filter(has_use), fields)
}

fn memory_table(summary: &Summary) -> Table {
    let titles = ["first", "least", "mean", "most", "last"];
    let numbers = titles.map(|title| Column::numbers(title, title));
    let mut table =
        Table::new("Memory", [Column::words("memory", "memory")].into_iter().chain(numbers));
    let Some(memory) = &summary.memory else { return table };
    let bytes = [
        ("available", [None, memory.available_min_bytes, memory.available_mean_bytes, None, None]),
        (
            "cache",
            [
                memory.cache_first_bytes,
                memory.cache_min_bytes,
                None,
                memory.cache_max_bytes,
                memory.cache_last_bytes,
            ],
        ),
    ];
    for (name, values) in bytes {
        table.push([Cell::word(name)].into_iter().chain(values.map(Cell::mean_bytes)));
    }
    let paging = [None, None, memory.pages_per_s, memory.pages_per_s_max, None];
    let paging = paging.map(Cell::number);
    table.push([Cell::word("paging, pages/s")].into_iter().chain(paging));
    for (name, mean) in [
        ("pages input/s", memory.pages_input_per_s),
        ("page reads/s", memory.page_reads_per_s),
        ("cache faults/s", memory.cache_faults_per_s),
    ] {
        if mean.is_some() {
            let cells = [None, None, mean, None, None].map(Cell::number);
            table.push([Cell::word(name)].into_iter().chain(cells));
        }
    }
    table
}

fn paging_table(summary: &Summary) -> Table {
    let fields = [
        Field::word("file", "paging file", |it: &PagingFile| &it.file),
        Field::percent("usage", "% usage", |it| it.usage),
        Field::percent("usage_max", "most", |it| it.usage_max),
        Field::percent("usage_peak", "most since start", |it| it.usage_peak),
    ];
    Table::of("Paging files", &summary.paging_files, fields)
}

fn processor_table(summary: &Summary) -> Table {
    let fields = [
        Field::percent("time", "% processor time", |it: &Processor| it.time),
        Field::percent("time_max", "most", |it| it.time_max),
        Field::number("queue", "threads that wait", |it| it.queue),
        Field::number("queue_max", "most", |it| it.queue_max),
    ];
    Table::of("Processors", &summary.processor, fields)
}

fn process_table(summary: &Summary) -> Table {
    let fields = [
        Field::word("process", "process", |it: &Process| &it.process),
        Field::percent("processor_time", "processor", |it| it.processor_time),
        Field::mean_bytes("read_bytes_per_s", "read/s", |it| it.read_bytes_per_s),
        Field::mean_bytes("write_bytes_per_s", "written/s", |it| it.write_bytes_per_s),
        Field::mean_bytes("private_first_bytes", "own memory, first", |it| it.private_first_bytes),
        Field::mean_bytes("private_last_bytes", "last", |it| it.private_last_bytes),
    ];
    Table::of("Processes", &summary.processes, fields)
}

/// Returns the I/O operations of processes, for those with such counters.
fn operation_table(summary: &Summary) -> Table {
    let has_operations = |it: &&Process| {
        let operations = [it.reads_per_s, it.writes_per_s, it.data_operations_per_s];
        let others = [it.other_operations_per_s, it.other_bytes_per_s];
        operations.into_iter().chain(others).any(|value| value.is_some())
    };
    let fields = [
        Field::word("process", "process", |it: &Process| &it.process),
        Field::number("reads_per_s", "reads/s", |it| it.reads_per_s),
        Field::number("writes_per_s", "writes/s", |it| it.writes_per_s),
        Field::number("data_operations_per_s", "both/s", |it| it.data_operations_per_s),
        Field::mean_bytes("data_bytes_per_s", "bytes/s", |it| it.data_bytes_per_s),
        Field::number("other_operations_per_s", "others/s", |it| it.other_operations_per_s),
        Field::mean_bytes("other_bytes_per_s", "bytes/s of others", |it| it.other_bytes_per_s),
    ];
    Table::of("I/O operations", summary.processes.iter().filter(has_operations), fields)
}
