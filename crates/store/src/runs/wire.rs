//! How records travel between machines: each has a form, which is JSON. Reading a form checks it.
//!
//! The clock of a served folder goes on after a reboot, that of its records does not. So each form is made with a distance, which is
//! added to all moments in it.

mod arguments;
mod records;

use std::collections::HashMap;
use std::hash::Hash;
use std::str::FromStr;
use std::time::Duration;

use lockkeeper_core::id::{HolderId, LeaseId, Name, RequestId, RunId, Token, WorkerId};
use lockkeeper_core::record::Priority;
use lockkeeper_core::request::{Request, RequestStatus};
use lockkeeper_core::run::{EventId, EventKind, Reason, Status};
use lockkeeper_core::time::{Moment, Ttl};
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};

pub(crate) use self::arguments::{AutoRunMessage, ClaimsMessage, OutputMessage, SubmissionMessage};
use super::spec;

/// A value that travels.
pub(crate) trait Wire: Sized {
    /// What travels.
    type Form: Serialize + DeserializeOwned;

    /// Makes the form, with all moments moved by this many microseconds.
    fn form(self, by: i64) -> Self::Form;

    /// Reads a form, or says what is wrong with it.
    fn read(form: Self::Form, by: i64) -> Result<Self, String>;
}

/// The form of a value.
pub(crate) type Form<T> = <T as Wire>::Form;

/// Values that are their own forms.
macro_rules! plain {
    ($($type:ty),+) => {
        $(impl Wire for $type {
            type Form = Self;

            fn form(self, _by: i64) -> Self {
                self
            }

            fn read(form: Self, _by: i64) -> Result<Self, String> {
                Ok(form)
            }
        })+
    };
}

/// Values whose form is their text.
macro_rules! text {
    ($($type:ty),+) => {
        $(impl Wire for $type {
            type Form = String;

            fn form(self, _by: i64) -> String {
                self.to_string()
            }

            fn read(form: String, _by: i64) -> Result<Self, String> {
                Self::from_str(&form).map_err(|error| error.to_string())
            }
        })+
    };
}

/// Numbers with a type of their own.
macro_rules! number {
    ($($type:ident),+) => {
        $(impl Wire for $type {
            type Form = u64;

            fn form(self, _by: i64) -> u64 {
                self.0
            }

            fn read(form: u64, _by: i64) -> Result<Self, String> {
                Ok(Self(form))
            }
        })+
    };
}

/// A record whose form has a field for each of its fields.
macro_rules! record {
    ($record:ident as $form:ident { $($field:ident: $type:ty),+ $(,)? }) => {
        #[derive(Clone, Debug, serde::Serialize, serde::Deserialize)]
        pub(crate) struct $form {
            $($field: $crate::runs::wire::Form<$type>),+
        }

        impl $crate::runs::wire::Wire for $record {
            type Form = $form;

            fn form(self, by: i64) -> $form {
                $form { $($field: $crate::runs::wire::Wire::form(self.$field, by)),+ }
            }

            fn read(form: $form, by: i64) -> Result<Self, String> {
                Ok(Self { $($field: $crate::runs::wire::Wire::read(form.$field, by)?),+ })
            }
        }
    };
}
use record;

plain!((), bool, u32, u64, i64, usize, String);
text!(RunId, RequestId, WorkerId, EventId, Name, Status, RequestStatus);
number!(HolderId, LeaseId, Token);

impl Wire for Moment {
    type Form = i64;

    fn form(self, by: i64) -> i64 {
        self.as_micros().saturating_add(by)
    }

    fn read(form: i64, by: i64) -> Result<Self, String> {
        Ok(Self::from_micros(form.saturating_add(by)))
    }
}

impl Wire for Duration {
    type Form = u64;

    fn form(self, _by: i64) -> u64 {
        u64::try_from(self.as_micros()).unwrap_or(u64::MAX)
    }

    fn read(form: u64, _by: i64) -> Result<Self, String> {
        Ok(Self::from_micros(form))
    }
}

impl Wire for Ttl {
    type Form = u64;

    fn form(self, by: i64) -> u64 {
        self.get().form(by)
    }

