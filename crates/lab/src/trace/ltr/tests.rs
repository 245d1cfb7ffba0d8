//! The rules of docs/FORMATS.md.
