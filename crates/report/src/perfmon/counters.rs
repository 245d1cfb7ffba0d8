//! Known counters, by their English names, by names in other languages, and by the numbers under
//! which Windows stores the names of every language.
//!
//! Names are folded (see [`super::text::fold`]): without accents and in lower case. Numbers and
//! German names are those of the list `Perflib\CurrentLanguage\Counter` of a German Windows; French
//! and Spanish names are those that users and Microsoft's own pages give for the objects disk and
//! memory. For the object Cache no such source exists in French and Spanish, so the user provides
//! the list of that machine ([`super::Names`]).
//!
//! Invariant: within an object no two counters have the same name in a language.

/// A Perfmon object.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) enum Object {
    Cache,
    Memory,
    LogicalDisk,
    PhysicalDisk,
    Process,
}

/// Languages other than English.
pub(super) const LANGUAGES: [&str; 3] = ["German", "French", "Spanish"];

/// Object, number, English name, names in [`LANGUAGES`].
type ObjectRow = (Object, u32, &'static str, [&'static str; 3]);

const OBJECTS: [ObjectRow; 5] = [
    (Object::Cache, 86, "Cache", ["cache", "cache", "cache"]),
    (Object::Memory, 4, "Memory", ["arbeitsspeicher", "memoire", "memoria"]),
    (
        Object::LogicalDisk,
        236,
        "LogicalDisk",
        ["logischer datentrager", "disque logique", "disco logico"],
    ),
    (
        Object::PhysicalDisk,
        234,
        "PhysicalDisk",
        ["physikalischer datentrager", "disque physique", "disco fisico"],
    ),
    (Object::Process, 230, "Process", ["prozess", "processus", "proceso"]),
];

/// A counter of an object.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) enum Counter {
    CopyReads,
    CopyReadHits,
    FastReads,
    DataMaps,
    DataMapHits,
    DataMapPins,
    PinReads,
    PinReadHits,
    MdlReads,
    MdlReadHits,
    ReadAheads,
    LazyWriteFlushes,
    LazyWritePages,
    DataFlushes,
    DataFlushPages,
    AvailableBytes,
    AvailableKBytes,
    AvailableMBytes,
    PagesPerSec,
    CacheBytes,
    CacheResident,
    DiskQueue,
    AvgDiskQueue,
    ReadTime,
    WriteTime,
    SecPerRead,
    SecPerWrite,
    DiskReads,
    DiskWrites,
    BytesPerRead,
    BytesPerWrite,
    SplitIo,
    PrivateBytes,
    IoReadBytes,
    IoWriteBytes,
}

/// Category of a counter's object.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    Cache,
    Memory,
    Disk,
    Process,
}

/// Counter, category, number, English name, names in [`LANGUAGES`]; an unknown name is empty.
type CounterRow = (Counter, Kind, u32, &'static str, [&'static str; 3]);

use Counter as C;
use Kind as K;

