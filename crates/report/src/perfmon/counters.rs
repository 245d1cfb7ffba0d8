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

/// Languages other than English.
pub(super) const LANGUAGES: [&str; 3] = ["German", "French", "Spanish"];

/// Category of a counter's object.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    Cache,
    Memory,
    Disk,
    Process,
    PagingFile,
    Processor,
    System,
}

/// The names of an object or counter.
struct Row<T> {
    item: T,
    kind: Kind,
    /// Number in the lists of Windows.
    number: u32,
    english: &'static str,
    /// Names in [`LANGUAGES`]; an unknown name is empty or left out.
    others: &'static [&'static str],
}

/// Defines an enumeration with its names, one row each: category, number, English name, names in
/// [`LANGUAGES`].
macro_rules! named {
    ($(#[$doc:meta])* $type:ident $rows:ident
     $($item:ident: $kind:ident $number:literal $english:literal $others:expr,)*) => {
        $(#[$doc])*
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
        pub(super) enum $type {
            $($item,)*
        }

        const $rows: &[Row<$type>] = &[$(Row {
            item: $type::$item,
            kind: Kind::$kind,
            number: $number,
            english: $english,
            others: &$others,
        },)*];

        impl $type {
            fn row(self) -> &'static Row<$type> {
                $rows.iter().find(|row| row.item == self).expect("each item has a row")
            }

            pub(super) fn english(self) -> &'static str {
                self.row().english
            }
        }
    };
}

named! {
    /// A Perfmon object.
    Object OBJECTS
    Cache: Cache 86 "Cache" ["cache", "cache", "cache"],
    Memory: Memory 4 "Memory" ["arbeitsspeicher", "memoire", "memoria"],
    LogicalDisk: Disk 236 "LogicalDisk" ["logischer datentrager", "disque logique", "disco logico"],
    PhysicalDisk: Disk 234 "PhysicalDisk" [
        "physikalischer datentrager", "disque physique", "disco fisico"
    ],
    Process: Process 230 "Process" ["prozess", "processus", "proceso"],
    PagingFile: PagingFile 700 "Paging File" [],
    Processor: Processor 238 "Processor" ["prozessor"],
    System: System 2 "System" [],
}

