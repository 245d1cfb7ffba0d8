//! Traces in Parquet, read and written: other tools (`DuckDB`, Polars, pandas) can open them.
//! docs/FORMATS.md describes the columns. Only this file uses the crate `parquet`.

mod pages;

use super::decode::{BadRecords, check};
use super::names::AllNames;
use super::{Addressing, NameKind, Op, Record, Sink, Source, TraceError};
use ::parquet::basic::{Compression, ZstdLevel};
use ::parquet::column::reader::ColumnReader;
use ::parquet::data_type::{ByteArray, ByteArrayType, Int32Type, Int64Type};
use ::parquet::errors::ParquetError;
use ::parquet::file::metadata::KeyValue;
use ::parquet::file::properties::WriterProperties;
use ::parquet::file::reader::{FileReader, RowGroupReader, SerializedFileReader};
use ::parquet::file::writer::{SerializedFileWriter, SerializedRowGroupWriter};
use ::parquet::schema::parser::parse_message_type;
use std::fs::File;
use std::io::{self, Write};
use std::sync::Arc;

const SCHEMA: &str = "message trace {
  required int64 time_ns (INTEGER(64,false));
  required int64 offset (INTEGER(64,false));
  required int64 len (INTEGER(64,false));
  required int64 latency_ns (INTEGER(64,false));
  required int32 volume (INTEGER(32,false));
  required int32 file (INTEGER(32,false));
  required int32 process (INTEGER(32,false));
  required binary op (STRING);
  required int32 class (INTEGER(8,false));
  optional binary volume_name (STRING);
  optional binary file_name (STRING);
  optional binary process_name (STRING);
}";
/// The columns, in the order of the schema.
const COLUMNS: [&str; 12] = [
    "time_ns",
    "offset",
    "len",
    "latency_ns",
    "volume",
    "file",
    "process",
    "op",
    "class",
    "volume_name",
    "file_name",
    "process_name",
];
const OP: usize = 7;
const FIRST_NAME: usize = 9;
/// Metadata key of the unit of offsets.
const ADDRESSING_KEY: &str = "larder.addressing";
/// Rows of a row group, which the writer holds in memory.
const GROUP_ROWS: usize = 1 << 17;
/// Rows of a batch.
const BATCH_ROWS: usize = 8192;

fn addressing_from(text: &str) -> Option<Addressing> {
    match text.split_once(':') {
        Some(("pages", bytes)) => {
            let bytes = bytes.parse().ok().filter(|bytes: &u32| bytes.is_power_of_two())?;
            Some(Addressing::Pages { bytes })
        }
        None if text == "bytes" => Some(Addressing::Bytes),
        None if text == "objects" => Some(Addressing::Objects),
        _ => None,
    }
}

/// Writes Parquet, compressed with zstd.
pub(super) struct ParquetWriter<W: Write + Send> {
    writer: SerializedFileWriter<W>,
    records: Vec<Record>,
}

impl<W: Write + Send> ParquetWriter<W> {
    pub(super) fn new(output: W, addressing: Addressing) -> io::Result<Self> {
        let schema = parse_message_type(SCHEMA).map_err(io::Error::other)?;
        let level = ZstdLevel::try_new(3).map_err(io::Error::other)?;
        let key = KeyValue::new(ADDRESSING_KEY.to_owned(), addressing.to_string());
        let properties = WriterProperties::builder()
            .set_compression(Compression::ZSTD(level))
            .set_key_value_metadata(Some(vec![key]))
            .build();
        let writer = SerializedFileWriter::new(output, Arc::new(schema), Arc::new(properties));
        Ok(ParquetWriter { writer: writer.map_err(io_error)?, records: Vec::new() })
    }

    /// Writes the buffered records as a row group.
    fn write_group(&mut self, names: &dyn Source) -> io::Result<()> {
        let records = std::mem::take(&mut self.records);
        let group = self.writer.next_row_group().map_err(io_error)?;
        write_group(group, &records, names).map_err(io_error)
    }
}