const COUNTERS: [CounterRow; 35] = [
    (C::CopyReads, K::Cache, 106, "Copy Reads/sec", ["kopieren - lesevorgange/s", "", ""]),
    (C::CopyReadHits, K::Cache, 112, "Copy Read Hits %", ["kopieren - lesetreffer (%)", "", ""]),
    (C::FastReads, K::Cache, 124, "Fast Reads/sec", ["schnelle lesevorgange/s", "", ""]),
    (C::DataMaps, K::Cache, 88, "Data Maps/sec", ["datenzuordnungen/s", "", ""]),
    (C::DataMapHits, K::Cache, 94, "Data Map Hits %", ["datenzuordnungstreffer (%)", "", ""]),
    (
        C::DataMapPins,
        K::Cache,
        96,
        "Data Map Pins/sec",
        ["datenzuordnung - festsetzungen/s", "", ""],
    ),
    (C::PinReads, K::Cache, 98, "Pin Reads/sec", ["festsetzung - lesevorgange/s", "", ""]),
    (C::PinReadHits, K::Cache, 104, "Pin Read Hits %", ["festsetzung - lesetreffer (%)", "", ""]),
    (C::MdlReads, K::Cache, 114, "MDL Reads/sec", ["mdl-lesevorgange/s", "", ""]),
    (C::MdlReadHits, K::Cache, 120, "MDL Read Hits %", ["mdl-lesetreffer (%)", "", ""]),
    (C::ReadAheads, K::Cache, 122, "Read Aheads/sec", ["vorauslesevorgange/s", "", ""]),
    (
        C::LazyWriteFlushes,
        K::Cache,
        134,
        "Lazy Write Flushes/sec",
        ["verzogertes schreiben - leerungen/s", "", ""],
    ),
    (
        C::LazyWritePages,
        K::Cache,
        136,
        "Lazy Write Pages/sec",
        ["verzogertes schreiben - seiten/s", "", ""],
    ),
    (C::DataFlushes, K::Cache, 138, "Data Flushes/sec", ["datenleerungen/s", "", ""]),
    (C::DataFlushPages, K::Cache, 140, "Data Flush Pages/sec", ["datenleerung - seiten/s", "", ""]),
    (
        C::AvailableBytes,
        K::Memory,
        24,
        "Available Bytes",
        ["verfugbare bytes", "octets disponibles", ""],
    ),
    (
        C::AvailableKBytes,
        K::Memory,
        1380,
        "Available KBytes",
        ["verfugbare kb", "kilo-octets disponibles", ""],
    ),
    (
        C::AvailableMBytes,
        K::Memory,
        1382,
        "Available MBytes",
        ["verfugbare mb", "megaoctets disponibles", "mbytes disponibles"],
    ),
    (C::PagesPerSec, K::Memory, 40, "Pages/sec", ["seiten/s", "pages/s", "paginas/s"]),
    (C::CacheBytes, K::Memory, 818, "Cache Bytes", ["cachebytes", "octets du cache", ""]),
    (
        C::CacheResident,
        K::Memory,
        76,
        "System Cache Resident Bytes",
        ["systemcache: residente bytes", "octets residants dans le cache systeme", ""],
    ),
    (
        C::DiskQueue,
        K::Disk,
        198,
        "Current Disk Queue Length",
        [
            "aktuelle warteschlangenlange",
            "taille de file d'attente du disque actuelle",
            "longitud actual de cola de disco",
        ],
    ),
    (
        C::AvgDiskQueue,
        K::Disk,
        1400,
        "Avg. Disk Queue Length",
        [
            "durchschnittl. warteschlangenlange des datentragers",
            "longueur moyenne de file d'attente du disque",
            "promedio de longitud de la cola de disco",
        ],
    ),
    (
        C::ReadTime,
        K::Disk,
        202,
        "% Disk Read Time",
        [
            "lesezeit (%)",
            "pourcentage du temps de lecture du disque",
            "% de tiempo de lectura de disco",
        ],
    ),
    (
        C::WriteTime,
        K::Disk,
        204,
        "% Disk Write Time",
        [
            "schreibzeit (%)",
            "pourcentage du temps ecriture du disque",
            "% de tiempo de escritura de disco",
        ],
    ),
    (
        C::SecPerRead,
        K::Disk,
        208,
        "Avg. Disk sec/Read",
        [
            "mittlere sek./lesevorgange",
            "moyenne disque s/lecture",
            "promedio de segundos de disco/lectura",
        ],
    ),
    (
        C::SecPerWrite,
        K::Disk,
        210,
        "Avg. Disk sec/Write",
        [
            "mittlere sek./schreibvorgange",
            "moyenne disque s/ecriture",
            "promedio de segundos de disco/escritura",
        ],
    ),
    (
        C::DiskReads,
        K::Disk,
        214,
        "Disk Reads/sec",
        ["lesevorgange/s", "lectures disque/s", "lecturas de disco/s"],
    ),
    (
        C::DiskWrites,
        K::Disk,
        216,
        "Disk Writes/sec",
        ["schreibvorgange/s", "ecritures disque/s", "escrituras en disco/s"],
    ),
    (
        C::BytesPerRead,
        K::Disk,
        226,
        "Avg. Disk Bytes/Read",
        [
            "mittlere bytes/lesevorgang",
            "moyenne disque, octets/lecture",
            "promedio de bytes de disco/lectura",
        ],
    ),
    (
        C::BytesPerWrite,
        K::Disk,
        228,
        "Avg. Disk Bytes/Write",
        [
            "mittlere bytes/schreibvorgang",
            "moyenne disque, octets/ecriture",
            "promedio de bytes de disco/escritura",
        ],
    ),
    (C::SplitIo, K::Disk, 1484, "Split IO/Sec", ["teil-e/a/s", "e/s partagees/s", ""]),
    (C::PrivateBytes, K::Process, 186, "Private Bytes", ["private bytes", "", ""]),
    (C::IoReadBytes, K::Process, 1420, "IO Read Bytes/sec", ["e/a-bytes gelesen/s", "", ""]),
    (C::IoWriteBytes, K::Process, 1422, "IO Write Bytes/sec", ["e/a-bytes geschrieben/s", "", ""]),
];

