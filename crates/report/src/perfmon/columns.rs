//! Column headings of a log: `\\HOST\Object(Instance)\Counter`.

use super::Names;
use super::counters::{Counter, Object};
use super::text::fold;

/// The parts of a counter path.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Path<'a> {
    pub(super) host: &'a str,
    pub(super) object: &'a str,
    pub(super) instance: &'a str,
    pub(super) counter: &'a str,
}

impl<'a> Path<'a> {
    /// Splits a heading; returns `None` if it is not a counter path.
    pub(super) fn parse(heading: &'a str) -> Option<Path<'a>> {
        let heading = heading.trim();
        let (host, rest) = match heading.strip_prefix("\\\\") {
            Some(rest) => rest.split_once('\\')?,
            None => ("", heading.strip_prefix('\\')?),
        };
        let (middle, counter) = rest.rsplit_once('\\')?;
        // Instance names may contain parentheses.
        let (object, instance) = match middle.split_once('(') {
            Some((object, instance)) => (object, instance.strip_suffix(')')?),
            None => (middle, ""),
        };
        let is_complete = !object.is_empty() && !counter.is_empty();
        is_complete.then_some(Path { host, object, instance, counter })
    }

    /// Returns the known object, if any.
    pub(super) fn object(&self, names: Option<&Names>) -> Option<Object> {
        let name = fold(self.object);
        let from_list = names.and_then(|names| {
            names.numbers(&name).iter().find_map(|number| Object::from_number(*number))
        });
        from_list.or_else(|| Object::from_name(&name))
    }

    /// Returns the known counter of an object, if any, with its language if the name is a built-in
    /// one.
    pub(super) fn counter(
        &self,
        object: Object,
        names: Option<&Names>,
    ) -> Option<(Counter, Option<&'static str>)> {
        let name = fold(self.counter);
        let kind = object.kind();
        let from_list = names.and_then(|names| {
            let numbers = names.numbers(&name).iter();
            numbers.clone().find_map(|number| Counter::from_number(kind, *number))
        });
        from_list.map(|counter| (counter, None)).or_else(|| Counter::from_name(kind, &name))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn paths_are_cut_at_the_right_places() {
        let path = Path::parse(r"\\SRV\PhysicalDisk(0 C: D:)\Avg. Disk sec/Read").expect("a path");
        assert_eq!((path.host, path.object), ("SRV", "PhysicalDisk"));
        assert_eq!((path.instance, path.counter), ("0 C: D:", "Avg. Disk sec/Read"));
        let path = Path::parse(r"\\SRV\Network Interface(Intel(R) PRO)\Bytes/s").expect("a path");
        assert_eq!(path.instance, "Intel(R) PRO");
        let path = Path::parse(r"\Cache\Pin Reads/sec").expect("a path");
        assert_eq!((path.host, path.instance), ("", ""));
        for invalid in ["", "Cache", r"\\SRV\Cache", r"\\SRV", r"\\S\A(b\c", r"\\S\\c"] {
            assert_eq!(Path::parse(invalid), None, "{invalid}");
        }
    }

    #[test]
    fn a_list_of_names_goes_before_ours() {
        let names = Names::read(&b"86\nAntememoria\n98\nLecturas/s\n4\nCache\n"[..]);
        let names = names.expect("it can be read").expect("a list");
        let path = Path::parse(r"\\S\Antememoria\Lecturas/s").expect("a path");
        assert_eq!(path.object(None), None);
        assert_eq!(path.object(Some(&names)), Some(Object::Cache));
        assert_eq!(path.counter(Object::Cache, Some(&names)), Some((Counter::PinReads, None)));
        // This number belongs to another object.
        assert_eq!(path.counter(Object::Memory, Some(&names)), None);
    }
}
