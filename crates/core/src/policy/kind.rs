//! The macro that makes [`PolicyKind`](super::PolicyKind) from the table of the policies.

/// Makes the enumeration of the policies, their names, and all functions that have one case for
/// each policy.
macro_rules! policies {
    ($($(#[doc = $doc:literal])* $kind:ident = $name:literal;)*) => {
        /// The name of a policy.
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        #[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
        #[cfg_attr(feature = "serde", serde(rename_all = "snake_case"))]
        pub enum PolicyKind {
            $($(#[doc = $doc])* $kind,)*
        }

        impl PolicyKind {
            /// All policies, in the order of the documentation.
            pub const ALL: [PolicyKind; [$($name,)*].len()] = [$(PolicyKind::$kind,)*];

            /// Returns its name on the command line.
            #[must_use]
            pub fn name(self) -> &'static str {
                match self {
                    $(PolicyKind::$kind => $name,)*
                }
            }

            /// Returns the policy of this name.
            #[must_use]
            pub fn from_name(name: &str) -> Option<PolicyKind> {
                PolicyKind::ALL.into_iter().find(|kind| kind.name() == name)
            }

            /// Returns a new, empty policy.
            #[must_use]
            pub fn build(self) -> Box<dyn Policy> {
                match self {
                    $(PolicyKind::$kind => Box::new($kind::default()),)*
                }
            }

            /// Calls a function that is generic over the type of the policy, with a new, empty
            /// policy.
            pub fn visit<V: PolicyVisitor>(self, visitor: V) -> V::Output {
                match self {
                    $(PolicyKind::$kind => visitor.visit($kind::default()),)*
                }
            }

            /// Returns true if the policy evicts the least recently referenced page. Only then does
            /// the age of its last victim indicate the age of the next one.
            #[must_use]
            pub fn evicts_by_age(self) -> bool {
                self == PolicyKind::Lru
            }

            /// Returns the memory per resident page in bytes, ghosts included; counted into the
            /// memory bound.
            #[must_use]
            pub fn bytes_per_page(self) -> usize {
                match self {
                    $(PolicyKind::$kind => $kind::BYTES,)*
                }
            }
        }

        impl crate::named::Named for PolicyKind {
            const VALUES: &'static [PolicyKind] = &PolicyKind::ALL;
        }
    };
}

pub(super) use policies;