    fn read(form: u64, _by: i64) -> Result<Self, String> {
        Self::new(Duration::from_micros(form)).map_err(|error| error.to_string())
    }
}

impl Wire for Priority {
    type Form = i32;

    fn form(self, _by: i64) -> i32 {
        self.get()
    }

    fn read(form: i32, _by: i64) -> Result<Self, String> {
        Self::new(form).map_err(|error| error.to_string())
    }
}

impl Wire for Reason {
    type Form = String;

    fn form(self, _by: i64) -> String {
        self.as_str().to_owned()
    }

    fn read(form: String, _by: i64) -> Result<Self, String> {
        Self::from_code(&form).ok_or_else(|| format!("the reason `{form}`"))
    }
}

impl Wire for EventKind {
    type Form = String;

    fn form(self, _by: i64) -> String {
        self.as_str().to_owned()
    }

    fn read(form: String, _by: i64) -> Result<Self, String> {
        let found = Self::ALL.into_iter().find(|kind| kind.as_str() == form);
        found.ok_or_else(|| format!("the event `{form}`"))
    }
}

/// The form of a request is the text that databases have.
impl Wire for Request {
    type Form = String;

    fn form(self, _by: i64) -> String {
        spec::write(&self)
    }

    fn read(form: String, _by: i64) -> Result<Self, String> {
        spec::read(&form)
    }
}

impl<T: Wire> Wire for Option<T> {
    type Form = Option<T::Form>;

    fn form(self, by: i64) -> Self::Form {
        self.map(|value| value.form(by))
    }

    fn read(form: Self::Form, by: i64) -> Result<Self, String> {
        form.map(|form| T::read(form, by)).transpose()
    }
}

impl<T: Wire> Wire for Vec<T> {
    type Form = Vec<T::Form>;

    fn form(self, by: i64) -> Self::Form {
        self.into_iter().map(|value| value.form(by)).collect()
    }

    fn read(form: Self::Form, by: i64) -> Result<Self, String> {
        form.into_iter().map(|form| T::read(form, by)).collect()
    }
}

impl<A: Wire, B: Wire> Wire for (A, B) {
    type Form = (A::Form, B::Form);

    fn form(self, by: i64) -> Self::Form {
        (self.0.form(by), self.1.form(by))
    }

    fn read(form: Self::Form, by: i64) -> Result<Self, String> {
        Ok((A::read(form.0, by)?, B::read(form.1, by)?))
    }
}

impl<T: Wire, E: Wire> Wire for Result<T, E> {
    type Form = Result<T::Form, E::Form>;

    fn form(self, by: i64) -> Self::Form {
        self.map(|value| value.form(by)).map_err(|error| error.form(by))
    }

    fn read(form: Self::Form, by: i64) -> Result<Self, String> {
        Ok(match form {
            Ok(form) => Ok(T::read(form, by)?),
            Err(form) => Err(E::read(form, by)?),
        })
    }
}

impl<K: Wire + Eq + Hash, V: Wire> Wire for HashMap<K, V> {
    type Form = Vec<(K::Form, V::Form)>;

    fn form(self, by: i64) -> Self::Form {
        self.into_iter().map(|pair| pair.form(by)).collect()
    }

    fn read(form: Self::Form, by: i64) -> Result<Self, String> {
        form.into_iter().map(|pair| <(K, V)>::read(pair, by)).collect()
    }
}

/// Bytes as hexadecimal digits.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct Hex(String);

impl Hex {
    fn of(bytes: &[u8]) -> Self {
        Self(bytes.iter().map(|byte| format!("{byte:02x}")).collect())
    }

    fn bytes(&self) -> Result<Vec<u8>, String> {
        let digit = |byte: u8| char::from(byte).to_digit(16).and_then(|digit| u8::try_from(digit).ok());
        let (pairs, rest) = self.0.as_bytes().as_chunks();
        let bytes: Option<Vec<u8>> =
            pairs.iter().map(|[high, low]| Some(digit(*high)? << 4 | digit(*low)?)).collect();
        bytes.filter(|_| rest.is_empty()).ok_or_else(|| "bytes that cannot be read".to_owned())
    }
}