named! {
    /// A counter of an object.
    Counter COUNTERS
    CopyReads: Cache 106 "Copy Reads/sec" ["kopieren - lesevorgange/s"],
    CopyReadHits: Cache 112 "Copy Read Hits %" ["kopieren - lesetreffer (%)"],
    FastReads: Cache 124 "Fast Reads/sec" ["schnelle lesevorgange/s"],
    DataMaps: Cache 88 "Data Maps/sec" ["datenzuordnungen/s"],
    DataMapHits: Cache 94 "Data Map Hits %" ["datenzuordnungstreffer (%)"],
    DataMapPins: Cache 96 "Data Map Pins/sec" ["datenzuordnung - festsetzungen/s"],
    PinReads: Cache 98 "Pin Reads/sec" ["festsetzung - lesevorgange/s"],
    PinReadHits: Cache 104 "Pin Read Hits %" ["festsetzung - lesetreffer (%)"],
    MdlReads: Cache 114 "MDL Reads/sec" ["mdl-lesevorgange/s"],
    MdlReadHits: Cache 120 "MDL Read Hits %" ["mdl-lesetreffer (%)"],
    ReadAheads: Cache 122 "Read Aheads/sec" ["vorauslesevorgange/s"],
    LazyWriteFlushes: Cache 134 "Lazy Write Flushes/sec" ["verzogertes schreiben - leerungen/s"],
    LazyWritePages: Cache 136 "Lazy Write Pages/sec" ["verzogertes schreiben - seiten/s"],
    DataFlushes: Cache 138 "Data Flushes/sec" ["datenleerungen/s"],
    DataFlushPages: Cache 140 "Data Flush Pages/sec" ["datenleerung - seiten/s"],
    AvailableBytes: Memory 24 "Available Bytes" ["verfugbare bytes", "octets disponibles"],
    AvailableKBytes: Memory 1380 "Available KBytes" ["verfugbare kb", "kilo-octets disponibles"],
    AvailableMBytes: Memory 1382 "Available MBytes" [
        "verfugbare mb", "megaoctets disponibles", "mbytes disponibles"
    ],
    PagesPerSec: Memory 40 "Pages/sec" ["seiten/s", "pages/s", "paginas/s"],
    PageReads: Memory 42 "Page Reads/sec" [],
    PagesInput: Memory 822 "Pages Input/sec" [],
    CacheFaults: Memory 36 "Cache Faults/sec" [],
    CacheBytes: Memory 818 "Cache Bytes" ["cachebytes", "octets du cache"],
    CacheResident: Memory 76 "System Cache Resident Bytes" [
        "systemcache: residente bytes", "octets residants dans le cache systeme"
    ],
    DiskQueue: Disk 198 "Current Disk Queue Length" [
        "aktuelle warteschlangenlange", "taille de file d'attente du disque actuelle",
        "longitud actual de cola de disco"
    ],
    AvgDiskQueue: Disk 1400 "Avg. Disk Queue Length" [
        "durchschnittl. warteschlangenlange des datentragers",
        "longueur moyenne de file d'attente du disque", "promedio de longitud de la cola de disco"
    ],
    ReadQueue: Disk 1402 "Avg. Disk Read Queue Length" [
        "durchschnittl. warteschlangenlange der datentrager-lesevorgange"
    ],
    WriteQueue: Disk 1404 "Avg. Disk Write Queue Length" [
        "durchschnittl. warteschlangenlange der datentrager-schreibvorgange"
    ],
    DiskTime: Disk 200 "% Disk Time" [],
    IdleTime: Disk 1482 "% Idle Time" [],
    ReadTime: Disk 202 "% Disk Read Time" [
        "lesezeit (%)", "pourcentage du temps de lecture du disque",
        "% de tiempo de lectura de disco"
    ],
    WriteTime: Disk 204 "% Disk Write Time" [
        "schreibzeit (%)", "pourcentage du temps ecriture du disque",
        "% de tiempo de escritura de disco"
    ],
    SecPerTransfer: Disk 206 "Avg. Disk sec/Transfer" [],
    SecPerRead: Disk 208 "Avg. Disk sec/Read" [
        "mittlere sek./lesevorgange", "moyenne disque s/lecture",
        "promedio de segundos de disco/lectura"
    ],
    SecPerWrite: Disk 210 "Avg. Disk sec/Write" [
        "mittlere sek./schreibvorgange", "moyenne disque s/ecriture",
        "promedio de segundos de disco/escritura"
    ],
    DiskTransfers: Disk 212 "Disk Transfers/sec" [],
    DiskReads: Disk 214 "Disk Reads/sec" [
        "lesevorgange/s", "lectures disque/s", "lecturas de disco/s"
    ],
    DiskWrites: Disk 216 "Disk Writes/sec" [
        "schreibvorgange/s", "ecritures disque/s", "escrituras en disco/s"
    ],
    BytesPerRead: Disk 226 "Avg. Disk Bytes/Read" [
        "mittlere bytes/lesevorgang", "moyenne disque, octets/lecture",
        "promedio de bytes de disco/lectura"
    ],
    BytesPerWrite: Disk 228 "Avg. Disk Bytes/Write" [
        "mittlere bytes/schreibvorgang", "moyenne disque, octets/ecriture",
        "promedio de bytes de disco/escritura"
    ],
    SplitIo: Disk 1484 "Split IO/Sec" ["teil-e/a/s", "e/s partagees/s"],
    PrivateBytes: Process 186 "Private Bytes" ["private bytes"],
    ProcessTime: Process 6 "% Processor Time" ["prozessorzeit (%)"],
    IoReads: Process 1412 "IO Read Operations/sec" [],
    IoWrites: Process 1414 "IO Write Operations/sec" [],
    IoData: Process 1416 "IO Data Operations/sec" [],
    IoOthers: Process 1418 "IO Other Operations/sec" [],
    IoReadBytes: Process 1420 "IO Read Bytes/sec" ["e/a-bytes gelesen/s"],
    IoWriteBytes: Process 1422 "IO Write Bytes/sec" ["e/a-bytes geschrieben/s"],
    IoDataBytes: Process 1424 "IO Data Bytes/sec" [],
    IoOtherBytes: Process 1426 "IO Other Bytes/sec" [],
    PagingUse: PagingFile 702 "% Usage" [],
    PagingUsePeak: PagingFile 704 "% Usage Peak" [],
    ProcessorTime: Processor 6 "% Processor Time" ["prozessorzeit (%)"],
    ProcessorQueue: System 44 "Processor Queue Length" [],
}