impl<W: Write + Send> Sink for ParquetWriter<W> {
    fn append(&mut self, records: &[Record], source: &dyn Source) -> io::Result<()> {
        self.records.extend_from_slice(records);
        while self.records.len() >= GROUP_ROWS {
            let rest = self.records.split_off(GROUP_ROWS);
            self.write_group(source)?;
            self.records = rest;
        }
        Ok(())
    }

    fn finish(mut self: Box<Self>, source: &dyn Source) -> io::Result<()> {
        if !self.records.is_empty() {
            self.write_group(source)?;
        }
        self.writer.into_inner().map_err(io_error)?.flush()
    }
}

/// Returns the I/O error inside a Parquet error, if there is one.
fn io_error(error: ParquetError) -> io::Error {
    match error {
        ParquetError::External(error) => match error.downcast::<io::Error>() {
            Ok(error) => *error,
            Err(error) => io::Error::other(error),
        },
        error => io::Error::other(error),
    }
}

fn write_group<W: Write + Send>(
    mut group: SerializedRowGroupWriter<'_, W>,
    records: &[Record],
    names: &dyn Source,
) -> Result<(), ParquetError> {
    let mut index = 0;
    while let Some(mut column) = group.next_column()? {
        match index {
            0..4 => {
                let values: Vec<i64> =
                    records.iter().map(|record| record.column(index).cast_signed()).collect();
                column.typed::<Int64Type>().write_batch(&values, None, None)?;
            }
            OP => {
                let text: Vec<_> = records.iter().map(|r| ByteArray::from(r.op.name())).collect();
                column.typed::<ByteArrayType>().write_batch(&text, None, None)?;
            }
            4..OP | 8 => {
                let value = |record: &Record| {
                    u32::try_from(record.column(index)).expect("32 bits").cast_signed()
                };
                let values: Vec<i32> = records.iter().map(value).collect();
                column.typed::<Int32Type>().write_batch(&values, None, None)?;
            }
            _ => {
                let kind = NameKind::ALL[index - FIRST_NAME];
                let (mut levels, mut text) = (Vec::with_capacity(records.len()), Vec::new());
                for record in records {
                    let name = names.name(kind, record.number_of(kind));
                    levels.push(i16::from(name.is_some()));
                    text.extend(name.map(ByteArray::from));
                }
                column.typed::<ByteArrayType>().write_batch(&text, Some(&levels), None)?;
            }
        }
        column.close()?;
        index += 1;
    }
    group.close().map(drop)
}

/// One column of a row group, and its current values.
struct Column {
    /// Index in [`COLUMNS`].
    index: usize,
    reader: ColumnReader,
    optional: bool,
    levels: Vec<i16>,
    ints: Vec<i32>,
    longs: Vec<i64>,
    text: Vec<ByteArray>,
}

impl Column {
    /// Reads up to `rows`. Returns the number of rows read.
    fn read(&mut self, rows: usize) -> Result<usize, ParquetError> {
        self.levels.clear();
        self.ints.clear();
        self.longs.clear();
        self.text.clear();
        let levels = self.optional.then_some(&mut self.levels);
        let (rows_read, ..) = match &mut self.reader {
            ColumnReader::Int32ColumnReader(reader) => {
                reader.read_records(rows, levels, None, &mut self.ints)?
            }
            ColumnReader::Int64ColumnReader(reader) => {
                reader.read_records(rows, levels, None, &mut self.longs)?
            }
            ColumnReader::ByteArrayColumnReader(reader) => {
                reader.read_records(rows, levels, None, &mut self.text)?
            }
            _ => return Err(ParquetError::General(format!("{} has no such type", self.name()))),
        };
        Ok(rows_read)
    }

