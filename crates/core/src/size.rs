//! Parser for sizes in bytes, as users write them.

use thiserror::Error;

/// Why a text is not a size.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum SizeError {
    /// It is not a number with an optional unit.
    #[error("`{0}` is not a size")]
    Malformed(String),
    /// It is larger than any disk.
    #[error("the size `{0}` is too large")]
    TooLarge(String),
}

impl SizeError {
    /// What the user can do about it.
    pub const fn hint(&self) -> &'static str {
        "write 500000, 512K, 16M or 1G"
    }
}

/// Reads `500000`, `512K`, `16M` or `1G`; units are powers of 1024, and `KiB` or `KB` mean the same.
pub fn parse_size(text: &str) -> Result<u64, SizeError> {
    let malformed = || SizeError::Malformed(text.to_owned());
    let digits = text.bytes().take_while(u8::is_ascii_digit).count();
    let (number, unit) = text.split_at(digits);
    let power = match unit {
        "" | "B" => 0,
        "K" | "KB" | "KiB" => 1,
        "M" | "MB" | "MiB" => 2,
        "G" | "GB" | "GiB" => 3,
        _ => return Err(malformed()),
    };
    if number.is_empty() {
        return Err(malformed());
    }
    // Parsing digits fails only if there are too many.
    let number: Option<u64> = number.parse().ok();
    number
        .and_then(|number| number.checked_mul(1024_u64.pow(power)))
        .ok_or_else(|| SizeError::TooLarge(text.to_owned()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_have_units() {
        for (text, bytes) in [("0", 0), ("1500", 1500), ("4K", 4096), ("16M", 16 << 20), ("1GiB", 1 << 30)] {
            assert_eq!(parse_size(text), Ok(bytes), "{text}");
        }
        for text in ["", "M", "-1", "1.5M", "16 M", "4T", "4k"] {
            assert_eq!(parse_size(text), Err(SizeError::Malformed(text.to_owned())));
        }
        for text in ["18446744073709551616", "99999999999999G"] {
            assert_eq!(parse_size(text), Err(SizeError::TooLarge(text.to_owned())));
        }
    }
}
