//! Halves of characters in JSON: JavaScript writes a text that was cut within an emoji with one of the two escapes that make it.
//! Such an input is no JSON for others.

/// Replaces the halves by U+FFFD. None: there are none.
pub(super) fn without_halves(json: &[u8]) -> Option<Vec<u8>> {
    let mut whole: Option<Vec<u8>> = None;
    let mut at = 0;
    while at + 1 < json.len() {
        if json[at] != b'\\' {
            at += 1;
            continue;
        }
        at += match (code(&json[at..]), code(json.get(at + 6..).unwrap_or_default())) {
            (Some(0xd800..0xdc00), Some(0xdc00..0xe000)) => 12,
            (Some(0xd800..0xe000), _) => {
                let whole = whole.get_or_insert_with(|| json.to_vec());
                whole[at + 2..at + 6].copy_from_slice(b"fffd");
                6
            }
            _ => 2,
        };
    }
    whole
}

/// The code of `\uXXXX`, if the text begins with that.
fn code(text: &[u8]) -> Option<u16> {
    let digits = text.get(..6)?.strip_prefix(b"\\u")?;
    let is_hex = digits.iter().all(u8::is_ascii_hexdigit);
    u16::from_str_radix(std::str::from_utf8(digits).ok()?, 16).ok().filter(|_| is_hex)
}