impl Object {
    pub(super) fn kind(self) -> Kind {
        match self {
            Object::Cache => Kind::Cache,
            Object::Memory => Kind::Memory,
            Object::LogicalDisk | Object::PhysicalDisk => Kind::Disk,
            Object::Process => Kind::Process,
        }
    }

    pub(super) fn english(self) -> &'static str {
        OBJECTS.iter().find(|row| row.0 == self).expect("each object has a row").2
    }

    /// Returns the object with this number in the lists of Windows.
    pub(super) fn from_number(number: u32) -> Option<Object> {
        OBJECTS.iter().find(|row| row.1 == number).map(|row| row.0)
    }

    /// Returns the object with this folded name.
    pub(super) fn from_name(name: &str) -> Option<Object> {
        let matches = |row: &&ObjectRow| row.2.eq_ignore_ascii_case(name) || row.3.contains(&name);
        OBJECTS.iter().find(matches).map(|row| row.0)
    }
}

impl Counter {
    pub(super) fn english(self) -> &'static str {
        COUNTERS.iter().find(|row| row.0 == self).expect("each counter has a row").3
    }

    /// Returns the counter of this category with this number in the lists of Windows.
    pub(super) fn from_number(kind: Kind, number: u32) -> Option<Counter> {
        COUNTERS.iter().find(|row| row.1 == kind && row.2 == number).map(|row| row.0)
    }

    /// Returns the counter with this folded name, and its language unless that is English.
    pub(super) fn from_name(kind: Kind, name: &str) -> Option<(Counter, Option<&'static str>)> {
        let mut rows = COUNTERS.iter().filter(|row| row.1 == kind);
        rows.find_map(|row| {
            if row.3.eq_ignore_ascii_case(name) {
                return Some((row.0, None));
            }
            let index = row.4.iter().position(|known| !known.is_empty() && *known == name)?;
            Some((row.0, Some(LANGUAGES[index])))
        })
    }

    /// Returns all counters of a category.
    pub(super) fn of(kind: Kind) -> impl Iterator<Item = Counter> {
        COUNTERS.iter().filter(move |row| row.1 == kind).map(|row| row.0)
    }

    /// Returns true if the counter is a percentage.
    pub(super) fn is_percentage(self) -> bool {
        matches!(self, C::CopyReadHits | C::DataMapHits | C::PinReadHits | C::MdlReadHits)
    }
}

#[cfg(test)]
mod tests {
    use super::super::text::fold;
    use super::*;

    #[test]
    fn names_are_folded_and_differ_within_an_object() {
        for kind in [Kind::Cache, Kind::Memory, Kind::Disk, Kind::Process] {
            let mut seen: Vec<(usize, &str)> = Vec::new();
            for row in COUNTERS.iter().filter(|row| row.1 == kind) {
                assert_eq!(Counter::from_name(kind, &fold(row.3)), Some((row.0, None)));
                assert_eq!(Counter::from_number(kind, row.2), Some(row.0));
                for (index, name) in row.4.iter().enumerate().filter(|(_, name)| !name.is_empty()) {
                    assert_eq!(fold(name), *name);
                    assert!(!seen.contains(&(index, name)), "{name} twice");
                    assert_eq!(Counter::from_name(kind, name).map(|found| found.0), Some(row.0));
                    seen.push((index, name));
                }
            }
        }
        for row in &OBJECTS {
            assert_eq!(Object::from_name(&fold(row.2)), Some(row.0));
            assert_eq!(Object::from_number(row.1), Some(row.0));
            assert!(row.3.iter().all(|name| Object::from_name(name) == Some(row.0)));
        }
        assert_eq!(Counter::from_name(Kind::Cache, ""), None);
    }
}