impl Object {
    pub(super) fn kind(self) -> Kind {
        self.row().kind
    }

    /// Returns the object with this number in the lists of Windows.
    pub(super) fn from_number(number: u32) -> Option<Object> {
        OBJECTS.iter().find(|row| row.number == number).map(|row| row.item)
    }

    /// Returns the object with this folded name.
    pub(super) fn from_name(name: &str) -> Option<Object> {
        let matches = |row: &&Row<Object>| {
            row.english.eq_ignore_ascii_case(name) || row.others.contains(&name)
        };
        OBJECTS.iter().find(matches).map(|row| row.item)
    }
}

impl Counter {
    /// Returns the counter of this category with this number in the lists of Windows.
    pub(super) fn from_number(kind: Kind, number: u32) -> Option<Counter> {
        COUNTERS.iter().find(|row| row.kind == kind && row.number == number).map(|row| row.item)
    }

    /// Returns the counter with this folded name, and its language unless that is English.
    pub(super) fn from_name(kind: Kind, name: &str) -> Option<(Counter, Option<&'static str>)> {
        COUNTERS.iter().filter(|row| row.kind == kind).find_map(|row| {
            if row.english.eq_ignore_ascii_case(name) {
                return Some((row.item, None));
            }
            let index = row.others.iter().position(|known| !known.is_empty() && *known == name)?;
            Some((row.item, Some(LANGUAGES[index])))
        })
    }

    /// Returns all counters of a category.
    pub(super) fn of(kind: Kind) -> impl Iterator<Item = Counter> {
        COUNTERS.iter().filter(move |row| row.kind == kind).map(|row| row.item)
    }

    /// Returns true if the report follows from other counters, if a log lacks this one.
    pub(super) fn is_optional(self) -> bool {
        use Counter::{
            CacheFaults, DiskTime, DiskTransfers, IdleTime, PageReads, PagesInput, ReadQueue,
            SecPerTransfer, WriteQueue,
        };
        let of_disk = [DiskTime, IdleTime, DiskTransfers, SecPerTransfer, ReadQueue, WriteQueue];
        of_disk.contains(&self) || [CacheFaults, PageReads, PagesInput].contains(&self)
    }

    /// Returns true if the counter is a ratio of hits.
    pub(super) fn is_hit_ratio(self) -> bool {
        use Counter::{CopyReadHits, DataMapHits, MdlReadHits, PinReadHits};
        matches!(self, CopyReadHits | DataMapHits | PinReadHits | MdlReadHits)
    }
}

#[cfg(test)]
mod tests {
    use super::super::text::fold;
    use super::*;

    #[test]
    fn names_are_folded_and_differ_within_an_object() {
        let of_machine = [Kind::PagingFile, Kind::Processor, Kind::System];
        for kind in
            [Kind::Cache, Kind::Memory, Kind::Disk, Kind::Process].into_iter().chain(of_machine)
        {
            let mut seen: Vec<(usize, &str)> = Vec::new();
            for row in COUNTERS.iter().filter(|row| row.kind == kind) {
                assert_eq!(Counter::from_name(kind, &fold(row.english)), Some((row.item, None)));
                assert_eq!(Counter::from_number(kind, row.number), Some(row.item));
                for (index, name) in
                    row.others.iter().enumerate().filter(|(_, name)| !name.is_empty())
                {
                    assert_eq!(fold(name), *name);
                    assert!(!seen.contains(&(index, name)), "{name} twice");
                    assert_eq!(Counter::from_name(kind, name).map(|found| found.0), Some(row.item));
                    seen.push((index, name));
                }
            }
        }
        for row in OBJECTS {
            assert_eq!(Object::from_name(&fold(row.english)), Some(row.item));
            assert_eq!(Object::from_number(row.number), Some(row.item));
            assert!(row.others.iter().all(|name| Object::from_name(name) == Some(row.item)));
        }
        assert_eq!(Counter::from_name(Kind::Cache, ""), None);
    }
}