    fn name(&self) -> &'static str {
        COLUMNS[self.index]
    }

    /// Returns the row and the value index of each row that has a value.
    fn present_values(&self, rows: usize) -> impl Iterator<Item = (usize, usize)> + use<> {
        let present: Vec<bool> = if self.optional {
            self.levels.iter().map(|&level| level > 0).collect()
        } else {
            vec![true; rows]
        };
        let mut at = 0;
        (0..rows).zip(present).filter_map(move |(row, present)| {
            let place = (row, at);
            at += usize::from(present);
            present.then_some(place)
        })
    }

    /// Returns the value at an index as a number, as wide as the column.
    fn number(&self, at: usize) -> Option<u64> {
        match self.reader {
            ColumnReader::Int32ColumnReader(_) => {
                self.ints.get(at).map(|value| u64::from(value.cast_unsigned()))
            }
            ColumnReader::Int64ColumnReader(_) => self.longs.get(at).map(|v| v.cast_unsigned()),
            _ => None,
        }
    }

    fn text(&self, at: usize) -> Option<&str> {
        self.text.get(at).and_then(|text| std::str::from_utf8(text.data()).ok())
    }
}

/// Reader of Parquet files.
struct ParquetReader {
    name: String,
    file: SerializedFileReader<File>,
    /// The same file, for checks of values that the crate does not check.
    unchecked: File,
    /// Index in the file of each of [`COLUMNS`].
    file_columns: [Option<usize>; COLUMNS.len()],
    addressing: Addressing,
    names: AllNames,
    bad: BadRecords,
    group: usize,
    columns: Vec<Column>,
    /// Remaining rows of the row group, and the number of the next row.
    rows_left: usize,
    row: u64,
}

/// Opens a file.
pub(super) fn open(
    name: &str,
    file: File,
    max_bad: u64,
) -> Result<Box<dyn Source + Send>, TraceError> {
    let bad = |reason: String| TraceError::Bad {
        name: name.to_owned(),
        place: "metadata".to_owned(),
        reason,
    };
    let unchecked = file.try_clone().map_err(|error| bad(error.to_string()))?;
    let file =
        catch_panic(|| SerializedFileReader::new(file)).map_err(|error| bad(error.to_string()))?;
    let metadata = file.metadata().file_metadata();
    let schema = metadata.schema_descr();
    let at = |name: &str| schema.columns().iter().position(|c| c.path().string() == name);
    let file_columns = COLUMNS.map(at);
    for needed in [1, 2] {
        if file_columns[needed].is_none() {
            return Err(bad(format!("there is no column {}", COLUMNS[needed])));
        }
    }
    let entry = metadata.key_value_metadata().and_then(|all| {
        all.iter().find(|entry| entry.key == ADDRESSING_KEY).and_then(|entry| entry.value.clone())
    });
    let addressing = match entry {
        None => Addressing::Bytes,
        Some(text) => addressing_from(&text)
            .ok_or_else(|| bad(format!("{ADDRESSING_KEY} is \"{text}\", which is not known")))?,
    };
    Ok(Box::new(ParquetReader {
        name: name.to_owned(),
        file,
        unchecked,
        file_columns,
        addressing,
        names: AllNames::new(),
        bad: BadRecords::new(name, max_bad),
        group: 0,
        columns: Vec::new(),
        rows_left: 0,
        row: 0,
    }))
}

impl ParquetReader {
    fn bad_row(&self, error: &(impl ToString + ?Sized)) -> TraceError {
        let place = format!("row {}", self.row);
        TraceError::Bad { name: self.name.clone(), place, reason: error.to_string() }
    }

    /// Opens the next row group. Returns false at the end.
    fn next_group(&mut self) -> Result<bool, TraceError> {
        if self.group == self.file.num_row_groups() {
            return Ok(false);
        }
        let group = self.file.get_row_group(self.group).map_err(|e| self.bad_row(&e))?;
        let rows = usize::try_from(group.metadata().num_rows());
        let columns: Result<Vec<_>, _> = self
            .file_columns
            .iter()
            .enumerate()
            .filter_map(|(index, at)| Some((index, (*at)?)))
            .map(|(index, at)| catch_panic(|| open_column(&self.unchecked, &*group, index, at)))
            .collect();
        self.columns = columns.map_err(|error| self.bad_row(&error))?;
        self.rows_left =
            rows.ok().ok_or_else(|| self.bad_row("a group of a negative number of rows"))?;
        self.group += 1;
        Ok(true)
    }

