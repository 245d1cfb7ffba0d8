//! A macro for enumerations whose values have names on the command line.

macro_rules! named {
    ($enum:ident: $($variant:ident = $name:literal),*) => {
        impl $enum {
            /// All values.
            pub const ALL: &'static [$enum] = &[$($enum::$variant),*];

            /// Returns the name on the command line.
            #[must_use]
            pub fn name(self) -> &'static str {
                match self { $($enum::$variant => $name),* }
            }

            /// Returns the value with this name.
            #[must_use]
            pub fn from_name(name: &str) -> Option<$enum> {
                $enum::ALL.iter().copied().find(|one| one.name() == name)
            }

            pub(crate) fn from_index(index: u8) -> $enum {
                $enum::ALL[usize::from(index)]
            }
        }

        impl std::fmt::Display for $enum {
            fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                f.write_str(self.name())
            }
        }
    };
}

pub(crate) use named;