    /// Decodes the next rows of the row group.
    fn rows(&mut self, batch: &mut Vec<Record>) -> Result<(), TraceError> {
        let rows = self.rows_left.min(BATCH_ROWS);
        let mut records = vec![Record::default(); rows];
        let mut columns = std::mem::take(&mut self.columns);
        for column in &mut columns {
            let rows_read =
                catch_panic(|| column.read(rows)).map_err(|error| self.bad_row(&error))?;
            if rows_read != rows {
                return Err(self.bad_row(&format!("column {} has too few rows", column.name())));
            }
            for (row, at) in column.present_values(rows) {
                set(&mut records[row], column, at, &mut self.names).ok_or_else(|| {
                    self.bad_row(&format!("column {} holds nonsense", column.name()))
                })?;
            }
        }
        self.columns = columns;
        self.rows_left -= rows;
        for record in records {
            self.row += 1;
            let row = self.row;
            match check(&record, self.addressing) {
                Ok(()) => batch.push(record),
                Err(reason) => self.bad.add(|| format!("row {row}"), reason)?,
            }
        }
        Ok(())
    }
}

/// Converts a panic of the crate into an error: it asserts some properties that a damaged file
/// violates. The reader is discarded after an error, so its inconsistent state is never used.
fn catch_panic<T>(read: impl FnOnce() -> Result<T, ParquetError>) -> Result<T, ParquetError> {
    std::panic::catch_unwind(std::panic::AssertUnwindSafe(read))
        .unwrap_or_else(|_| Err(ParquetError::General("the file contradicts itself".to_owned())))
}

fn open_column(
    file: &File,
    group: &dyn RowGroupReader,
    index: usize,
    at: usize,
) -> Result<Column, ParquetError> {
    let schema = group.metadata().column(at);
    let dictionary = schema.dictionary_page_offset().unwrap_or(0);
    if dictionary.min(schema.data_page_offset()).min(schema.compressed_size()) < 0 {
        return Err(ParquetError::General(format!("column {} lies nowhere", COLUMNS[index])));
    }
    let (start, length) = schema.byte_range();
    pages::check(file, start..start.saturating_add(length))?;
    let reader = group.get_column_reader(at)?;
    let name = COLUMNS[index];
    let is_text = index == OP || index >= FIRST_NAME;
    let fits = match reader {
        ColumnReader::ByteArrayColumnReader(_) => is_text,
        ColumnReader::Int32ColumnReader(_) | ColumnReader::Int64ColumnReader(_) => !is_text,
        _ => false,
    };
    let descriptor = schema.column_descr();
    if !fits || descriptor.max_rep_level() > 0 || descriptor.max_def_level() > 1 {
        return Err(ParquetError::General(format!("column {name} has a type that cannot be")));
    }
    let optional = descriptor.max_def_level() == 1;
    let (levels, ints, longs, text) = (Vec::new(), Vec::new(), Vec::new(), Vec::new());
    Ok(Column { index, reader, optional, levels, ints, longs, text })
}

/// Stores one value in a record, or the name that the record's number has. `None` if the value is
/// none of its column.
fn set(record: &mut Record, column: &Column, at: usize, names: &mut AllNames) -> Option<()> {
    match column.index {
        OP => record.op = Op::from_name(column.text(at)?)?,
        index if index < FIRST_NAME => record.set_column(index, column.number(at)?).ok()?,
        index => {
            let kind = NameKind::ALL[index - FIRST_NAME];
            names.of_kind(kind).set(record.number_of(kind), column.text(at)?);
        }
    }
    Some(())
}

impl Source for ParquetReader {
    fn read_batch(&mut self, batch: &mut Vec<Record>) -> Result<(), TraceError> {
        let len_before = batch.len();
        while batch.len() == len_before {
            if self.rows_left > 0 {
                self.rows(batch)?;
            } else if !self.next_group()? {
                break;
            }
        }
        Ok(())
    }

    fn name(&self, kind: NameKind, number: u32) -> Option<&str> {
        self.names.get(kind, number)
    }

    fn addressing(&self) -> Addressing {
        self.addressing
    }

    fn notes(&self) -> Vec<String> {
        self.bad.note().into_iter().chain(self.names.note()).collect()
    }
}
